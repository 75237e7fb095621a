// Lines of the log that a user's programs can cause at any rate: each user has a bounded number of
// each kind a minute (userlog.def). Further lines are counted; when the minute is over, one line
// says how many there were. Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_USERLOG_H
#define FRMPS_SERVER_SESSION_USERLOG_H

#include <stdbool.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "server/log.h"

struct daemon;

enum userlog_reason {
#define USERLOG(reason, lines, about) USERLOG_##reason,
#include "server/session/userlog.def"
#undef USERLOG
	USERLOG_REASONS,
};

/* Users that have their own bounds within a minute. All further users, and users that are not
 * known, share one bound. */
#define USERLOG_USERS_MAX 256u
#define USERLOG_OTHERS	  ((uid_t)-1)

struct userlog {
	TAILQ_HEAD(, userlog_user) users; /* that have caused a line within their minute */
	unsigned user_count;
	unsigned window_ms;
};

void userlog_init(struct daemon *daemon);
/** Logs the number of lines left out so far, and forgets all users. */
void userlog_deinit(struct daemon *daemon);

/** True if the user has a line of this kind left, which is used up then; otherwise the line counts
 * as left out. */
bool userlog_allows(struct daemon *daemon, uid_t uid, enum userlog_reason reason);

/** Logs an event as log_event() does, if the user has a line of this kind left. */
void userlog_event(struct daemon *daemon, uid_t uid, enum userlog_reason reason, enum log_level level,
	const char *format, ...) __attribute__((format(printf, 5, 6)));

#endif
