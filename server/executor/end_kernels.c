// Kernels that do not end. The daemon asks for their end when a program is over the time limit
// (EndKernels). CloseSession does so when the session's work goes on beyond the patience (open.c).
//
//   EndKernels, or a session that is closed
//        │
//        ▼
//   kernels_end() ─► wait until the session's work is done, at most LOOK_NS ─► done
//      ▲  (a thread of its own)              │ not done
//      └─────────────────────────────────────┘ at most TRIES times
//
// The backend calls back while all kernels stand still. It asks for the session's modules, which
// may have changed until then, and at the first call for EndKernels for permission to end kernels.
// If only kernels of other sessions are on the device, the session's work waits for those, and
// nothing is done. Else the session has the error before anything goes on, and so never takes an
// aborted kernel for a finished kernel.
//
// One call ends the kernels that are on the device at that moment. Further kernels of the session
// may wait in a queue behind those, begin afterwards, and be as endless: hence further tries. A
// copy or a wait for a value does not end in this way. Then the caller reports that, and the daemon
// replaces the executor.
//
// A call of the backend takes milliseconds, and has a thread of its own: the module thread may be
// in a call that waits for the very kernel. The main thread does not block, but polls a word. The
// job of a call that never returns stays on the board: the daemon's patience decides then.

#include "server/executor/end_kernels.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "server/clock.h"
#include "server/executor/contain.h"
#include "server/executor/drain.h"
#include "server/executor/executor.h"
#include "server/executor/job.h"
#include "server/executor/tenant.h"
#include "server/log.h"

#define TRIES	10u
#define LOOK_NS (100 * CLOCK_MS)

enum verdict {
	VERDICT_OPEN,
	VERDICT_WAITS, /* for others, or the owner of a fault is not known yet */
	VERDICT_GONE,  /* the session is not served here any more: the next executor has it */
	VERDICT_ENDS
};

/* Of a job. The thread of a call owns the struct from start to `over`. */
struct end_kernels {
	struct executor *executor;
	uint64_t session;
	const struct wire_trouble *why; /* the session's error */
	enum verdict verdict;
	pthread_t thread;
	bool has_thread;
	word32 over; /* the call has returned */
	CUresult code;
	char ended[BACKEND_KERNEL_BYTES];  /* by this call */
	char kernel[BACKEND_KERNEL_BYTES]; /* the first of all ended kernels */
	unsigned tries;
	void (*then)(struct job *job);
};

bool end_kernels_can(struct executor *executor)
{
	char unused[BACKEND_KERNEL_BYTES];

	return executor->ops->kernels_end(NULL, unused) == CUDA_SUCCESS;
}

static enum verdict judge(const struct end_kernels *end, bool waits)
{
	const struct wire_trouble *why = end->why;
	bool is_served;

	if (executor_is_lost(end->executor))
		return VERDICT_GONE;
	if (waits || contain_is_open(end->executor))
		return VERDICT_WAITS;
	/* From there on no command of the session is issued (serve.c). */
	is_served = tenant_tell_fault_of(end->executor, end->session, (CUresult)why->code, why->text);
	return is_served ? VERDICT_ENDS : VERDICT_GONE;
}

/* While all kernels stand still. */
static struct backend_module **list(void *context, uint32_t *ret_count)
{
	const struct end_kernels *end = context;

	return contain_list_modules(end->executor, end->session, ret_count);
}

/* While all kernels stand still. */
static bool may_end(void *context, bool waits)
{
	struct end_kernels *end = context;

	end->verdict = judge(end, waits);
	return end->verdict == VERDICT_ENDS;
}

static void *call(void *argument)
{
	struct end_kernels *end = argument;
	struct executor *executor = end->executor;
	const struct backend_ending ending = {
		.list = list, .may_end = end->verdict == VERDICT_OPEN ? may_end : NULL, .context = end};

	prctl(PR_SET_NAME, "frmps-end");
	end->code = executor->ops->kernels_end(&ending, end->ended);
	/* Pairs with the acquire in await_call(). */
	word_release(&end->over, 1);
	job_board_kick(&executor->board);
	return NULL;
}

/* Signals for the process go to other threads. Return: whether it has begun */
static bool start(struct end_kernels *end)
{
	sigset_t all, before;

	word_set(&end->over, 0);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	end->has_thread = !pthread_create(&end->thread, NULL, call, end);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return end->has_thread;
}

/* The thread has written `over` and is about to end. */
static void join(struct end_kernels *end)
{
	if (end->has_thread)
		pthread_join(end->thread, NULL);
	end->has_thread = false;
}

/* Waits until no thread uses job->end any more. */
static void drop(struct job *job)
{
	join(job->end);
	free(job->end);
}

