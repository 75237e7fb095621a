// The standard output and error of an executor, which programs' code may write to as well: a pipe
// brings the lines to the daemon, which logs so many a minute with the executor's user. The
// executor never waits for the daemon: lines without room in the pipe are lost. The pipe outlives
// the daemon. Daemon, loop thread only.

#ifndef FRMPS_SERVER_WORKER_OUTPUT_H
#define FRMPS_SERVER_WORKER_OUTPUT_H

struct worker;

/* Lines a minute of one executor; at the log level debug OUTPUT_LINES_DEBUG. */
#define OUTPUT_LINES	   600u
#define OUTPUT_LINES_DEBUG 60000u

/** Makes the pipe of a worker that starts. @ret_fd: for the worker to inherit. Return: 0 or
 * -errno */
int output_make(struct worker *worker, int *ret_fd);
/** Listens again in another life of the daemon. @fd: taken over */
void output_watch(struct worker *worker, int fd);
/** Logs what an executor that has ended has left in the pipe. */
void output_drain(struct worker *worker);
void output_free(struct worker *worker);

#endif
