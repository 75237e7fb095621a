// The end of a context.

#ifndef FRMPS_SERVER_EXECUTOR_LOST_H
#define FRMPS_SERVER_EXECUTOR_LOST_H

#include "server/executor/executor.h"

/**
 * Reports that the context is lost: stops all issuing, fills the last words, tells the daemon. Only the first
 * call does anything. Any thread.
 */
void lost_report(struct executor *executor, CUresult code);

/** Whether only one session that is here can have caused a fault that shows now: nobody else has had work on the device
 * within SHM_SIGN_NS. Any thread. */
bool lost_has_one_suspect(struct executor *executor);

#endif
