// Kernels that do not end. The daemon asks for their end when a program is over its limit of time (EndKernels); a session
// that is closed asks itself when its work goes on beyond the patience (open.c).
//
//   list the session's modules ─► kernels_end() ─► wait until the session's work is done, at most LOOK_NS ─► done
//             ▲                  (a thread of its own)                     │ not done
//             └────────────────────────────────────────────────────────────┘ at most TRIES times
//
// One call ends the kernels that are on the device at that moment. Behind them others of the session may wait in a queue,
// which have begun since, and may be as endless: so it is tried again. What is no kernel, a copy or a wait for a value,
// does not end in this way. Then the caller says so, and the daemon replaces the executor.
//
// A call of the backend takes milliseconds, and has a thread of its own: the module thread may be in a call that waits for
// the very kernel, the compile threads in one that takes minutes. Nobody waits for it, the main thread looks at a word. A
// call that never comes back leaves its job on the board: the daemon's patience decides then.

#include "server/executor/endless.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "server/executor/clock.h"
#include "server/executor/contain.h"
#include "server/executor/drain.h"
#include "server/executor/executor.h"
#include "server/executor/job.h"
#include "server/executor/session.h"
#include "server/log.h"

#define TRIES	10u
#define LOOK_NS (100 * CLOCK_MS)

/* Of a job. The thread of a call has all of it from start to `over`. */
struct endless {
	struct executor *executor;
	struct backend_module **modules;
	uint32_t count;
	pthread_t thread;
	bool has_thread;
	word32 over; /* the call has returned */
	CUresult code;
	char ended[BACKEND_KERNEL_BYTES];  /* by this call */
	char kernel[BACKEND_KERNEL_BYTES]; /* the first of all that was ended */
	unsigned tries;
	void (*then)(struct job *job);
};

bool endless_can(struct executor *executor)
{
	char unused[BACKEND_KERNEL_BYTES];

	return executor->ops->kernels_end(NULL, 0, unused) == CUDA_SUCCESS;
}

static void *call(void *argument)
{
	struct endless *endless = argument;
	struct executor *executor = endless->executor;

	prctl(PR_SET_NAME, "frmps-end");
	endless->code = executor->ops->kernels_end(endless->modules, endless->count, endless->ended);
	/* Pairs with the acquire in await_call(). */
	word_release(&endless->over, 1);
	job_board_kick(&executor->board);
	return NULL;
}

/* Signals for the process go to other threads. Return: whether it has begun */
static bool start(struct endless *endless)
{
	sigset_t all, before;

	word_set(&endless->over, 0);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	endless->has_thread = !pthread_create(&endless->thread, NULL, call, endless);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return endless->has_thread;
}

/* It has said its last word. */
static void join(struct endless *endless)
{
	if (endless->has_thread)
		pthread_join(endless->thread, NULL);
	endless->has_thread = false;
}

struct endless *endless_free(struct endless *endless)
{
	if (!endless)
		return NULL;
	join(endless);
	free(endless->modules);
	free(endless);
	return NULL;
}

bool endless_has_ended(const struct job *job)
{
	return job->endless && job->endless->kernel[0];
}

static void finish(struct job *job)
{
	const struct session *session = job->session;

	if (endless_has_ended(job))
		log_warning("kernel %s of session %llu (%s, pid %d) was ended, in %u tries; %s",
			job->endless->kernel, (unsigned long long)session->id, session->program, session->pid,
			job->endless->tries,
			job->drained ? "nothing of the session is on the device"
				     : "something of the session still is");
	job->endless->then(job);
}

static void try(struct job *job);

static void look(struct job *job)
{
	struct endless *endless = job->endless;

	if (job->drained || endless->tries >= TRIES || executor_is_lost(job->executor) || job->session->gone)
		finish(job);
	else
		try(job);
}

static void note_call(struct endless *endless)
{
	if (endless->code) {
		log_warning("the backend cannot end kernels: code %d", (int)endless->code);
		endless->tries = TRIES;
	}
	if (!endless->kernel[0])
		memcpy(endless->kernel, endless->ended, sizeof(endless->kernel));
}

static int await_call(struct job *job)
{
	if (!word_acquire(&job->endless->over))
		return JOB_E_WAIT;
	join(job->endless);
	note_call(job->endless);
	drain_begin(job, LOOK_NS, look);
	return 0;
}

static void try(struct job *job)
{
	struct endless *endless = job->endless;

	endless->tries++;
	free(endless->modules);
	endless->modules = contain_list_modules(job->executor, job->session->id, &endless->count);
	if (!endless->count || !start(endless)) {
		/* Without a module there is no kernel. */
		endless->tries = TRIES;
		drain_begin(job, LOOK_NS, look);
		return;
	}
	job->step = await_call;
	job_park(job);
}

void endless_begin(struct job *job, void (*then)(struct job *job))
{
	job->endless = calloc(1, sizeof(*job->endless));
	if (!job->endless) {
		job->drained = false;
		then(job);
		return;
	}
	job->endless->executor = job->executor;
	job->endless->then = then;
	try(job);
}

/* ---- EndKernels ---- */

static void answer(struct job *job)
{
	const char *kernel = job->endless ? job->endless->kernel : "";

	if (job->drained)
		job_reply(job, CUDA_SUCCESS, NULL, 0, kernel);
	else
		job_reply(job, CUDA_ERROR_NOT_READY, NULL, 0, "its work goes on");
}

void endless_handle(struct job *job)
{
	struct session *session = job->session;
	const struct wire_trouble *why = &job->message.trouble;

	if (!endless_can(job->executor)) {
		job_reply(job, CUDA_ERROR_NOT_SUPPORTED, NULL, 0, "the backend cannot end kernels");
		return;
	}
	if (!word_relaxed(&session->generation)) {
		job_reply(job, CUDA_ERROR_INVALID_CONTEXT, NULL, 0, "the session is not served here");
		return;
	}
	/* From here on nothing of it is issued (serve.c). */
	word_release(&session->ended, 1);
	session_tell_end(session, SHM_SESSION_FAULTED, (CUresult)why->code, why->text, NULL);
	endless_begin(job, answer);
}
