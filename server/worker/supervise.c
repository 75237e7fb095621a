// Children as processes. The daemon forks them as the holder's children (CLONE_PARENT), so that
// they outlive the daemon: the holder waits for them and reports their ends. The report comes after
// the kernel has taken from the process all threads, memory and descriptors: this is the fence.

#include "server/worker/supervise.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/config/config.h"
#include "server/holder/store.h"
#include "server/identity.h"
#include "server/log.h"
#include "server/loop/timer.h"
#include "server/priority.h"
#include "server/role.h"
#include "server/worker/compiler.h"
#include "server/worker/crew.h"
#include "server/worker/exceptions.h"
#include "server/worker/vitals.h"

struct process {
	int pidfd;
	uint64_t killed_us;
};

/* The same file that this process runs, even if a newer file lies at its path by now. */
#define OWN_PROGRAM "/proc/self/exe"

/* In the child. */
static void take_identity(const struct identity *identity)
{
	static const char text[] =
		"frmps executor: cannot run as the user of its programs (the service needs "
		"CAP_SETUID, CAP_SETGID and CAP_SETPCAP)\n";

	if (identity_take(identity) == 0)
		return;
	if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0) {
		/* The daemon logs the failure as well. */
	}
	_exit(HERITAGE_EXIT_IDENTITY);
}

/* In the child: exactly the contents of struct heritage. Only calls that are safe between fork and
 * exec.
 * @identity: NULL: the service's */
static _Noreturn void become(char *const *arguments, char *const *environment,
	const struct identity *identity, const struct heritage_fds *fds)
{
	/* A reader of the log may go at any time: the signal stays ignored. */
	signal(SIGPIPE, SIG_IGN);
	priority_restore(identity);
	if (heritage_place(fds)) {
		if (identity)
			take_identity(identity);
		/* An executor becomes its user's process later, and gains no rights from then
		 * on. */
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		execve(OWN_PROGRAM, arguments, environment);
	}
	_exit(127);
}

/* With the older call: the unit forbids clone3, as its filter cannot see the flags.
 * Return: pid, 0 in the child, or -errno. */
static int fork_for_holder(int *ret_pidfd)
{
	long pid = syscall(SYS_clone, CLONE_PARENT | CLONE_PIDFD, NULL, ret_pidfd, NULL, 0);

	return pid < 0 ? -errno : (int)pid;
}

static int spawn(struct worker *worker, const struct heritage_fds *inherited, int *ret_pidfd)
{
	const struct heritage *heritage = worker->crew->heritage;
	char role[32], backend[CONFIG_TEXT_MAX + 16], device[32], level[32], control[32], words[32];
	char *arguments[] = {(char *)"frmps-server", role, backend, device, level, control,
		inherited->words >= 0 ? words : NULL,
		heritage->proof.state == PROOF_FAILED ? (char *)"--unproved" : NULL, NULL};
	char **environment =
		worker->role == ROLE_EXECUTOR ? exceptions_environment(heritage->environment) : NULL;
	/* The keeper runs nobody's code. */
	const struct identity *identity =
		worker->role == ROLE_EXECUTOR && heritage->run_as == RUN_AS_PROGRAM ? worker->identity : NULL;
	struct heritage_fds fds = *inherited;
	int pid = 0;

	snprintf(role, sizeof(role), "--role=%s", role_name(worker->role));
	snprintf(backend, sizeof(backend), "--backend=%s", heritage->backend_option);
	snprintf(device, sizeof(device), "--child-device=%d", heritage->device);
	snprintf(level, sizeof(level), "--child-log-level=%d", heritage->log_level);
	snprintf(control, sizeof(control), "--control-fd=%d", HERITAGE_CONTROL_FD);
	snprintf(words, sizeof(words), "--words-fd=%d", HERITAGE_WORDS_FD);
	if (worker->role == ROLE_EXECUTOR) {
		/* Where the driver can write (exceptions.h). Without the descriptor, its number in
		 * the environment would name another descriptor. */
		fds.dump = environment ? memfd_create("frmps-dump", MFD_CLOEXEC) : -1;
		pid = !environment ? -ENOMEM : fds.dump < 0 ? -errno : 0;
	}
	if (!pid)
		pid = fork_for_holder(ret_pidfd);
	if (pid == 0)
		become(arguments, environment ? environment : heritage->environment, identity, &fds);
	if (fds.dump >= 0)
		close(fds.dump);
	exceptions_environment_free(environment);
	return pid;
}

