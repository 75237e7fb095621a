// The beginning and the end of a session in this executor. Main thread; answers later.

#ifndef FRMPS_SERVER_EXECUTOR_OPEN_H
#define FRMPS_SERVER_EXECUTOR_OPEN_H

#include "server/executor/clock.h"
#include "server/executor/job.h"

/* The end of a session lets others come between its mappings for so long: the daemon waits for
 * it. */
#define OPEN_GIVES_WAY_NS (1000 * CLOCK_MS)

struct tenant;

void open_handle(struct job *job);
void open_handle_close(struct job *job);

/** Gives everything back at once; nobody serves or uses the session, and nothing runs: it ends. */
void open_undo(struct tenant *tenant);

#endif
