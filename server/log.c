// The logger: formats a line in a local buffer and writes the line with one call, so that lines of
// several threads and processes on the same terminal stay whole.

#include "server/log.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static struct {
	enum log_level level;
	char name[48];
	bool journal;
	bool relayed;	    /* the daemon writes this process's lines */
	const char *socket; /* of the journal */
	int descriptor;
	_Atomic unsigned lost; /* lines that nobody has taken */
} logger = {.level = LOG_LEVEL_INFO,
	.name = "frmps",
	.socket = "/run/systemd/journal/socket",
	.descriptor = STDERR_FILENO};

/* By level, with the numbers of syslog(3). */
static const int priorities[] = {3, 4, 6, 7};

/* Everything that a service starts inherits the variable, which counts only for the file that the
 * variable names. */
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
	const char *device = getenv(LOG_DEVICE);

	logger.level = level;
	logger.relayed = false;
	snprintf(logger.name, sizeof(logger.name), "%s%s%.8s", name, device ? ", device " : "",
		device ? device : "");
	logger.journal = is_journal();
}

void log_be_relayed(void)
{
	logger.relayed = true;
}

void log_set_journal(const char *path)
{
	logger.socket = path;
}

void log_set_descriptor(int fd)
{
	logger.descriptor = fd;
}

/* Decodes the UTF-8 sequence at the beginning of a text. Return: its bytes, 0 if invalid */
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

/* Controls of seven and of eight bits, those of the direction of writing, separators of lines and
 * paragraphs. */
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

/* The writer of a line. */
struct writer {
	const char *name;
	pid_t pid;
};

static int write_prefix(char *at, size_t size, enum log_level level, const struct writer *writer)
{
	static const char *const names[] = {"error", "warning", "info", "debug"};
	struct timespec now;
	struct tm parts;
	char date[32];

	if (logger.relayed)
		return snprintf(at, size, "<%d>", priorities[level]);
	if (logger.journal)
		return snprintf(at, size, "<%d>%s: ", priorities[level], writer->name);
	clock_gettime(CLOCK_REALTIME, &now);
	localtime_r(&now.tv_sec, &parts);
	strftime(date, sizeof(date), "%F %T", &parts);
	return snprintf(at, size, "%s.%03ld %s[%d] %s: ", date, now.tv_nsec / 1000000, writer->name,
		(int)writer->pid, names[level]);
}

/* Destination of a line. */
struct line {
	struct writer writer;
	const struct log_field *fields;
	size_t field_count;
	size_t prefix; /* bytes before the text */
	size_t length; /* with the newline */
	char text[2048];
};

/* Room for fields and text. */
struct datagram {
	size_t length;
	char bytes[4096];
};

/* A field; the value is free of newlines and ends with a newline. A field without room is left
 * out. */
static void add_field(struct datagram *datagram, const char *prefix, const char *name, const char *value)
{
	char *at = datagram->bytes + datagram->length;
	size_t room = sizeof(datagram->bytes) - datagram->length;
	int length = snprintf(at, room, "%s%s=%s", prefix, name, value);

	if (length < 0 || (size_t)length + 1 > room)
		return;
	log_clean(at);
	at[length] = '\n';
	datagram->length += (size_t)length + 1;
}

/* Return: true if the journal has the line with its fields */
static bool send_fields(enum log_level level, const struct line *line)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct datagram datagram = {0};
	char text[sizeof(line->text)], number[2] = {(char)('0' + priorities[level])};
	ssize_t sent;
	int fd;

	if (!logger.journal || !line->field_count || strlen(logger.socket) >= sizeof(address.sun_path))
		return false;
	strcpy(address.sun_path, logger.socket);
	snprintf(text, sizeof(text), "%s: %.*s", line->writer.name, (int)(line->length - line->prefix - 1),
		line->text + line->prefix);
	add_field(&datagram, "", "PRIORITY", number);
	add_field(&datagram, "", "SYSLOG_IDENTIFIER", "frmps-server");
	add_field(&datagram, "", "MESSAGE", text);
	for (size_t i = 0; i < line->field_count; i++)
		if (line->fields[i].value)
			add_field(&datagram, "FRMPS_", line->fields[i].name, line->fields[i].value);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return false;
	sent = sendto(fd, datagram.bytes, datagram.length, MSG_NOSIGNAL, (struct sockaddr *)&address,
		sizeof(address));
	close(fd);
	return sent >= 0;
}

