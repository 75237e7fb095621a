// The compile threads: what the driver's compiler and device linker do for clients (load.c,
// linker.c). That takes seconds at times and holds up nobody on the device, so it shall hold up
// nobody here either.
//
//   - jobs of one session run in their order and one at a time: a client has one thread at most
//   - `limit` threads compile at a time. What is compiled for a session that ends cannot be cut
//     short, but it is answered for at once, does not count any more, and is thrown away. What has
//     not begun goes with the session
//   - there are never more than COMPILER_THREADS_MAX; they are made when there is work for them
//
// A job that is queued when the executor ends is dropped, one that is compiled is waited for.

#ifndef FRMPS_SERVER_EXECUTOR_COMPILER_H
#define FRMPS_SERVER_EXECUTOR_COMPILER_H

#include <pthread.h>
#include <stdbool.h>

#include "server/executor/job.h"

#define COMPILER_THREADS_MAX 32u

struct compiler_thread {
	pthread_t thread;
	struct executor *executor;
	struct tenant *tenant; /* a reference: whose job it runs; NULL: it waits for one */
	struct job *job;       /* which others may answer; NULL: none */
};

struct compiler {
	pthread_mutex_t lock; /* of all of it */
	pthread_cond_t more;
	struct job_list queue;
	struct compiler_thread threads[COMPILER_THREADS_MAX];
	unsigned count, limit;
	bool stop;
};

void compiler_init(struct executor *executor);
/** Ends the threads. What they have done goes its way, so whoever takes it must still be there. */
void compiler_stop(struct executor *executor);
/** Behind that, when nobody queues anything any more. */
void compiler_deinit(struct executor *executor);

/** Lets a compile thread run job->run, which calls compiler_release(), unless the context is lost
 * then. Any thread. Return: false if there are no threads; the job stays the caller's. */
bool compiler_queue(struct job *job);

/** In job->run, when the work is done and before the job is answered or passed on. */
void compiler_release(struct job *job);

/** The session begins to close: nobody waits for what is compiled for it. */
void compiler_forget(struct tenant *tenant);

#endif
