// Children that were killed and do not end, because their driver holds them: looked at until they
// are reaped. Daemon, loop thread only.

#ifndef FRMPS_SERVER_WORKER_REAP_H
#define FRMPS_SERVER_WORKER_REAP_H

struct worker;

/* Looks at which the worker has come no further, one after the other, after which it does not end
 * any more. Taking apart what a process had uses processor time. So does a thread that the driver
 * holds and that asks the device's firmware again and again, but that one has not begun to end. The
 * driver's longest wait that was seen and ended is 4.8 s. */
#define REAP_LOOKS 8u

/** A worker was killed: looks at it from now on. Twice is fine. */
void reap_await(struct worker *worker);
/** Its timer, every second: one more look. It may free the worker (worker_events.stays). */
void reap_look(void *worker);

#endif
