// The service's log for its operator: one line per event on standard error, with wall-clock time,
// role and pid.
//
// If standard error is the journal's (JOURNAL_STREAM names it) a line starts with its priority
// instead, and the journal adds the time. A line with fields goes to the journal's socket, in the
// protocol that the journal documents for programs without its library: that library waits for a
// journal that does not read. Nobody here waits for the journal, nor for the reader of a pipe or a
// terminal: lines without room, in the pipe or on the disk, are counted, and the next line that
// finds room gives their number. All roles; any thread (one write per line).

#ifndef FRMPS_SERVER_LOG_H
#define FRMPS_SERVER_LOG_H

#include <stdarg.h>
#include <stddef.h>
#include <sys/types.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Variable with the number of a process's device, of a service with several: log_init() puts it
 * into each line, also of children. */
#define LOG_DEVICE "FRMPS_LOG_DEVICE"

/** Sets the least urgent level that is still written and the name in front of each line (static
 * string). */
void log_init(enum log_level level, const char *name);

/**
 * Makes a text from elsewhere fit for a line, a terminal and JSON: bytes that are no UTF-8, and
 * characters that could begin another line, control a terminal or turn the direction of writing,
 * become question marks. The length stays.
 */
void log_clean(char *text);

/** The daemon writes the lines of this process (log_relay()): each consists of its priority, as for
 * the journal, and its text. */
void log_be_relayed(void);

/** Where the log is written instead of standard error, for tests. */
void log_set_descriptor(int fd);

/** The journal's socket, instead of the usual path, for tests (static string). */
void log_set_journal(const char *path);

/* A property of a line, apart from the text. */
struct log_field {
	const char *name;  /* capital letters and _; the journal's name is FRMPS_ followed by this */
	const char *value; /* cleaned (log_clean()); NULL: the line has no such field */
};

/** Writes an event. Newlines belong to the logger, which cleans the text of them (log_clean()). */
void log_event(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** The same with a list of arguments. */
void log_event_list(enum log_level level, const char *format, va_list arguments)
	__attribute__((format(printf, 2, 0)));

/** The same with fields, by which the journal can be searched. Elsewhere the fields are left
 * out. */
void log_event_fields(enum log_level level, const struct log_field *fields, size_t count, const char *format,
	...) __attribute__((format(printf, 4, 5)));

/**
 * Writes a line of another process, without its newline. The level is that of a priority in front
 * (log_be_relayed()); without one it is info.
 * @name, @pid: the other process, in the place of this one
 */
void log_relay(const char *name, pid_t pid, const struct log_field *fields, size_t count, const char *text);

#define log_error(...)	 log_event(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_event(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)	 log_event(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)	 log_event(LOG_LEVEL_DEBUG, __VA_ARGS__)

/** A broken invariant of our own: names the place and aborts. Never for anything that a peer
 * sent. */
_Noreturn void log_bug(const char *file, int line, const char *what);
#define log_bug_on(condition) ((condition) ? log_bug(__FILE__, __LINE__, #condition) : (void)0)

#endif
