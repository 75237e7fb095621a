// Ends the kernels of a session on the device, while the kernels of all others go on. See
// end_kernels.c.

#ifndef FRMPS_SERVER_EXECUTOR_END_KERNELS_H
#define FRMPS_SERVER_EXECUTOR_END_KERNELS_H

#include <stdbool.h>

struct executor;
struct job;

/** Return: true if the backend can end kernels. Any thread. */
bool end_kernels_can(struct executor *executor);

/**
 * Ends the kernels of job->tenant, again and again, until all commands that the session had issued
 * have ended, or the tries are used up. Then job->drained tells which, and `then` goes on with the
 * job. The session issues nothing any more. Main thread.
 * Return: false: no memory, and nothing is done
 */
bool end_kernels_begin(struct job *job, void (*then)(struct job *job));

/** Return: true if the job ended a kernel. Any thread, behind `then`. */
bool end_kernels_ended(const struct job *job);

/** EndKernels. Main thread. */
void end_kernels_handle(struct job *job);

#endif
