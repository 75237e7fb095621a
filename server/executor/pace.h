// The pace of many driver calls in a row that no program waits for: the end of a session undoes
// hundreds of mappings, 13 us each, and destroys the session's streams, events and graphs. Each
// call takes the driver's mutex of the context, which launches need as well. A thread that releases
// a mutex and takes it again at once mostly wins against threads that sleep for the mutex. Hence
// rests. Any thread, but not in a gap (gate.h), for all sessions wait for its end. No rests either
// where no session launches any more, because the context is lost or halted, or may have a fault
// (contain.h): then all wait for the main thread's report, and this may be the main thread.

#ifndef FRMPS_SERVER_EXECUTOR_PACE_H
#define FRMPS_SERVER_EXECUTOR_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/clock.h"

/* Calls go on for so long before a rest; in the rest each sleeping waiter can wake up and have a
 * turn. */
#define PACE_WORK_NS (100 * CLOCK_US)
/* The longest rest, where a call has taken long itself. */
#define PACE_REST_NS CLOCK_MS

struct executor;

struct pace {
	struct executor *executor;
	uint64_t since; /* ns: when the calls since the last rest began */
	bool yields;	/* after a rest the thread does other work first */
};

void pace_begin(struct pace *pace, struct executor *executor);

/** After each call: rests for as long as the calls have taken since the last rest, if that was
 * long. Return: false: the caller is to do other work first; only where `yields` is set. */
bool pace_step(struct pace *pace);

#endif
