// See prove.h, both sides. A driver that crashes or hangs at the trial is an answer, too: executors
// then leave exceptions to the driver, and the fence and each program's policy remain.

#include "server/prove.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "server/backend/backend.h"
#include "server/backend/trial.h"
#include "server/config/config.h"
#include "server/identity.h"
#include "server/loop/timer.h"
#include "server/throwaway.h"
#include "server/worker/exceptions.h"

/* A step of the trial. Other processes' contexts take turns on the device. */
#define STEP_MS 3000u
/* User of the trial for executors that run as their programs' users. */
#define NOBODY 65534u
/* Between two trials, where the device cannot be opened. */
#define AGAIN_NS 250000000

/* The verdict, as sent through a pipe. */
struct verdict {
	enum proof_state state;
	uint32_t ms;
	bool is_closed;	  /* the device cannot be opened: nothing was tried */
	bool is_as_asked; /* has become the requested user */
	char why[TRIAL_TEXT];
};

/* ---- the child ---- */

/* Like an executor. Return: true if the trial may begin */
static bool become_user(uint32_t user, struct verdict *verdict)
{
	pid_t service = getppid();
	int r = user ? identity_become(user) : 0;

	/* Another user's process does not end with its parent any more (throwaway.c). */
	if (!r && (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != service))
		_exit(1);
	verdict->is_as_asked = !r;
	if (r)
		snprintf(verdict->why, sizeof(verdict->why), "it cannot become another user: %s",
			strerror(-r));
	return !r;
}

static void judge(const struct backend_ops *ops, int device, uint32_t user, struct verdict *verdict)
{
	struct backend_device properties;
	uint64_t begin;
	CUresult code;

	if (!ops->trial)
		return; /* PROOF_NONE */
	verdict->state = PROOF_FAILED;
	backend_is_served = true;
	code = ops->open_executor(device, &properties);
	if (!code)
		code = ops->thread_enter();
	if (code) {
		verdict->is_closed = true;
		snprintf(verdict->why, sizeof(verdict->why), "the device cannot be opened (code %d)",
			(int)code);
		return;
	}
	if (!become_user(user, verdict))
		return;
	if (!backend_contains) {
		snprintf(verdict->why, sizeof(verdict->why), "the driver or the device is not known");
		return;
	}
	begin = timer_now_us();
	trial_run(ops, ops->trial, STEP_MS, verdict->why);
	verdict->ms = (uint32_t)((timer_now_us() - begin + 999) / 1000);
	if (!verdict->why[0])
		verdict->state = PROOF_GOOD;
}

int prove_main(const struct backend_ops *ops, int device, uint32_t user, int answer_fd)
{
	struct verdict verdict = {0};
	ssize_t n;

	judge(ops, device, user, &verdict);
	n = write(answer_fd, &verdict, sizeof(verdict)); /* below PIPE_BUF: whole or not at all */
	/* Work that is left on the device ends with the process. */
	_exit(n == (ssize_t)sizeof(verdict) ? 0 : 1);
}

/* ---- the service ---- */

static int start(const char *program, const struct heritage *heritage, char *const *environment, int dump_fd,
	unsigned patience_ms, struct verdict *ret_verdict, int *ret_status)
{
	char backend[CONFIG_TEXT_MAX + 16], device[32], level[32], control[32], user[32];
	char *arguments[] = {(char *)"frmps-server", (char *)"--role=trial", backend, device, level, control,
		heritage->run_as == RUN_AS_USER ? user : NULL, NULL};
	const struct throwaway trial = {.program = program,
		.arguments = arguments,
		.environment = environment,
		.dump_fd = dump_fd,
		.patience_ms = patience_ms};

	snprintf(backend, sizeof(backend), "--backend=%s", heritage->backend_option);
	snprintf(device, sizeof(device), "--child-device=%d", heritage->device);
	snprintf(level, sizeof(level), "--child-log-level=%d", heritage->log_level);
	snprintf(control, sizeof(control), "--control-fd=%d", HERITAGE_CONTROL_FD);
	snprintf(user, sizeof(user), "--user=%u", NOBODY);
	return throwaway_ask(&trial, ret_verdict, sizeof(*ret_verdict), ret_status);
}

/* @r: of throwaway_ask(), not 0 */
static void describe(int r, int status, unsigned patience_ms, struct verdict *ret_verdict)
{
	*ret_verdict = (struct verdict){.state = PROOF_FAILED};
	if (r == -ETIMEDOUT)
		snprintf(ret_verdict->why, sizeof(ret_verdict->why), "the trial did not end within %u ms",
			patience_ms);
	else if (r != -EPROTO)
		snprintf(ret_verdict->why, sizeof(ret_verdict->why), "the trial cannot be started: %s",
			strerror(-r));
	else if (WIFSIGNALED(status))
		snprintf(ret_verdict->why, sizeof(ret_verdict->why), "the trial was ended by signal %d",
			WTERMSIG(status));
	else
		snprintf(ret_verdict->why, sizeof(ret_verdict->why), "the trial ended with exit code %d",
			WEXITSTATUS(status));
}

static void ask(const char *program, const struct heritage *heritage, unsigned patience_ms,
	struct verdict *ret_verdict)
{
	char **environment = exceptions_environment(heritage->environment);
	int dump_fd = memfd_create("frmps-dump", MFD_CLOEXEC), status = 0;
	int r = environment && dump_fd >= 0 ? 0 : -ENOMEM;

	if (!r)
		r = start(program, heritage, environment, dump_fd, patience_ms, ret_verdict, &status);
	if (r)
		describe(r, status, patience_ms, ret_verdict);
	exceptions_environment_free(environment);
	if (dump_fd >= 0)
		close(dump_fd);
}

/* Processes that use the device, or its memory, may end: the trial's verdict holds for the whole
 * life of the service. */
static struct verdict ask_until(const char *program, const struct heritage *heritage, unsigned patience_ms)
{
	const struct timespec pause = {.tv_nsec = AGAIN_NS};
	uint64_t until = timer_now_us() + patience_ms * UINT64_C(1000);
	struct verdict verdict;

	do
		ask(program, heritage, patience_ms, &verdict);
	while (verdict.is_closed && timer_now_us() < until && !nanosleep(&pause, NULL));
	verdict.why[sizeof(verdict.why) - 1] = '\0';
	return verdict;
}

/* Handling faults comes first: if only root handles them, executors run as the service. */
static void try_as_service(
	const char *program, struct heritage *heritage, unsigned patience_ms, struct verdict *verdict)
{
	const struct verdict as_user = *verdict;

	heritage->run_as = RUN_AS_SERVICE;
	*verdict = ask_until(program, heritage, patience_ms);
	if (verdict->state == PROOF_FAILED && as_user.is_as_asked)
		heritage->run_as = RUN_AS_USER;
	else
		snprintf(heritage->run_as_why, sizeof(heritage->run_as_why), "%s", as_user.why);
}

void prove_ask(const char *program, struct heritage *heritage, unsigned patience_ms)
{
	struct verdict verdict = ask_until(program, heritage, patience_ms);

	if (verdict.state == PROOF_FAILED && !verdict.is_closed && heritage->run_as == RUN_AS_USER)
		try_as_service(program, heritage, patience_ms, &verdict);
	heritage->proof = (struct proof){.state = verdict.state, .ms = verdict.ms};
	snprintf(heritage->proof.why, sizeof(heritage->proof.why), "%s", verdict.why);
}
