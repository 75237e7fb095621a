// Children that were killed and do not end, because their driver holds them: the daemon looks at
// them until they are reaped. Daemon, loop thread only.

#ifndef FRMPS_SERVER_WORKER_REAP_H
#define FRMPS_SERVER_WORKER_REAP_H

struct worker;

/* After so many looks in a row without progress, the worker counts as one that does not end. Taking
 * apart a process's resources uses processor time. So does a thread that the driver holds and that
 * polls the device's firmware, but such a thread has not begun to end. The driver's longest wait
 * that was seen and ended is 4.8 s. */
#define REAP_LOOKS 8u

/** A worker was killed: starts the looks. Twice is fine. */
void reap_await(struct worker *worker);
/** The worker's timer, every second: another look (WORKER_DUE_STAYS). */
void reap_look(void *worker);

#endif
