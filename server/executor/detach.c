// DetachSession. Main thread, each step only when the one before is over:
//
//   the serving thread marks unmarked commands and releases the session (serve_detach)
//   commands on the device end (drain.c), and nothing is doubtful (contain.c): a kernel that
//   faulted may look done, but the sign of the fault comes before the mark
//   no look at the session's sink is under way (guard_watch.c), and nothing here is mapped to it:
//   the next executor has the same sink. A look that finds no room on the device is not waited for:
//   then the sink stays mapped until CloseSession
//   generation = 0: answer 1
//
// From then on the session has the state of a session in a standby: maps and modules stay until
// CloseSession. The words in the regions belong to another executor and are not read here any more.
//
// If the session's work does not end in time, or the session has ended in the meantime or has to be
// told so, this executor serves the session on: answer 0. Commands that were issued stay known, and
// no other executor has issued any.
// A session that was let go may stay: where no other executor has served it, this one goes on with
// what it knows, and no takeover is needed (detach_undo()).
// A serving thread can be in a call of the driver that does not return before another session's
// kernel ends. Then the answer is the same, and in time. After the call the thread releases the
// session, and then serves on.

#include "server/executor/detach.h"

#include "server/clock.h"
#include "server/executor/cap.h"
#include "server/executor/contain.h"
#include "server/executor/drain.h"
#include "server/executor/guard.h"
#include "server/executor/sharing.h"
#include "server/executor/tenant.h"
#include "server/executor/timing.h"

/* How long to wait for a last look at the session's sink: a full device may have no room for the
 * look. */
#define SINK_NS (100 * CLOCK_MS)

static void answer(struct job *job, uint64_t gone)
{
	job->tenant->exit = TENANT_STAYS;
	job_reply(job, CUDA_SUCCESS, &gone, 1, NULL);
}

static bool is_over(const struct tenant *tenant)
{
	return word_acquire(&tenant->view.server->state) > SHM_SESSION_HELD;
}

/* No thread serves the session: this thread owns the serving thread's part until the attach. */
static void serve_on(struct job *job)
{
	struct tenant *tenant = job->tenant;

	tenant->leaving = false;
	tenant->stopped = is_over(tenant);
	/* A session that is being closed is not served any more anyway. */
	if (!tenant->closing)
		serve_attach(tenant);
	answer(job, 0);
}

static int let_go(struct job *job)
{
	struct tenant *tenant = job->tenant;

	if (executor_is_lost(job->executor)) {
		job_free(job);
		return 0;
	}
	if (contain_is_open(job->executor))
		return JOB_E_WAIT;
	if (tenant->closing || is_over(tenant) || word_relaxed(&tenant->guard_use.verdict)) {
		serve_on(job);
		return 0;
	}
	if (clock_now() - job->since >= SINK_NS)
		guard_watch_let_go(tenant);
	else if (!guard_watch_last_look(tenant, job->since))
		return JOB_E_WAIT;
	else
		guard_end(tenant);
	timing_finish(tenant);
	/* Pairs with the looks of gate.c, deferred.c and contain.c. */
	word_release(&tenant->generation, 0);
	answer(job, 1);
	return 0;
}

static void drained(struct job *job)
{
	/* The answer is the process's end, and a next executor listens to the doorbell. */
	if (executor_is_lost(job->executor)) {
		job_free(job);
		return;
	}
	if (!job->drained) {
		serve_on(job);
		return;
	}
	job_park(job, let_go);
}

static int wait_for_thread(struct job *job)
{
	uint64_t now = clock_now();

	if (executor_is_lost(job->executor)) {
		job_free(job);
		return 0;
	}
	/* Pairs with the release in detach() of serve.c. */
	if (word_acquire(&job->tenant->served)) {
		/* No value is as good as 0. */
		if (!job->answered && now >= job->deadline + DRAIN_THREAD_NS) {
			drain_say_why(job->tenant);
			job_answer_early(job, CUDA_SUCCESS);
		}
		return JOB_E_WAIT;
	}
	job->tenant->thread = NULL;
	if (job->answered) {
		serve_on(job);
		return 0;
	}
	drain_begin(job, job->deadline > now ? job->deadline - now : 0, drained);
	return 0;
}

void detach_handle(struct job *job)
{
	struct tenant *tenant = job->tenant;

	if (tenant->exit != TENANT_STAYS || !tenant->thread) {
		job_reply(job, CUDA_ERROR_NOT_READY, NULL, 0, "it cannot be let go now");
		return;
	}
	serve_detach(tenant);
	tenant->exit = TENANT_DETACHES;
	job->deadline = clock_now() + job->message.close_session.patience_ms * CLOCK_MS;
	job_park(job, wait_for_thread);
}

bool detach_undo(struct tenant *tenant, uint32_t generation)
{
	/* A tenant that this executor has served has a timeline. */
	if (!tenant->timeline || word_relaxed(&tenant->generation) || tenant->exit == TENANT_DETACHES ||
		is_over(tenant) || word_acquire(&tenant->view.server->generation) != generation)
		return false;
	tenant->leaving = tenant->stopped = false;
	contain_join(tenant, generation);
	sharing_join(tenant);
	cap_look(tenant);
	return true;
}
