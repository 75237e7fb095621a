// The logger: formats one line in a local buffer and writes it with one call, so that lines of several
// threads and processes on the same terminal stay whole.

#include "server/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
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

static struct {
	unsigned lines; /* a minute; 0: no bound */
	_Atomic uint64_t minute;
	_Atomic unsigned written, left_out;
} limit;

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

/* Decodes the UTF-8 sequence that a text begins with. Return: its bytes, 0 where it is none */
static size_t decode(const unsigned char *text, uint32_t *ret_point)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t bytes = *text < 0x80 ? 1 : *text >= 0xf0 ? 4 : *text >= 0xe0 ? 3 : 2;
	uint32_t point = bytes == 1 ? *text : *text & (0x7fu >> bytes);

	if ((*text >= 0x80 && *text < 0xc0) || *text > 0xf4)
		return 0;
	for (size_t i = 1; i < bytes; i++) {
		if ((text[i] & 0xc0) != 0x80)
			return 0;
		point = point << 6 | (text[i] & 0x3fu);
	}
	*ret_point = point;
	return point < least[bytes] || point > 0x10ffff || (point & ~0x7ffu) == 0xd800 ? 0 : bytes;
}

/* Controls of seven and of eight bits, those of the direction of writing, separators of lines and paragraphs. */
static bool is_control(uint32_t point)
{
	return point < 0x20 || (point >= 0x7f && point < 0xa0) || point == 0x61c || point == 0x200e ||
	       point == 0x200f || (point >= 0x2028 && point <= 0x202e) ||
	       (point >= 0x2066 && point <= 0x2069);
}

void log_clean(char *text)
{
	uint32_t point = 0;
	size_t bytes;

	for (; *text; text += bytes) {
		bytes = decode((const unsigned char *)text, &point);
		if (!bytes)
			*text = '?';
		else if (is_control(point))
			memset(text, '?', bytes);
		bytes += !bytes;
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

/* Return: whether the minute has a line left; *ret_left_out: lines that a minute before had not. */
static bool has_line(enum log_level level, unsigned *ret_left_out)
{
	struct timespec now;
	uint64_t minute;

	*ret_left_out = 0;
	if (!limit.lines || level == LOG_LEVEL_DEBUG)
		return true;
	clock_gettime(CLOCK_MONOTONIC, &now);
	minute = (uint64_t)now.tv_sec / 60;
	if (atomic_exchange(&limit.minute, minute) != minute) {
		atomic_store(&limit.written, 0);
		*ret_left_out = atomic_exchange(&limit.left_out, 0);
	}
	if (atomic_fetch_add(&limit.written, 1) < limit.lines)
		return true;
	atomic_fetch_add(&limit.left_out, 1);
	return false;
}

static void write_line(enum log_level level, const char *format, va_list arguments)
{
	char line[2048];
	int length, text;

	length = write_prefix(line, sizeof(line), level);
	text = vsnprintf(line + length, sizeof(line) - (size_t)length, format, arguments);
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

void log_event_list(enum log_level level, const char *format, va_list arguments)
{
	unsigned left_out;

	if (level > logger.level || !has_line(level, &left_out))
		return;
	if (left_out)
		log_warning("%u lines are left out: at most %u a minute are written", left_out, limit.lines);
	write_line(level, format, arguments);
}

void log_event(enum log_level level, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	log_event_list(level, format, arguments);
	va_end(arguments);
}

void log_limit(unsigned lines)
{
	limit.lines = lines;
}

void log_bug(const char *file, int line, const char *what)
{
	log_event(LOG_LEVEL_ERROR, "bug in %s:%d: %s", file, line, what);
	abort();
}
