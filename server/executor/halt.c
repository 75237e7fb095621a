// Halt: nothing is issued any more, and the daemon can rely on that while this process still lives.
//
//   main thread      writes EXECUTOR_HALTED into executor->lost, which every thread looks at before
//                    each command, and wakes the serving threads
//   serving threads  finish their current call; at the beginning of the next turn they put a mark
//                    behind all unmarked commands, and write `halted`. From then on they touch no
//                    word that a client or a later executor reads
//   main thread      answers when all have written `halted`: journals and states stand still, and
//                    the timelines change only by marks of the device. Then the main thread asks
//                    the driver from time to time, because no other thread does any more: so a
//                    context that has faulted is noticed at last (Lost)
//
// A context that is lost already gets no last marks: the driver takes none.
//
// With a fence: when all serving threads have written `halted`, or stand still for good (park.c),
// the backend takes the process off the device as well. Then the timelines do not change either,
// and no write of this context can land any more, whatever was running.

#include "server/executor/halt.h"

#include <sys/epoll.h>

#include "server/clock.h"
#include "server/executor/park.h"
#include "server/executor/retire.h"
#include "server/executor/tenant.h"
#include "server/executor/timing.h"
#include "shm/order.h"

/* Time for serving threads to pass by themselves before a fence. */
#define PASS_NS (5 * CLOCK_MS)

void halt_pass(struct serve_thread *thread)
{
	struct executor *executor = thread->executor;
	struct tenant *tenant;

	TAILQ_FOREACH (tenant, &thread->tenants, served_link) {
		retire_mark_last(tenant);
		timing_finish(tenant);
		/* The next executor listens to the same doorbell: an executor that takes a ring off
		 * the doorbell leaves the other asleep. */
		epoll_ctl(thread->epoll, EPOLL_CTL_DEL, tenant->doorbell, NULL);
	}
	/* Pairs with the acquire in all_passed(). */
	word_release(&thread->halted, 1);
	job_board_kick(&executor->board);
}

/* A stream of the session to ask about the context: with work if possible. */
static struct backend_stream *find_stream(struct tenant *tenant)
{
	struct stream *stream;

	if (!word_relaxed(&tenant->generation))
		return NULL;
	TAILQ_FOREACH (stream, &tenant->watched, watch)
		if (stream->backend)
			return stream->backend;
	for (uint32_t slot = 0; slot < word_acquire(&tenant->slots); slot++)
		if (tenant->streams[slot].backend)
			return tenant->streams[slot].backend;
	return NULL;
}

/* Return: whether the context is known to be lost. */
static bool ask_driver(struct executor *executor)
{
	struct tenant *tenant;

	/* Serving threads have released their sessions: the acquires in all_passed(). */
	TAILQ_FOREACH (tenant, &executor->tenants, link) {
		struct backend_stream *stream = find_stream(tenant);

		if (stream)
			executor_code(executor, executor->ops->stream_query(stream));
		if (!executor_is_halted(executor))
			return true;
	}
	return false;
}

/* Publishes the times of work that was on the device when the threads passed. */
static void publish_times(struct executor *executor)
{
	struct tenant *tenant;

	TAILQ_FOREACH (tenant, &executor->tenants, link)
		timing_turn(tenant);
}

static int watch(struct job *job)
{
	if (!job->executor->fenced && executor_is_halted(job->executor) && !ask_driver(job->executor)) {
		publish_times(job->executor);
		return JOB_E_WAIT;
	}
	job_free(job);
	return 0;
}

/* Before a fence, threads in a call of the driver are not waited for but stopped there. */
static bool all_passed(const struct job *job)
{
	const struct serve_pool *pool = &job->executor->pool;
	bool parks = job->message.halt.fence && clock_now() - job->since >= PASS_NS, all = true;

	for (unsigned i = 0; i < pool->count; i++)
		all &= word_acquire(&pool->threads[i].halted) || (parks && park_thread(&pool->threads[i]));
	return all;
}

static int wait_for_threads(struct job *job)
{
	struct wire_message message = {.type = WIRE_REPLY, .id = job->message.id};

	if (!all_passed(job))
		return JOB_E_WAIT;
	if (job->message.halt.fence) {
		job->executor->fenced = true; /* the backend is not asked any more */
		message.reply.code = job->executor->ops->fence();
	}
	executor_send(job->executor, &message);
	job->step = watch;
	return watch(job);
}

void halt_handle(struct job *job)
{
	struct executor *executor = job->executor;
	uint32_t running = 0;

	/* The module thread's work may be the reason for the halt. */
	module_worker_tell(executor, clock_now());
	atomic_compare_exchange_strong(&executor->lost, &running, EXECUTOR_HALTED);
	serve_kick_all(executor);
	job_park(job, wait_for_threads);
}
