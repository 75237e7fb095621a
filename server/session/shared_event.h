// Events that several programs share, when a program ends. Daemon, loop thread.

#ifndef FRMPS_SERVER_SESSION_SHARED_EVENT_H
#define FRMPS_SERVER_SESSION_SHARED_EVENT_H

#include <stdint.h>

struct holdings;

/** All work of the session is over: marks its records in shared events as done, since nobody will
 * write them any more. */
void shared_event_release(const struct holdings *holdings, uint64_t session);

#endif
