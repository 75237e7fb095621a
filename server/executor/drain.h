// Waits, without blocking a thread, until the session's present work on the device has ended. Main
// thread.

#ifndef FRMPS_SERVER_EXECUTOR_DRAIN_H
#define FRMPS_SERVER_EXECUTOR_DRAIN_H

#include "server/clock.h"
#include "server/executor/job.h"

/* Time for the serving thread to release a session after the end of the work: a thread that is in
 * no call of the driver needs microseconds. */
#define DRAIN_THREAD_NS (1000 * CLOCK_MS)
/* Time for the work itself, where a request removes what the work may use. */
#define DRAIN_PATIENCE_NS (UINT64_C(10000) * CLOCK_MS)

/**
 * Parks the job until all commands that job->tenant has issued up to now are done, or the patience
 * is over; then job->drained tells which and `then` goes on with the job, on the main thread. The
 * serving thread passed the beginning of a turn in between, so that thread no longer uses resources
 * that were removed before this call.
 */
void drain_begin(struct job *job, uint64_t patience_ns, void (*then)(struct job *job));

/** The same for DRAIN_PATIENCE_NS, from the module thread: `then` goes on on the main thread. */
void drain_park(struct job *job, void (*then)(struct job *job));

/** The serving thread has not answered: logs the session that has the thread, once for each. */
void drain_say_why(struct tenant *tenant);

#endif
