// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// The logger: formats one line in a local buffer and writes it with one call, so that lines of several
// threads and processes on the same terminal stay whole.

#include "server/log.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static struct {
	enum log_level level;
	const char *name;
	bool journal;
	int descriptor;
} logger = {.level = LOG_LEVEL_INFO, .name = "frmps", .descriptor = STDERR_FILENO};

/* The variable is inherited by everything that a service starts: it counts for the file that it names. */
static bool is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	unsigned long long device, inode;
	struct stat status;

	return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
	       fstat(STDERR_FILENO, &status) == 0 && status.st_dev == device && status.st_ino == inode;
}

void log_init(enum log_level level, const char *name)
{
	logger.level = level;
	logger.name = name;
	logger.journal = is_journal();
}

void log_set_descriptor(int fd)
{
	logger.descriptor = fd;
}

/* Bytes of the UTF-8 sequence that a text begins with; 1 where it is none. */
static size_t sequence_bytes(const unsigned char *text)
{
	size_t bytes = *text >= 0xf0 && *text <= 0xf4 ? 4 : *text >= 0xe0 ? 3 : *text >= 0xc2 ? 2 : 1;

	/* What would be longer than it need be is none. */
	if (*text > 0xf4 || (*text == 0xe0 && text[1] < 0xa0) || (*text == 0xf0 && text[1] < 0x90))
		return 1;
	for (size_t i = 1; i < bytes; i++)
		if ((text[i] & 0xc0) != 0x80)
			return 1;
	return bytes;
}

/* Those of seven bits, and those of eight: a byte, or the two that it is in UTF-8. */
static bool is_control(const unsigned char *text, size_t bytes)
{
	if (bytes == 1)
		return *text < 0x20 || *text == 0x7f || (*text & 0xe0) == 0x80;
	return *text == 0xc2 && text[1] < 0xa0;
}

void log_clean(char *text)
{
	size_t bytes;

	for (; *text; text += bytes) {
		bytes = sequence_bytes((const unsigned char *)text);
		if (is_control((const unsigned char *)text, bytes))
			memset(text, '?', bytes);
	}
}

static int write_prefix(char *at, size_t size, enum log_level level)
{
	static const char *const names[] = {"error", "warning", "info", "debug"};
	static const int priorities[] = {3, 4, 6, 7};
	struct timespec now;
	struct tm parts;
	char date[32];

	if (logger.journal)
		return snprintf(at, size, "<%d>%s: ", priorities[level], logger.name);
	clock_gettime(CLOCK_REALTIME, &now);
	localtime_r(&now.tv_sec, &parts);
	strftime(date, sizeof(date), "%F %T", &parts);
	return snprintf(at, size, "%s.%03ld %s[%d] %s: ", date, now.tv_nsec / 1000000, logger.name,
		(int)getpid(), names[level]);
}

void log_event(enum log_level level, const char *format, ...)
{
	char line[2048];
	va_list arguments;
	int length, text;

	if (level > logger.level)
		return;
	length = write_prefix(line, sizeof(line), level);
	va_start(arguments, format);
	text = vsnprintf(line + length, sizeof(line) - (size_t)length, format, arguments);
	va_end(arguments);
	if (text < 0)
		return;
	log_clean(line + length);
	length += text;
	if (length > (int)sizeof(line) - 1)
		length = (int)sizeof(line) - 1;
	line[length++] = '\n';
	/* Nobody is left to tell when standard error is gone. */
	if (write(logger.descriptor, line, (size_t)length) < 0)
		return;
}

void log_bug(const char *file, int line, const char *what)
{
	log_event(LOG_LEVEL_ERROR, "bug in %s:%d: %s", file, line, what);
	abort();
}
