// The queue of the module thread. Jobs stay in the order in which they came. A job may rest: the
// queue then passes over the job, which keeps its place. Jobs of a tenant are always taken in
// order, so jobs behind a resting job of the same tenant wait, too.
//
// Any thread appends; the module thread takes, puts back and sleeps.

#ifndef FRMPS_SERVER_EXECUTOR_JOB_QUEUE_H
#define FRMPS_SERVER_EXECUTOR_JOB_QUEUE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/executor/job.h"

struct tenant;

/* Under the lock, but any thread may read `stop`. */
struct job_queue {
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct job_list jobs; /* by place */
	uint64_t places;      /* places given out so far */
	_Atomic bool stop;    /* no job comes any more, and none rests */
	bool woken;	      /* the next sleep returns at once */
};

void job_queue_init(struct job_queue *queue);
void job_queue_deinit(struct job_queue *queue);

/** Puts a job behind all others. Any thread. */
void job_queue_append(struct job_queue *queue, struct job *job);
/** Puts a taken job back in its former place. The job rests until job->not_before. */
void job_queue_put_back(struct job_queue *queue, struct job *job);

/** Takes the first job that does not rest; NULL: no such job. */
struct job *job_queue_take(struct job_queue *queue);
/**
 * Takes the first job that fits, resting or not; NULL: no such job.
 * @except: no job of this tenant
 */
struct job *job_queue_take_fitting(
	struct job_queue *queue, bool (*fits)(const struct job *job), const struct tenant *except);

/** Return: true if there is a job that does not rest. Any thread. */
bool job_queue_is_wanted(struct job_queue *queue);
/** Return: true if job_queue_take_fitting() would find a job. */
bool job_queue_has(struct job_queue *queue, bool (*fits)(const struct job *job), const struct tenant *except);
/** Return: start of the wait of the first job that does not rest, ns; 0: no such job, or the lock
 * is taken. Any thread. */
uint64_t job_queue_waits_since(struct job_queue *queue, uint64_t now);

/** Begins the end: jobs in the queue are still to be taken. Any thread. */
void job_queue_stop(struct job_queue *queue);

/** Ends the module thread's sleep. Any thread. */
void job_queue_wake(struct job_queue *queue);
/**
 * Sleeps until there is a job to take, or job_queue_wake().
 * @at: ns: end of the sleep at the latest; UINT64_MAX: none
 * Return: false at the end: the queue is empty, and stays so
 */
bool job_queue_sleep(struct job_queue *queue, uint64_t at);

#endif
