// Waiting, without blocking anybody, until the work of a session that is on the device now has
// ended. Main thread.

#ifndef FRMPS_SERVER_EXECUTOR_DRAIN_H
#define FRMPS_SERVER_EXECUTOR_DRAIN_H

#include "server/executor/clock.h"
#include "server/executor/job.h"

/* How much longer than the work its serving thread may take to let go of a session: one that is in
 * no call of the driver is back within microseconds. */
#define DRAIN_THREAD_NS (1000 * CLOCK_MS)

/**
 * Parks the job until everything that job->tenant has given to the device up to now is done, or the
 * patience is over; then job->drained tells which and `then` goes on with the job, on the main
 * thread. The serving thread passed the beginning of a turn in between, so it uses nothing any more
 * that was taken away before this call.
 */
void drain_begin(struct job *job, uint64_t patience_ns, void (*then)(struct job *job));

/** The serving thread was asked in vain: says whom it is with, once for each. */
void drain_say_why(struct tenant *tenant);

#endif
