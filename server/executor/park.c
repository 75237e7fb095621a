// Behind some faults (a trap on an H200) calls of the driver come back only after hundreds of
// milliseconds, while the process can be taken off the device in a few. Whoever is in such a call
// would write what a next executor reads as soon as it is back: how far it has issued, and marked.
// So before the fence each serving thread that does not pass by itself gets a signal, whose handler
// never returns. What it was at is as it would be had the process been killed there, and takeover.c
// is made for that.
//
// A thread stands still when its handler says so, or while the kernel says that it is in an
// uninterruptible wait and does not block the signal: that comes before anything else that it would
// do then.
//
// Locks that it has stay taken. Who needs one of them waits for ever, and the daemon kills what
// does not answer.

#include "server/executor/park.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/executor/serve.h"

/* The driver is not known to use it; SIGUSR2 is taken (backend). */
#define PARK_SIGNAL SIGUSR1

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local struct serve_thread *self;

static void on_park(int number)
{
	(void)number;
	/* Pairs with the acquire in park_thread(): all that it wrote can be seen. */
	word_release(&self->parked, 1);
	for (;;)
		pause();
}

static void handle_signal(void)
{
	struct sigaction action = {.sa_handler = on_park};

	sigfillset(&action.sa_mask);
	sigaction(PARK_SIGNAL, &action, NULL);
}

void park_enter(struct serve_thread *thread)
{
	sigset_t signals;

	self = thread;
	thread->tid = gettid();
	pthread_once(&once, handle_signal);
	sigemptyset(&signals);
	sigaddset(&signals, PARK_SIGNAL);
	pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
}

/* A line of proc(5)'s status. Return: what is behind its name; NULL: there is none */
static const char *find_line(const char *status, const char *name)
{
	const char *line = strstr(status, name);

	return line ? line + strlen(name) : NULL;
}

/* In a wait that no signal ends, and the signal comes behind it: whoever blocks it goes on. */
static bool is_uninterruptible(pid_t tid)
{
	char path[64], status[4096];
	const char *state, *blocked;
	ssize_t length;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/status", (int)tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	length = read(fd, status, sizeof(status) - 1);
	close(fd);
	status[length < 0 ? 0 : length] = '\0';
	state = find_line(status, "\nState:\t");
	blocked = find_line(status, "\nSigBlk:\t");
	return state && *state == 'D' && blocked && !(strtoull(blocked, NULL, 16) >> (PARK_SIGNAL - 1) & 1);
}

bool park_thread(struct serve_thread *thread)
{
	if (!thread->parking)
		thread->parking = !pthread_kill(thread->thread, PARK_SIGNAL);
	return word_acquire(&thread->parked) || (thread->parking && is_uninterruptible(thread->tid));
}
