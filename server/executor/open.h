// The beginning and the end of a session in this executor. Main thread; answers later.

#ifndef FRMPS_SERVER_EXECUTOR_OPEN_H
#define FRMPS_SERVER_EXECUTOR_OPEN_H

#include "server/clock.h"
#include "server/executor/job.h"

/* The end of a session lets other requests come between its unmappings for so long: the daemon
 * waits for the end. */
#define OPEN_GIVES_WAY_NS (1000 * CLOCK_MS)

struct tenant;

void open_handle(struct job *job);
void open_handle_close(struct job *job);

/** Releases all resources at once: the session is not served or used, nothing runs, and the
 * executor ends. */
void open_undo(struct tenant *tenant);

#endif
