// See relay.h. The lock guards what has arrived; the thread's own list needs none.

#include "client/submit/relay.h"

#include <pthread.h>
#include <stdbool.h>

#include "client/link/lost.h"
#include "client/state/helper.h"
#include "client/state/session.h"
#include "client/state/uncancelled.h"
#include "client/submit/submit.h"
#include "client/submit/wait.h"

/* First and longest time between two looks. */
#define PAUSE_NS      UINT64_C(20000)
#define PAUSE_MOST_NS UINT64_C(1000000)

STAILQ_HEAD(tasks, relay_task);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrival = PTHREAD_COND_INITIALIZER;
static struct tasks arrived = STAILQ_HEAD_INITIALIZER(arrived); /* guarded by lock */
static bool runs;						/* the same */

/* Takes what has arrived; waits for some if the thread has nothing to do. Return: whether there was
 * any */
static bool take_arrived(struct tasks *tasks)
{
	bool any;

	pthread_mutex_lock(&lock);
	while (STAILQ_EMPTY(tasks) && STAILQ_EMPTY(&arrived))
		pthread_cond_wait(&arrival, &lock);
	any = !STAILQ_EMPTY(&arrived);
	STAILQ_CONCAT(tasks, &arrived);
	pthread_mutex_unlock(&lock);
	return any;
}

/* A step of each. Return: whether any moved */
static bool step_all(struct tasks *tasks)
{
	struct tasks rest = STAILQ_HEAD_INITIALIZER(rest);
	struct relay_task *task;
	bool moved = false;

	while ((task = STAILQ_FIRST(tasks))) {
		enum relay_step step;

		STAILQ_REMOVE_HEAD(tasks, next);
		step = task->step(task);
		moved |= step != RELAY_WAITS;
		if (step != RELAY_ENDS)
			STAILQ_INSERT_TAIL(&rest, task, next);
	}
	STAILQ_CONCAT(tasks, &rest);
	return moved;
}

static void *run(void *unused)
{
	struct tasks tasks = STAILQ_HEAD_INITIALIZER(tasks);
	uint64_t pause_ns = PAUSE_NS;

	for (;;) {
		bool any = take_arrived(&tasks);

		if (step_all(&tasks) || any) {
			pause_ns = PAUSE_NS;
			continue;
		}
		uncancelled_sleep(pause_ns);
		if (pause_ns < PAUSE_MOST_NS)
			pause_ns += pause_ns / 64;
	}
	return unused;
}

CUresult relay_add(struct relay_task *task)
{
	CUresult r = CUDA_SUCCESS;

	pthread_mutex_lock(&lock);
	if (!runs)
		r = helper_start(run, NULL);
	runs = runs || r == CUDA_SUCCESS;
	if (r == CUDA_SUCCESS) {
		STAILQ_INSERT_TAIL(&arrived, task, next);
		pthread_cond_signal(&arrival);
	}
	pthread_mutex_unlock(&lock);
	return r;
}

CUresult relay_look(struct relay_point *point)
{
	struct session *session = point->stream->session;
	uint32_t generation = word_acquire(&session->connection.view.server->generation);
	CUresult r;

	if (wait_is_done(point->stream, point->seq))
		return CUDA_SUCCESS;
	r = lost_glance(session);
	/* A new executor knows nothing of the wish. */
	if (r == CUDA_SUCCESS && generation != point->generation) {
		point->generation = generation;
		r = submit_mark_again(point->stream);
	}
	return r == CUDA_SUCCESS ? CUDA_ERROR_NOT_READY : r;
}
