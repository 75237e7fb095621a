// Children as processes: spawn with exactly the contents of struct heritage, kill, reap. Daemon,
// loop thread only.

#ifndef FRMPS_SERVER_WORKER_SUPERVISE_H
#define FRMPS_SERVER_WORKER_SUPERVISE_H

#include "server/worker/worker.h"

/* The real spawner: this program again, in another role. */
extern const struct spawner supervise_spawner;

/** Takes over the pidfd of a child of an earlier life of the daemon. */
void supervise_adopt(struct worker *worker, int pidfd);

/** True if the child was killed by the daemon. */
bool supervise_killed(const struct worker *worker);
/** The child has ended: from here on there is nothing to kill. */
void supervise_forget(struct worker *worker);

#endif
