// A session goes on in another executor, while this executor goes on serving the others. See
// detach.c. Main thread; answers later.

#ifndef FRMPS_SERVER_EXECUTOR_DETACH_H
#define FRMPS_SERVER_EXECUTOR_DETACH_H

#include "server/executor/job.h"

/** DetachSession. */
void detach_handle(struct job *job);

/** The session was let go, and no executor has served it since: this one goes on serving it. The
 * caller gives it to a serving thread. Return: false: nothing of that is true */
bool detach_undo(struct tenant *tenant, uint32_t generation);

#endif
