// Jobs and the board of parked ones. See job.h for the owners of a job.

#include "server/executor/job.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "server/clock.h"
#include "server/executor/tenant.h"
#include "server/log.h"

struct job *job_new(struct executor *executor)
{
	/* The packet is large and written by the receiver: only the fields before the message are
	 * cleared. */
	struct job *job = malloc(sizeof(*job));

	if (!job)
		return NULL;
	memset(job, 0, offsetof(struct job, message));
	job->executor = executor;
	job->message.type = WIRE_NONE;
	job->packet.fd_count = 0;
	return job;
}

struct job *job_free(struct job *job)
{
	if (!job)
		return NULL;
	packet_close_fds(&job->packet);
	tenant_unref(job->tenant);
	free(job->snapshot);
	if (job->drop)
		job->drop(job);
	free(job);
	return NULL;
}

static void send(struct job *job, const struct wire_reply *reply)
{
	struct wire_message message = {
		.type = WIRE_REPLY, .id = job->message.id, .session = job->message.session, .reply = *reply};

	/* A standby answers the same request; a fault of another session is no answer to this
	 * client. */
	if (!executor_is_lost(job->executor))
		executor_send(job->executor, &message);
}

void job_reply_with(struct job *job, const struct wire_reply *reply)
{
	if (!job->answered)
		send(job, reply);
	job_free(job);
}

void job_answer_early(struct job *job, CUresult code)
{
	struct wire_reply reply = {.code = code};

	if (!job->answered)
		send(job, &reply);
	job->answered = true;
}

void job_reply(struct job *job, CUresult code, const uint64_t *values, uint32_t count, const char *text)
{
	struct wire_reply reply = {.code = code, .values = {values, count}, .text = text};

	job_reply_with(job, &reply);
}

int job_board_init(struct job_board *board)
{
	TAILQ_INIT(&board->arrivals);
	TAILQ_INIT(&board->parked);
	pthread_mutex_init(&board->lock, NULL);
	board->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return board->kick < 0 ? -errno : 0;
}

static void drop_all(struct job_list *list)
{
	struct job *job;

	while ((job = TAILQ_FIRST(list))) {
		TAILQ_REMOVE(list, job, link);
		job_free(job);
	}
}

void job_board_deinit(struct job_board *board)
{
	drop_all(&board->arrivals);
	drop_all(&board->parked);
	pthread_mutex_destroy(&board->lock);
	if (board->kick >= 0)
		close(board->kick);
	board->kick = -1;
}

void job_park(struct job *job, int (*step)(struct job *job))
{
	struct job_board *board = &job->executor->board;

	job->step = step;
	job->since = clock_now();
	pthread_mutex_lock(&board->lock);
	TAILQ_INSERT_TAIL(&board->arrivals, job, link);
	pthread_mutex_unlock(&board->lock);
	job_board_kick(board);
}

static void take_arrivals(struct job_board *board)
{
	uint64_t count;

	if (read(board->kick, &count, sizeof(count)) < 0 && errno != EAGAIN)
		log_error("cannot read the main thread's eventfd: %m");
	pthread_mutex_lock(&board->lock);
	TAILQ_CONCAT(&board->parked, &board->arrivals, link);
	pthread_mutex_unlock(&board->lock);
}

int64_t job_board_step(struct job_board *board, uint64_t now)
{
	struct job *job, *next;
	int64_t wait = -1;

	take_arrivals(board);
	for (job = TAILQ_FIRST(&board->parked); job; job = next) {
		int64_t interval = (int64_t)(clock_interval(job->since, now) / CLOCK_US);

		next = TAILQ_NEXT(job, link);
		TAILQ_REMOVE(&board->parked, job, link);
		if (job->step(job) != JOB_E_WAIT)
			continue;
		if (next)
			TAILQ_INSERT_BEFORE(next, job, link);
		else
			TAILQ_INSERT_TAIL(&board->parked, job, link);
		if (wait < 0 || interval < wait)
			wait = interval;
	}
	return wait;
}
