// How fast many calls of the driver follow one another that nobody waits for: the end of a session
// undoes hundreds of mappings, 13 us each, and destroys its streams, events and graphs. Each call
// takes the driver's mutex of the context, which launches need as well, and who gives a mutex back
// and takes it again at once is mostly there before anybody who sleeps for it has woken up. So
// there are rests. Any thread, but not in a gap (gate.h), in which everybody waits for the end.
// There are none either where nobody launches anything any more, because the context is lost or
// halted, or may have a fault (contain.h): then everybody waits for what the main thread has to say
// of that, and it may be the one that is here.

#ifndef FRMPS_SERVER_EXECUTOR_PACE_H
#define FRMPS_SERVER_EXECUTOR_PACE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/executor/clock.h"

/* Calls go on for so long before a rest; then each waiter, who sleeps by then, can wake up and have
 * its turn. */
#define PACE_WORK_NS (100 * CLOCK_US)
/* The longest rest, where a call has taken long itself. */
#define PACE_REST_NS CLOCK_MS

struct executor;

struct pace {
	struct executor *executor;
	uint64_t since; /* ns: when the calls since the last rest began */
	bool yields;	/* after a rest its thread does what else there is, first */
};

void pace_begin(struct pace *pace, struct executor *executor);

/** After each call: rests for as long as the calls have taken since the last rest, if that was
 * long. Return: false: the caller is to do something else first; only where `yields` is set. */
bool pace_step(struct pace *pace);

#endif
