// max_kernel_seconds: sessions whose oldest command on the device does not end. The daemon's
// reaction is endless.h. Daemon, loop thread only.

#ifndef FRMPS_SERVER_FAULT_TIME_LIMIT_H
#define FRMPS_SERVER_FAULT_TIME_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

struct domain;
struct session;

/** Looks at all sessions from now on, if there is a limit. Return: 0 or -ENOMEM. */
int time_limit_init(struct domain *domain);
void time_limit_deinit(struct domain *domain);
/** True if a stream of a session has passed the limit, by comparison with earlier looks. */
bool time_limit_is_over(struct session *session, uint64_t now_us, uint64_t limit_us);
/** Forgets the earlier looks at a session. */
void time_limit_forget(struct session *session);

#endif
