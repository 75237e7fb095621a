// The beginning and the end of a session in this executor. Main thread; answers later.

#ifndef FRMPS_SERVER_EXECUTOR_OPEN_H
#define FRMPS_SERVER_EXECUTOR_OPEN_H

#include "server/executor/job.h"

struct tenant;

void open_handle(struct job *job);
void open_handle_close(struct job *job);

/** Gives everything back at once; nobody serves or uses the session, and nothing runs: it ends. */
void open_undo(struct tenant *tenant);

#endif
