// The shim's voice: one line on stderr per message, "frmps: ...". How much is said is the
// environment's choice:
//
//   FRMPS_LOG=off     nothing
//   FRMPS_LOG=error   refusals and failures (the default)
//   FRMPS_LOG=info    also connects, recoveries, verdicts
//   FRMPS_LOG=debug   also details of single calls
//
// The variable is read at the first message and stays as it was then; of any other value one line
// says that it is ignored. stdout is never written. Refusals and
// failures are kept for the program as well, whatever it says (logbook.h).

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

/* Would a message of this level be written? For callers whose arguments cost something to make. Any
 * thread.
 */
bool client_log_enabled(enum client_log_level level);

/*
 * Writes one line; `format` has no prefix and no newline. Any thread; takes no lock, allocates
 * nothing, keeps errno. The line goes out in one write(2), so lines of several threads do not mix.
 * A full or closed stderr loses the line.
 */
void client_log(enum client_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
