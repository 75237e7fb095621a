// Device memory of a session goes to a file and comes back, for a suspended session; or to the
// stash, and from there to a file, for a session that is saved. See carry.c.

#ifndef FRMPS_SERVER_EXECUTOR_CARRY_H
#define FRMPS_SERVER_EXECUTOR_CARRY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/executor/job.h"

struct carrier;
struct executor;
struct tenant;

/* Threads that copy. */
#define CARRIERS_MAX 8u

/* Of an executor. */
struct carriers {
	pthread_mutex_t lock; /* of queue and stop */
	pthread_cond_t more;
	struct job_list queue;
	bool stop;
	struct carrier *all; /* CARRIERS_MAX; NULL before the first CarryMemory. Main thread */
	uint32_t count;
};

void carry_init(struct executor *executor);
/** Ends the threads; waiting jobs are not answered. The backend is about to be closed. */
void carry_deinit(struct executor *executor);

/** Starts the carriers. Main thread. Return: false without memory for a single one */
bool carry_prepare(struct executor *executor);

/** CarryMemory. Main thread. */
void carry_handle(struct job *job);
/** CarryStash. Main thread. */
void carry_handle_stash(struct job *job);

/** Return: true if memory of the session is being copied, and so must stay mapped. Main thread. */
bool carry_is_busy(const struct tenant *tenant);

#endif
