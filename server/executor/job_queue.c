// See job_queue.h.

#include "server/executor/job_queue.h"

#include <time.h>

#include "server/clock.h"
#include "server/executor/tenant.h"

void job_queue_init(struct job_queue *queue)
{
	pthread_condattr_t monotonic;

	TAILQ_INIT(&queue->jobs);
	pthread_mutex_init(&queue->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&queue->more, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

void job_queue_deinit(struct job_queue *queue)
{
	pthread_cond_destroy(&queue->more);
	pthread_mutex_destroy(&queue->lock);
}

/* ---- looking; all under the lock ---- */

static bool is_first_of_tenant(const struct job_queue *queue, const struct job *job)
{
	const struct job *earlier;

	TAILQ_FOREACH (earlier, &queue->jobs, link) {
		if (earlier == job)
			return true;
		if (earlier->tenant == job->tenant)
			return false;
	}
	return false;
}

/* A session that ends waits for nothing any more. */
static bool is_resting(const struct job_queue *queue, const struct job *job, uint64_t now)
{
	return now < job->not_before && !queue->stop && !(job->tenant && job->tenant->closing);
}

/* NULL: there is none. */
static struct job *find_due(const struct job_queue *queue, uint64_t now)
{
	struct job *job;

	TAILQ_FOREACH (job, &queue->jobs, link)
		if (!is_resting(queue, job, now) && is_first_of_tenant(queue, job))
			return job;
	return NULL;
}

static struct job *find_fitting(
	const struct job_queue *queue, bool (*fits)(const struct job *job), const struct tenant *except)
{
	struct job *job;

	TAILQ_FOREACH (job, &queue->jobs, link)
		if (job->tenant != except && fits(job) && is_first_of_tenant(queue, job))
			return job;
	return NULL;
}

/* Return: ns: when a job is to be tried again; UINT64_MAX: none rests */
static uint64_t end_of_rest(const struct job_queue *queue)
{
	const struct job *job;
	uint64_t at = UINT64_MAX;

	TAILQ_FOREACH (job, &queue->jobs, link)
		if (job->not_before < at && is_first_of_tenant(queue, job))
			at = job->not_before;
	return at;
}

/* ---- in and out ---- */

void job_queue_append(struct job_queue *queue, struct job *job)
{
	pthread_mutex_lock(&queue->lock);
	job->place = ++queue->places;
	TAILQ_INSERT_TAIL(&queue->jobs, job, link);
	pthread_mutex_unlock(&queue->lock);
	pthread_cond_signal(&queue->more);
}

void job_queue_put_back(struct job_queue *queue, struct job *job)
{
	struct job *later;

	pthread_mutex_lock(&queue->lock);
	TAILQ_FOREACH (later, &queue->jobs, link)
		if (later->place > job->place)
			break;
	if (later)
		TAILQ_INSERT_BEFORE(later, job, link);
	else
		TAILQ_INSERT_TAIL(&queue->jobs, job, link);
	pthread_mutex_unlock(&queue->lock);
}

static struct job *take(struct job_queue *queue, struct job *job)
{
	if (job)
		TAILQ_REMOVE(&queue->jobs, job, link);
	return job;
}

struct job *job_queue_take(struct job_queue *queue)
{
	struct job *job;

	pthread_mutex_lock(&queue->lock);
	job = take(queue, find_due(queue, clock_now()));
	pthread_mutex_unlock(&queue->lock);
	return job;
}

struct job *job_queue_take_fitting(
	struct job_queue *queue, bool (*fits)(const struct job *job), const struct tenant *except)
{
	struct job *job;

	pthread_mutex_lock(&queue->lock);
	job = take(queue, find_fitting(queue, fits, except));
	pthread_mutex_unlock(&queue->lock);
	return job;
}

/* ---- questions ---- */

bool job_queue_is_wanted(struct job_queue *queue)
{
	bool wanted;

	pthread_mutex_lock(&queue->lock);
	wanted = find_due(queue, clock_now());
	pthread_mutex_unlock(&queue->lock);
	return wanted;
}

bool job_queue_has(struct job_queue *queue, bool (*fits)(const struct job *job), const struct tenant *except)
{
	bool has;

	pthread_mutex_lock(&queue->lock);
	has = find_fitting(queue, fits, except);
	pthread_mutex_unlock(&queue->lock);
	return has;
}

uint64_t job_queue_waits_since(struct job_queue *queue, uint64_t now)
{
	const struct job *job;
	uint64_t since;

	if (pthread_mutex_trylock(&queue->lock))
		return 0;
	job = find_due(queue, now);
	since = job ? job->since : 0;
	pthread_mutex_unlock(&queue->lock);
	return since;
}

/* ---- sleep and end ---- */

void job_queue_stop(struct job_queue *queue)
{
	pthread_mutex_lock(&queue->lock);
	queue->stop = true;
	pthread_mutex_unlock(&queue->lock);
	pthread_cond_signal(&queue->more);
}

void job_queue_wake(struct job_queue *queue)
{
	pthread_mutex_lock(&queue->lock);
	queue->woken = true;
	pthread_mutex_unlock(&queue->lock);
	pthread_cond_signal(&queue->more);
}

static void sleep_until(struct job_queue *queue, uint64_t at)
{
	struct timespec until = {.tv_sec = (time_t)(at / 1000000000u), .tv_nsec = (long)(at % 1000000000u)};

	if (at == UINT64_MAX)
		pthread_cond_wait(&queue->more, &queue->lock);
	else
		pthread_cond_timedwait(&queue->more, &queue->lock, &until);
}

bool job_queue_sleep(struct job_queue *queue, uint64_t at)
{
	uint64_t rested;
	bool goes_on;

	pthread_mutex_lock(&queue->lock);
	goes_on = !queue->stop || !TAILQ_EMPTY(&queue->jobs);
	if (!queue->stop && !queue->woken && !find_due(queue, clock_now())) {
		rested = end_of_rest(queue);
		sleep_until(queue, rested < at ? rested : at);
	}
	queue->woken = false;
	pthread_mutex_unlock(&queue->lock);
	return goes_on;
}
