// Behind some faults (a trap on an H200) calls of the driver come back only after hundreds of
// milliseconds, while the process can be taken off the device in a few. After such a call a serving
// thread would at once write words that a next executor reads: the latest issued and marked
// commands. So before the fence each serving thread that does not pass by itself gets a signal,
// whose handler never returns. The thread's shared words are as if the process had been killed
// there, and takeover.c is made for that.
//
// A thread stands still when the handler has written `parked`, or while the kernel reports an
// uninterruptible wait with the signal unblocked: the handler then runs before the thread can do
// anything else.
//
// The thread's locks stay taken. A thread that needs one of these waits for ever, and the daemon
// kills an executor that does not answer.

#include "server/executor/park.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/executor/serve.h"

/* The driver is not known to use this signal; SIGUSR2 is taken (backend). */
#define PARK_SIGNAL SIGUSR1

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local struct serve_thread *self;

static void on_park(int number)
{
	(void)number;
	/* Pairs with the acquire in park_thread(): all writes of the thread can be seen. */
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

/* A line of proc(5)'s status. Return: the text behind the line's name; NULL: no such line */
static const char *find_line(const char *status, const char *name)
{
	const char *line = strstr(status, name);

	return line ? line + strlen(name) : NULL;
}

/* True if the thread is in a wait that no signal ends, with PARK_SIGNAL to come directly behind: a
 * thread that blocks the signal would go on. */
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
