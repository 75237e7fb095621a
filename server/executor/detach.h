// A session goes on in another executor, while this executor goes on serving the others. See
// detach.c. Main thread; answers later.

#ifndef FRMPS_SERVER_EXECUTOR_DETACH_H
#define FRMPS_SERVER_EXECUTOR_DETACH_H

#include "server/executor/job.h"

/** DetachSession. */
void detach_handle(struct job *job);

#endif
