// See aside.h.

#include "server/loop/aside.h"

#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Whoever waits for the daemon's end of something must not wait for this process. */
static void close_others(const int *fds, unsigned count)
{
	unsigned next = 0;

	for (unsigned i = 0; i < count; i++) {
		if ((unsigned)fds[i] > next)
			close_range(next, (unsigned)fds[i] - 1, 0);
		next = (unsigned)fds[i] + 1;
	}
	close_range(next, ~0u, 0);
}

static _Noreturn void be_aside(const struct asides *asides, const int *fds, unsigned count, aside_fn *run)
{
	sigset_t alarms;

	prctl(PR_SET_NAME, asides->name);
	sigemptyset(&alarms);
	sigaddset(&alarms, SIGALRM);
	sigprocmask(SIG_UNBLOCK, &alarms, NULL);
	signal(SIGALRM, SIG_DFL);
	alarm(asides->seconds);
	close_others(fds, count);
	run(fds);
	_exit(0);
}

/* If the number is another process's by now, this waits for that process. */
static bool has_ended(pid_t pid)
{
	struct pollfd process = {.fd = pid ? (int)syscall(SYS_pidfd_open, pid, 0) : -1, .events = POLLIN};
	bool has_ended = process.fd < 0 || poll(&process, 1, 0) > 0;

	if (process.fd >= 0)
		close(process.fd);
	return has_ended;
}

/* A free place for a user's process; `most`: there is none. */
static unsigned find_place(struct asides *asides, uid_t user)
{
	unsigned place = asides->most, of_user = 0;

	for (unsigned i = 0; i < asides->most; i++) {
		if (has_ended(asides->at[i].pid))
			asides->at[i].pid = 0;
		if (!asides->at[i].pid)
			place = i;
		else
			of_user += asides->at[i].user == user;
	}
	return of_user < asides->most_of_user ? place : asides->most;
}

/* A child of the holder, as all of the service's. */
bool aside_start(struct asides *asides, uid_t user, const int *fds, unsigned count, aside_fn *run)
{
	unsigned place = find_place(asides, user);
	long pid;

	if (place == asides->most)
		return false;
	pid = syscall(SYS_clone, CLONE_PARENT, NULL, NULL, NULL, 0);
	if (pid == 0)
		be_aside(asides, fds, count, run);
	if (pid < 0)
		return false;
	asides->at[place].pid = (pid_t)pid;
	asides->at[place].user = user;
	return true;
}
