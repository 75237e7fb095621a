// Stops serving threads for good that do not return from the driver. See park.c.

#ifndef FRMPS_SERVER_EXECUTOR_PARK_H
#define FRMPS_SERVER_EXECUTOR_PARK_H

#include <stdbool.h>

struct serve_thread;

/** Before the thread serves. Serving thread. */
void park_enter(struct serve_thread *thread);

/**
 * Stops the thread where it is, for good, in the middle of anything; then the process can only be
 * ended. Does not wait: call again until true. Main thread.
 * Return: true if the thread will never execute an instruction of its own again.
 */
bool park_thread(struct serve_thread *thread);

#endif