/* Return: false without room: nobody reads, or the disk is full */
static bool write_stream(const struct line *line)
{
	struct pollfd wait = {.fd = logger.descriptor, .events = POLLOUT};

	if (send(logger.descriptor, line->text, line->length, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		return true;
	if (errno == ENOTSOCK) {
		if (poll(&wait, 1, 0) == 0)
			return false;
		if (write(logger.descriptor, line->text, line->length) >= 0)
			return true;
	}
	/* Nobody is left to notify when standard error is gone. */
	return errno != EAGAIN && errno != ENOSPC;
}

static bool write_line(enum log_level level, struct line *line, const char *format, va_list arguments)
{
	int prefix = write_prefix(line->text, sizeof(line->text), level, &line->writer), text;

	line->prefix = (size_t)prefix;
	text = vsnprintf(line->text + prefix, sizeof(line->text) - line->prefix, format, arguments);
	if (text < 0)
		return true;
	log_clean(line->text + prefix);
	line->length = line->prefix + (size_t)text;
	if (line->length > sizeof(line->text) - 1)
		line->length = sizeof(line->text) - 1;
	line->text[line->length++] = '\n';
	return send_fields(level, line) || write_stream(line);
}

static struct writer self(void)
{
	return (struct writer){.name = logger.name, .pid = getpid()};
}

static bool write_words(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool write_words(enum log_level level, const char *format, ...)
{
	struct line line = {.writer = self()};
	va_list arguments;
	bool written;

	va_start(arguments, format);
	written = write_line(level, &line, format, arguments);
	va_end(arguments);
	return written;
}

static void write_event(enum log_level level, struct line *line, const char *format, va_list arguments)
{
	unsigned lost;

	if (level > logger.level)
		return;
	lost = atomic_exchange(&logger.lost, 0);
	if (lost && !write_words(LOG_LEVEL_WARNING, "%u lines are lost: there was no room for them", lost))
		atomic_fetch_add(&logger.lost, lost);
	if (!write_line(level, line, format, arguments))
		atomic_fetch_add(&logger.lost, 1);
}

void log_event_list(enum log_level level, const char *format, va_list arguments)
{
	struct line line = {.writer = self()};

	write_event(level, &line, format, arguments);
}

void log_event_fields(
	enum log_level level, const struct log_field *fields, size_t count, const char *format, ...)
{
	struct line line = {.writer = self(), .fields = fields, .field_count = count};
	va_list arguments;

	va_start(arguments, format);
	write_event(level, &line, format, arguments);
	va_end(arguments);
}

static void write_relayed(enum log_level level, struct line *line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void write_relayed(enum log_level level, struct line *line, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	write_event(level, line, format, arguments);
	va_end(arguments);
}

/* Takes a priority off a line's front. */
static enum log_level take_level(const char **text)
{
	const char *at = *text;

	if (at[0] == '<' && at[1] && at[2] == '>')
		for (unsigned i = 0; i < sizeof(priorities) / sizeof(*priorities); i++)
			if (at[1] == '0' + priorities[i]) {
				*text = at + 3;
				return (enum log_level)i;
			}
	return LOG_LEVEL_INFO;
}

void log_relay(const char *name, pid_t pid, const struct log_field *fields, size_t count, const char *text)
{
	struct line line = {.writer = {.name = name, .pid = pid}, .fields = fields, .field_count = count};
	enum log_level level = take_level(&text);

	write_relayed(level, &line, "%s", text);
}

void log_event(enum log_level level, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	log_event_list(level, format, arguments);
	va_end(arguments);
}

void log_bug(const char *file, int line, const char *what)
{
	log_event(LOG_LEVEL_ERROR, "bug in %s:%d: %s", file, line, what);
	abort();
}
