// The queue of the module thread. Jobs stay in the order in which they came. A job may rest: until
// that is over it is passed over, and keeps its place. Jobs of one tenant are taken in order in any
// case, so what is behind one that rests waits, too.
//
// Any thread appends; the module thread takes, puts back and sleeps.

#ifndef FRMPS_SERVER_EXECUTOR_JOB_QUEUE_H
#define FRMPS_SERVER_EXECUTOR_JOB_QUEUE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/executor/job.h"

struct tenant;

/* Under the lock, but that anybody may read `stop`. */
struct job_queue {
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct job_list jobs; /* by place */
	uint64_t places;      /* given out so far */
	_Atomic bool stop;    /* nothing comes any more, and nothing rests */
	bool woken;	      /* who sleeps next is to look around at once */
};

void job_queue_init(struct job_queue *queue);
void job_queue_deinit(struct job_queue *queue);

/** Puts a job behind all others. Any thread. */
void job_queue_append(struct job_queue *queue, struct job *job);
/** Puts a job that was taken where it was before. It rests until job->not_before. */
void job_queue_put_back(struct job_queue *queue, struct job *job);

/** Takes the first job that does not rest; NULL: there is none. */
struct job *job_queue_take(struct job_queue *queue);
/**
 * Takes the first job that fits, whether it rests or not; NULL: there is none.
 * @except: not one of this tenant
 */
struct job *job_queue_take_fitting(
	struct job_queue *queue, bool (*fits)(const struct job *job), const struct tenant *except);

/** Whether something is in it that does not rest. Any thread. */
bool job_queue_is_wanted(struct job_queue *queue);
/** Whether there is one to be taken like that. */
bool job_queue_has(struct job_queue *queue, bool (*fits)(const struct job *job), const struct tenant *except);
/** Since when the first waits that does not rest, ns; 0: there is none, or nobody can tell at once.
 * Any thread. */
uint64_t job_queue_waits_since(struct job_queue *queue, uint64_t now);

/** The end: what is in it is still to be taken. Any thread. */
void job_queue_stop(struct job_queue *queue);

/** Lets who sleeps look around. Any thread. */
void job_queue_wake(struct job_queue *queue);
/**
 * Sleeps until there is something to take, or somebody wakes.
 * @at: ns: not for longer; UINT64_MAX: as long as it takes
 * Return: false at the end: it is empty, and stays so
 */
bool job_queue_sleep(struct job_queue *queue, uint64_t at);

#endif
