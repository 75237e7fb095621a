// The end of a context.

#ifndef FRMPS_SERVER_EXECUTOR_LOST_H
#define FRMPS_SERVER_EXECUTOR_LOST_H

#include "server/executor/executor.h"

/**
 * Reports that the context is lost: stops all issuing, fills the last words, tells the daemon. Only
 * the first call does anything. Any thread.
 */
void lost_report(struct executor *executor, CUresult code);

#endif
