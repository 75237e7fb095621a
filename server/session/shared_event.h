// What becomes of events that several programs share when one of the programs ends. Daemon, loop
// thread.

#ifndef FRMPS_SERVER_SESSION_SHARED_EVENT_H
#define FRMPS_SERVER_SESSION_SHARED_EVENT_H

#include <stdint.h>

struct holdings;

/** All work of the session is over: its records in shared events that nobody will write any more
 * are done. */
void shared_event_release(const struct holdings *holdings, uint64_t session);

#endif