void supervise_adopt(struct worker *worker, int pidfd)
{
	struct process *process = calloc(1, sizeof(*process));

	log_bug_on(!process);
	process->pidfd = pidfd;
	worker->process = process;
}

static int start(struct worker *worker, const struct heritage_fds *fds)
{
	int pidfd = -1, pid = spawn(worker, fds, &pidfd), r;

	heritage_close(fds);
	if (pid < 0)
		return pid;
	r = store_deposit(worker->crew->store, pidfd, &worker->process_key);
	if (r) {
		syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
		close(pidfd);
		return r;
	}
	supervise_adopt(worker, pidfd);
	worker->pid = pid;
	log_debug("%s %d is started", role_name(worker->role), pid);
	return 0;
}

static void kill_child(struct worker *worker)
{
	struct process *process = worker->process;

	if (!process)
		return;
	process->killed_us = timer_now_us();
	syscall(SYS_pidfd_send_signal, process->pidfd, SIGKILL, NULL, 0);
}

static bool look(const struct worker *worker, struct vitals *ret_vitals)
{
	return vitals_read(worker->pid, ret_vitals);
}

/*
 * Compilers
 */

/* Compilers recurse with every bracket of a program's text. Unused stack takes no memory. */
#define STACK_BYTES (UINT64_C(64) << 20)
static bool deepen_stack(void)
{
	struct rlimit limits;

	if (getrlimit(RLIMIT_STACK, &limits) < 0)
		return false;
	limits.rlim_cur = limits.rlim_max < STACK_BYTES ? limits.rlim_max : STACK_BYTES;
	return setrlimit(RLIMIT_STACK, &limits) == 0;
}

/* In the child: the user's rights at most, the socket and nothing else, and an end with the daemon.
 * Only calls that are safe between fork and exec. */
static _Noreturn void become_compiler(char *const *arguments, char *const *environment,
	const struct identity *identity, pid_t daemon, int control_fd)
{
	const struct heritage_fds fds = {.control = control_fd, .words = -1, .dump = -1, .output = -1};

	priority_restore(true);
	if (!heritage_place(&fds) || dup2(STDIN_FILENO, STDOUT_FILENO) < 0 ||
		dup2(STDIN_FILENO, STDERR_FILENO) < 0 || !deepen_stack())
		_exit(127);
	if (identity && identity_take(identity))
		_exit(HERITAGE_EXIT_IDENTITY);
	/* After the change of user, which clears it. */
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 ||
		getppid() != daemon)
		_exit(127);
	execve(OWN_PROGRAM, arguments, environment);
	_exit(127);
}

/* Return: the caller's list, of strings that are not; NULL without memory */
static char **environment_for_user(char *const *environment)
{
	size_t count = 0;
	char **list;

	while (environment[count])
		count++;
	list = calloc(count + 1, sizeof(*list));
	if (!list)
		return NULL;
	memcpy(list, environment, count * sizeof(*list));
	heritage_leave_for_user(list);
	return list;
}

/* A child of the daemon's own, which is not to outlive the daemon. */
static int start_compiler(const struct compiler *compiler, int control_fd, int *ret_pidfd)
{
	const struct heritage *heritage = compiler->crew->heritage;
	const struct identity identity = {.uid = compiler->uid, .gid = IDENTITY_NO_GROUP};
	char backend[CONFIG_TEXT_MAX + 16], arch[32], control[32];
	char *arguments[] = {(char *)"frmps-server", (char *)"--role=compiler", backend, arch, control, NULL};
	char **environment = environment_for_user(heritage->environment);
	pid_t daemon = getpid();
	long pid = -ENOMEM;

	snprintf(backend, sizeof(backend), "--backend=%s", heritage->backend_option);
	snprintf(arch, sizeof(arch), "--arch=%u", compiler->arch);
	snprintf(control, sizeof(control), "--control-fd=%d", HERITAGE_CONTROL_FD);
	if (environment) {
		pid = syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, NULL, ret_pidfd, NULL, 0);
		if (pid == 0)
			become_compiler(arguments, environment, geteuid() == 0 ? &identity : NULL, daemon,
				control_fd);
		pid = pid < 0 ? -errno : pid;
	}
	free(environment);
	close(control_fd);
	return (int)pid;
}

const struct spawner supervise_spawner = {
	.start = start, .kill = kill_child, .start_compiler = start_compiler, .look = look};

void supervise_forget(struct worker *worker)
{
	struct process *process = worker->process;

	worker->process = NULL;
	close(process->pidfd);
	free(process);
}

bool supervise_killed(const struct worker *worker)
{
	const struct process *process = worker->process;

	return process->killed_us;
}
