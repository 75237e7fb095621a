// Ending what kernels of a session are on the device, while those of all others go on. See
// end_kernels.c.

#ifndef FRMPS_SERVER_EXECUTOR_END_KERNELS_H
#define FRMPS_SERVER_EXECUTOR_END_KERNELS_H

#include <stdbool.h>

struct executor;
struct job;

/** Whether the backend can. Any thread. */
bool end_kernels_can(struct executor *executor);

/**
 * Ends the kernels of job->tenant, again and again, until nothing that it had given to the device
 * is there any more, or it has been tried for long enough. Then job->drained tells which, and
 * `then` goes on with the job. The session issues nothing any more. Main thread.
 * Return: false: no memory, and nothing is done
 */
bool end_kernels_begin(struct job *job, void (*then)(struct job *job));

/** Whether a kernel was on the device when the job did that. Any thread, behind `then`. */
bool end_kernels_ended(const struct job *job);

/** EndKernels. Main thread. */
void end_kernels_handle(struct job *job);

#endif
