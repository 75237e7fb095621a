// Serving threads that do not come back from the driver, and shall do nothing more. See park.c.

#ifndef FRMPS_SERVER_EXECUTOR_PARK_H
#define FRMPS_SERVER_EXECUTOR_PARK_H

#include <stdbool.h>

struct serve_thread;

/** Before it serves. Serving thread. */
void park_enter(struct serve_thread *thread);

/**
 * Stops the thread where it is, for good, in the middle of anything; the process can only be ended
 * then. Does not wait: to be asked again until it is so. Main thread.
 * Return: whether it will never execute an instruction of its own again.
 */
bool park_thread(struct serve_thread *thread);

#endif
