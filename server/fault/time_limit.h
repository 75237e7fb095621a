// max_kernel_seconds: sessions whose oldest command on the device does not end. The daemon's
// reaction is endless.h. Daemon, loop thread only.

#ifndef FRMPS_SERVER_FAULT_TIME_LIMIT_H
#define FRMPS_SERVER_FAULT_TIME_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

struct domain;
struct session;

/** The domain has an executor that serves: looks at all sessions from now on, if there is a limit.
 * Twice is fine. */
void time_limit_watch(struct domain *domain);
/** True if a stream of a session has passed the limit, by comparison with earlier looks. */
bool time_limit_is_over(struct session *session, uint64_t now_us, uint64_t limit_us);

#endif
