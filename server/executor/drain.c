// Waiting for a session's work without blocking. Main thread, on the job board.
//
// Two steps. First the serving thread is asked: at its next turn it puts marks behind everything
// unmarked and writes the question's number into `answered`. Everything that was issued before is
// now visible in the states and will be seen in the timeline, and whatever the main thread took
// away before it asked is not in use any more. Then the main thread remembers how far each stream
// was issued and waits until the timeline has come that far, and until nothing of ours is on its
// way to the session's memory (variable.c).
//
// What the module thread came to only when the session was about to end may still wait here when
// that has ended. Then the words are not there to look at any more, and the end has done what there
// was to do.

#include "server/executor/drain.h"

#include <stdlib.h>

#include "server/executor/clock.h"
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
	if (executor_is_lost(job->executor) || job->tenant->gone)
		return finish(job, false);
	if (!word_relaxed(&job->tenant->generation))
		return finish(job, true); /* a standby's: nothing of it runs here */
	if (!word_acquire(&job->tenant->served)) {
		/* Nobody else looks any more. */
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
	job->step = step;
	job->deadline = clock_now() + patience_ns;
	job->ticket = word_relaxed(&tenant->asked) + 1;
	word_release(&tenant->asked, job->ticket);
	if (tenant->thread)
		serve_kick(tenant);
	job_park(job);
}
