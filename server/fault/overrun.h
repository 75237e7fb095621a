// max_kernel_seconds: sessions whose oldest command on the device does not end. What follows is
// endless.h. Daemon, loop thread only.

#ifndef FRMPS_SERVER_FAULT_OVERRUN_H
#define FRMPS_SERVER_FAULT_OVERRUN_H

#include <stdbool.h>
#include <stdint.h>

struct domain;
struct session;

/** Looks at all sessions from now on, if there is a limit. Return: 0 or -ENOMEM. */
int overrun_init(struct domain *domain);
void overrun_deinit(struct domain *domain);
/** Whether a stream of a session is over the limit, by what was seen of it before. */
bool overrun_is_over(struct session *session, uint64_t now_us, uint64_t limit_us);
/** Forgets what was seen of a session. */
void overrun_forget(struct session *session);

#endif
