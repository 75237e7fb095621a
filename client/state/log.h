// The library's log: a line on standard error per message, "frmps: ...". The environment sets the
// level:
//
//   FRMPS_LOG=off     nothing
//   FRMPS_LOG=error   refusals and failures (the default)
//   FRMPS_LOG=info    also connects, recoveries, verdicts
//   FRMPS_LOG=debug   also details of single calls
//
// The library reads the variable at the first message; later changes have no effect. For any other
// value a line says that it is ignored. Standard output is never written. Refusals and failures are
// also kept for the program, whatever the level (logbook.h).

#ifndef FRMPS_CLIENT_STATE_LOG_H
#define FRMPS_CLIENT_STATE_LOG_H

#include <stdbool.h>

enum client_log_level {
	CLIENT_LOG_ERROR = 1,
	CLIENT_LOG_INFO = 2,
	CLIENT_LOG_DEBUG = 3,
};

/* Longest line with its newline; a longer message is cut and ends in "...". */
#define CLIENT_LOG_LINE_MAX 512

/*
 * Writes a line; `format` has no prefix and no newline. Any thread; takes no lock, allocates
 * nothing, keeps errno. A single write(2) writes the line, so lines of several threads do not mix.
 * A full or closed stderr loses the line.
 */
void client_log(enum client_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
