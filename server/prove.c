// See prove.h, both sides. A driver that crashes or hangs at the trial is an answer, too: executors then leave exceptions
// to it, and the fence and each program's policy are what is left.

#include "server/prove.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "server/backend/backend.h"
#include "server/backend/trial.h"
#include "server/loop/timer.h"
#include "server/worker/exceptions.h"

/* A step of the trial. Where other processes use the device, it runs the contexts in turn. */
#define STEP_MS 3000u
/* Between two trials, where the device cannot be opened. */
#define AGAIN_NS 250000000
/* Until a killed process is gone: what it still holds then the driver does not give back. */
#define END_MS 8000

/* The verdict, as it travels through a pipe. */
struct verdict {
	enum proof_state state;
	uint32_t ms;
	bool is_closed; /* the device cannot be opened: nothing was tried */
	char why[TRIAL_TEXT];
};

/* ---- the child ---- */

static void judge(const struct backend_ops *ops, int device, struct verdict *verdict)
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

int prove_main(const struct backend_ops *ops, int device, int answer_fd)
{
	struct verdict verdict = {0};
	ssize_t n;

	judge(ops, device, &verdict);
	n = write(answer_fd, &verdict, sizeof(verdict)); /* below PIPE_BUF: whole or not at all */
	/* What is left on the device ends with the process. */
	_exit(n == (ssize_t)sizeof(verdict) ? 0 : 1);
}

/* ---- the service ---- */

/* Moves a descriptor beyond those that the child will have. */
static int lift(int fd)
{
	return fcntl(fd, F_DUPFD_CLOEXEC, HERITAGE_DUMP_FD + 1);
}

/* It ends with the service, and has nothing else of it. */
static bool set_apart(pid_t service, int answer_fd, int dump_fd)
{
	int null = open("/dev/null", O_RDWR);

	answer_fd = lift(answer_fd);
	dump_fd = lift(dump_fd);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != service || dup2(null, 0) != 0 ||
		dup2(answer_fd, HERITAGE_CONTROL_FD) < 0)
		return false;
	/* Kernels before 5.11 cannot. */
	close_range(HERITAGE_CONTROL_FD + 1, UINT32_MAX, CLOSE_RANGE_CLOEXEC);
	return dup2(dump_fd, HERITAGE_DUMP_FD) >= 0;
}

static _Noreturn void become(const char *program, const struct heritage *heritage, char *const *environment,
	pid_t service, int answer_fd, int dump_fd)
{
	char backend[32], device[32], level[32], control[32];
	char *arguments[] = {
		(char *)"frmps-server", (char *)"--role=trial", backend, device, level, control, NULL};

	snprintf(backend, sizeof(backend), "--backend=%s", heritage->backend);
	snprintf(device, sizeof(device), "--device=%d", heritage->device);
	snprintf(level, sizeof(level), "--child-log-level=%d", heritage->log_level);
	snprintf(control, sizeof(control), "--control-fd=%d", HERITAGE_CONTROL_FD);
	if (set_apart(service, answer_fd, dump_fd))
		execve(program, arguments, environment);
	_exit(127);
}

/* Return: pid, or -errno */
static pid_t start(const char *program, const struct heritage *heritage, int answer_fd)
{
	char **environment = exceptions_environment(heritage->environment);
	int dump_fd = memfd_create("frmps-dump", MFD_CLOEXEC);
	pid_t self = getpid(), pid = environment && dump_fd >= 0 ? fork() : -1;
	int error = errno;

	if (pid == 0)
		become(program, heritage, environment, self, answer_fd, dump_fd);
	exceptions_environment_free(environment);
	if (dump_fd >= 0)
		close(dump_fd);
	return pid < 0 ? -error : pid;
}

/* Return: whether there is something to be read, or an end, within the time */
static bool await(int fd, int patience_ms)
{
	struct pollfd waiting = {.fd = fd, .events = POLLIN};
	int ready;

	do
		ready = poll(&waiting, 1, patience_ms);
	while (ready < 0 && errno == EINTR);
	return ready > 0;
}

/* The next processes need its memory. One that stays in the driver is left behind. Return: its status, 0: it stays */
static int bury(pid_t pid)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0), status = 0;

	if (pidfd >= 0 && !await(pidfd, END_MS)) {
		kill(pid, SIGKILL);
		await(pidfd, END_MS);
	}
	waitpid(pid, &status, pidfd >= 0 ? WNOHANG : 0);
	if (pidfd >= 0)
		close(pidfd);
	return status;
}

static void hear(pid_t pid, int fd, unsigned patience_ms, struct verdict *ret_verdict)
{
	bool in_time = await(fd, (int)patience_ms);
	ssize_t n = in_time ? read(fd, ret_verdict, sizeof(*ret_verdict)) : 0;
	int status;

	if (!in_time)
		kill(pid, SIGKILL);
	status = bury(pid);
	if (n == (ssize_t)sizeof(*ret_verdict))
		return;
	*ret_verdict = (struct verdict){.state = PROOF_FAILED};
	if (!in_time)
		snprintf(ret_verdict->why, sizeof(ret_verdict->why), "the trial did not end within %u ms",
			patience_ms);
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
	int ends[2];
	pid_t pid;

	*ret_verdict = (struct verdict){.state = PROOF_FAILED, .why = "the trial cannot be started"};
	if (pipe2(ends, O_CLOEXEC) < 0)
		return;
	pid = start(program, heritage, ends[1]);
	close(ends[1]);
	if (pid > 0)
		hear(pid, ends[0], patience_ms, ret_verdict);
	close(ends[0]);
}

/* Who has the device, or its memory, may go: what the trial says holds for as long as the service lives. */
void prove_ask(const char *program, struct heritage *heritage, unsigned patience_ms)
{
	const struct timespec pause = {.tv_nsec = AGAIN_NS};
	uint64_t until = timer_now_us() + patience_ms * UINT64_C(1000);
	struct verdict verdict;

	do
		ask(program, heritage, patience_ms, &verdict);
	while (verdict.is_closed && timer_now_us() < until && !nanosleep(&pause, NULL));
	verdict.why[sizeof(verdict.why) - 1] = '\0';
	heritage->proof = (struct proof){.state = verdict.state, .ms = verdict.ms};
	snprintf(heritage->proof.why, sizeof(heritage->proof.why), "%s", verdict.why);
}
