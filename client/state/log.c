// Log lines of the library. Runs on any thread of the program, so the file owns nothing but the
// level: a word, 0 until a thread has read the environment. Two threads may read the environment at
// once; both find the same.

#include "client/state/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/state/file.h"
#include "client/state/logbook.h"

/* The stored level is client_log_level plus 1: 0 means "not read yet", 1 means "off". */
static atomic_int threshold;

static const char prefix[] = "frmps: ";
#define PREFIX (sizeof(prefix) - 1)

/* Puts the message and its newline behind the prefix; returns the length of the line. */
static size_t line_make(char line[CLIENT_LOG_LINE_MAX], const char *format, va_list arguments)
{
	const size_t begin = PREFIX;
	const size_t room = CLIENT_LOG_LINE_MAX - begin - 1;
	int length;

	memcpy(line, prefix, begin);
	length = vsnprintf(line + begin, room, format, arguments);
	if (length < 0)
		length = 0;
	if ((size_t)length >= room) {
		length = (int)room - 1;
		memcpy(line + begin + length - 3, "...", 3);
	}
	line[begin + (size_t)length] = '\n';
	return begin + (size_t)length + 1;
}

/* Return: -1 for an unknown value */
static int level_of(const char *text)
{
	static const char *const names[] = {"off", "error", "info", "debug"};

	if (!text || !*text)
		return CLIENT_LOG_ERROR;
	for (int level = 0; level < 4; level++)
		if (!strcmp(text, names[level]))
			return level;
	return -1;
}

/* The log itself is not ready yet. */
static void complain(const char *format, ...)
{
	char line[CLIENT_LOG_LINE_MAX];
	int saved = errno;
	va_list arguments;

	va_start(arguments, format);
	file_write(STDERR_FILENO, line, line_make(line, format, arguments), FILE_HERE);
	va_end(arguments);
	errno = saved;
}

/* True if a message of this level is written. */
static bool is_enabled(enum client_log_level level)
{
	int stored = atomic_load_explicit(&threshold, memory_order_relaxed), unread = 0;

	if (!stored) {
		const char *text = getenv("FRMPS_LOG");
		int wish = level_of(text);

		stored = (wish < 0 ? CLIENT_LOG_ERROR : wish) + 1;
		if (atomic_compare_exchange_strong(&threshold, &unread, stored) && wish < 0)
			complain("FRMPS_LOG=%.64s is none of off, error, info, debug: it is ignored", text);
	}
	return (int)level < stored;
}

void client_log(enum client_log_level level, const char *format, ...)
{
	char line[CLIENT_LOG_LINE_MAX];
	int saved = errno;
	va_list arguments;
	size_t length;

	if (!is_enabled(level) && level != CLIENT_LOG_ERROR)
		return;
	va_start(arguments, format);
	length = line_make(line, format, arguments);
	va_end(arguments);
	if (level == CLIENT_LOG_ERROR)
		logbook_note(line + PREFIX, length - PREFIX - 1);
	if (is_enabled(level))
		file_write(STDERR_FILENO, line, length, FILE_HERE);
	errno = saved;
}
