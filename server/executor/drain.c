// Waiting for a session's work without blocking. Main thread, on the job board.
//
// Two steps. First the main thread asks the serving thread: in its next turn the serving thread
// puts marks behind all unmarked commands and writes the question's number into `answered`. All
// commands that were issued before are now visible in the states and will be seen in the timeline,
// and resources that the main thread removed before the question are not in use any more. Then the
// main thread notes the latest issued command of each stream and waits until the timeline has come
// that far, and until no late first values are under way to the session's memory (variable.c).
//
// A late job of the module thread may still wait here when the session has ended. Then the words
// are unmapped, and the session's end has done the work already.

#include "server/executor/drain.h"

#include <stdlib.h>

#include "server/clock.h"
#include "server/executor/tenant.h"
#include "server/executor/sentry.h"
#include "server/executor/variable.h"
#include "server/log.h"

static bool is_answered(const struct job *job)
{
	const struct tenant *tenant = job->tenant;

	/* Pairs with the releases in serve.c. */
	return !word_acquire(&tenant->served) || word_acquire(&tenant->answered) >= job->ticket;
}

static void take_snapshot(struct job *job)
{
	const struct shm_view *view = &job->tenant->view;

	for (uint32_t slot = 0; slot < job->snapshots; slot++)
		job->snapshot[slot] = word_acquire(&view->states[slot].issued);
	job->mark = 0;
}

/* job->mark: streams below it are known to be done. */
static bool is_done(struct job *job)
{
	const struct shm_view *view = &job->tenant->view;
	struct shm_timeline *timeline = shm_view_timeline(view, word_acquire(&view->server->generation));

	while (job->mark < job->snapshots) {
		if (word_acquire(&shm_timeline_at(timeline, job->mark)->done) < job->snapshot[job->mark])
			return false;
		job->mark++;
	}
	return !variable_is_late(job->tenant);
}

static int finish(struct job *job, bool drained)
{
	job->drained = drained;
	free(job->snapshot);
	job->snapshot = NULL;
	job->then(job);
	return 0;
}

void drain_say_why(struct tenant *tenant)
{
	uint64_t blocker = tenant->thread ? word_relaxed(&tenant->thread->serving) : 0;

	if (!blocker || blocker == tenant->blocker)
		return;
	tenant->blocker = blocker;
	log_warning(
		"session %llu (%s, pid %d) waits for its serving thread, which is in a call for session %llu",
		(unsigned long long)tenant->id, tenant->program, tenant->pid, (unsigned long long)blocker);
}

static int expire(struct job *job)
{
	if (!is_answered(job))
		drain_say_why(job->tenant);
	return finish(job, false);
}

static int step(struct job *job)
{
	if (executor_is_lost(job->executor) || job->tenant->exit == TENANT_IS_GONE)
		return finish(job, false);
	if (!word_relaxed(&job->tenant->generation))
		return finish(job, true); /* in a standby no work of the session runs */
	if (!word_acquire(&job->tenant->served)) {
		/* No other thread looks any more. */
		job->tenant->now = clock_now();
		sentry_look(job->tenant);
	}
	if (is_answered(job)) {
		if (!job->snapshot) {
			job->snapshots = shm_view_used(&job->tenant->view);
			job->snapshot = malloc(job->snapshots * sizeof(*job->snapshot));
			if (!job->snapshot)
				return finish(job, false);
			take_snapshot(job);
		}
		if (is_done(job))
			return finish(job, true);
	}
	return clock_now() >= job->deadline ? expire(job) : JOB_E_WAIT;
}

void drain_begin(struct job *job, uint64_t patience_ns, void (*then)(struct job *job))
{
	struct tenant *tenant = job->tenant;

	job->then = then;
	job->deadline = clock_now() + patience_ns;
	job->ticket = word_relaxed(&tenant->asked) + 1;
	word_release(&tenant->asked, job->ticket);
	if (tenant->thread)
		serve_kick(tenant);
	job_park(job, step);
}

static int begin(struct job *job)
{
	drain_begin(job, DRAIN_PATIENCE_NS, job->then);
	return 0;
}

void drain_park(struct job *job, void (*then)(struct job *job))
{
	job->then = then;
	job_park(job, begin);
}