bool end_kernels_ended(const struct job *job)
{
	return job->end && job->end->kernel[0];
}

static void finish(struct job *job)
{
	const struct tenant *tenant = job->tenant;

	if (end_kernels_ended(job))
		log_warning("kernel %s of session %llu (%s, pid %d) was ended, in %u tries; %s",
			job->end->kernel, (unsigned long long)tenant->id, tenant->program, tenant->pid,
			job->end->tries,
			job->drained ? "nothing of the session is on the device"
				     : "something of the session still is");
	job->end->then(job);
}

static void try(struct job *job);

static void look(struct job *job)
{
	struct end_kernels *end = job->end;

	/* A session that is gone was closed after its work had ended (open.c). */
	job->drained = job->drained || job->tenant->exit == TENANT_IS_GONE;
	if (job->drained || end->tries >= TRIES || executor_is_lost(job->executor))
		finish(job);
	else
		try(job);
}

static void note_call(struct end_kernels *end)
{
	if (end->code) {
		log_warning("the backend cannot end kernels: code %d", (int)end->code);
		end->tries = TRIES;
	}
	if (!end->kernel[0])
		memcpy(end->kernel, end->ended, sizeof(end->kernel));
}

/* A fault that was found meanwhile is the session's error then. */
static void refuse(struct job *job)
{
	switch (job->end->verdict) {
	case VERDICT_WAITS:
		job_reply(job, CUDA_SUCCESS, NULL, 0, "");
		break;
	case VERDICT_GONE:
		job_reply(
			job, CUDA_ERROR_INVALID_CONTEXT, NULL, 0, "the session is not served here any more");
		break;
	default:
		job_reply(job, CUDA_ERROR_NOT_SUPPORTED, NULL, 0, "the backend cannot look for kernels");
		break;
	}
}

static int await_call(struct job *job)
{
	struct end_kernels *end = job->end;

	if (!word_acquire(&end->over))
		return JOB_E_WAIT;
	join(end);
	if (end->verdict != VERDICT_ENDS) {
		refuse(job);
		return 0;
	}
	note_call(end);
	drain_begin(job, LOOK_NS, look);
	return 0;
}

/* Without a module there is no kernel. */
static bool has_module(const struct job *job)
{
	return contain_has_module(job->executor, job->end->session);
}

/* Calls the backend for the session's modules. Return: whether it was called */
static bool ask(struct job *job)
{
	if (!start(job->end))
		return false;
	job_park(job, await_call);
	return true;
}

static void try(struct job *job)
{
	struct end_kernels *end = job->end;

	end->tries++;
	if (has_module(job) && ask(job))
		return;
	end->tries = TRIES;
	drain_begin(job, LOOK_NS, look);
}

static bool prepare(struct job *job, void (*then)(struct job *job))
{
	job->end = calloc(1, sizeof(*job->end));
	if (!job->end)
		return false;
	job->drop = drop;
	job->end->executor = job->executor;
	job->end->session = job->tenant->id;
	job->end->verdict = VERDICT_ENDS;
	job->end->then = then;
	return true;
}

bool end_kernels_begin(struct job *job, void (*then)(struct job *job))
{
	if (!prepare(job, then))
		return false;
	try(job);
	return true;
}

/* ---- EndKernels ---- */

static void answer(struct job *job)
{
	const char *kernel = job->end ? job->end->kernel : "";

	if (job->drained)
		job_reply(job, CUDA_SUCCESS, NULL, 0, kernel);
	else
		job_reply(job, CUDA_ERROR_NOT_READY, NULL, 0, "its work goes on");
}

void end_kernels_handle(struct job *job)
{
	struct tenant *tenant = job->tenant;

	if (!end_kernels_can(job->executor)) {
		job_reply(job, CUDA_ERROR_NOT_SUPPORTED, NULL, 0, "the backend cannot end kernels");
		return;
	}
	if (!word_relaxed(&tenant->generation)) {
		job_reply(job, CUDA_ERROR_INVALID_CONTEXT, NULL, 0, "the session is not served here");
		return;
	}
	if (!prepare(job, answer)) {
		job_reply(job, CUDA_ERROR_OUT_OF_MEMORY, NULL, 0, "no memory to end kernels");
		return;
	}
	job->end->why = &job->message.trouble;
	job->end->verdict = VERDICT_OPEN;
	job->end->tries = 1;
	if (has_module(job)) {
		if (!ask(job))
			job_reply(job, CUDA_ERROR_OUT_OF_MEMORY, NULL, 0, "no thread to look for kernels");
	} else if (may_end(job->end, false)) {
		job->end->tries = TRIES;
		drain_begin(job, LOOK_NS, look);
	} else {
		refuse(job);
	}
}
