// See crash.h. A handler of the signals of a crash writes the thread's name and calls to standard
// error, which is the log. The handler has a stack of its own in each of our threads, as clients'
// text may make a compiler overflow any stack.
//
// Another signal asks a thread that does not return from somewhere for the same, and the thread
// goes on.

#include "server/backend/cuda/crash.h"

#include <errno.h>
#include <execinfo.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define FRAMES 48
/* Several times the size of the handler and the registers that a signal saves. */
#define CRASH_STACK_BYTES 65536u
/* Not known to be used by the driver. */
#define SHOW_SIGNAL SIGUSR2
/* Only a thread that waits for the crashed thread holds the loader's lock that long. */
#define CRASH_SECONDS 5u

static _Atomic bool shows; /* there is a handler for SHOW_SIGNAL */

static void say(const char *text, int length)
{
	/* Nobody is left to notify when standard error is gone. */
	if (write(STDERR_FILENO, text, (size_t)length) < 0)
		return;
}

/* SIGALRM ends the process, whatever the signal was meant for. */
static void end_soon(void)
{
	sigset_t alarms;

	signal(SIGALRM, SIG_DFL);
	sigemptyset(&alarms);
	sigaddset(&alarms, SIGALRM);
	pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
	alarm(CRASH_SECONDS);
}

/* Any thread, at any moment, inside the C library as well: nothing here allocates. The names of
 * frames need the loader's lock, which another thread may hold while waiting for this thread. After
 * the return the signal comes again, with its default action. */
static void on_crash(int number)
{
	void *frames[FRAMES];
	char text[128], name[16] = "";
	int length;

	end_soon();
	prctl(PR_GET_NAME, name);
	length = snprintf(
		text, sizeof(text), "frmps: this process crashes: signal %d, thread %s\n", number, name);
	say(text, length);
	backtrace_symbols_fd(frames, backtrace(frames, FRAMES), STDERR_FILENO);
	raise(number);
}

/* As above, but without any lasting change. A thread that is about to wait for the loader's lock
 * waits here instead. */
static void on_show(int number)
{
	int error = errno, length;
	void *frames[FRAMES];
	char text[128], name[16] = "";

	(void)number;
	prctl(PR_GET_NAME, name);
	length = snprintf(text, sizeof(text), "frmps: where thread %s is:\n", name);
	say(text, length);
	backtrace_symbols_fd(frames, backtrace(frames, FRAMES), STDERR_FILENO);
	errno = error;
}

void crash_watch(void)
{
	static const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
	struct sigaction crash = {.sa_handler = on_crash, .sa_flags = (int)(SA_RESETHAND | SA_ONSTACK)};
	struct sigaction show = {.sa_handler = on_show, .sa_flags = (int)(SA_RESTART | SA_ONSTACK)};
	void *frame[1];

	/* The first call loads its dependencies. */
	backtrace(frame, 1);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		sigaction(numbers[i], &crash, NULL);
	atomic_store(&shows, !sigaction(SHOW_SIGNAL, &show, NULL));
}

void crash_show_thread(pthread_t thread)
{
	/* Without a handler the signal would end the process. */
	if (atomic_load(&shows))
		pthread_kill(thread, SHOW_SIGNAL);
}

/* ---- a stack for the handler ---- */

static pthread_once_t stack_once = PTHREAD_ONCE_INIT;
static pthread_key_t stack_key; /* of the calling thread's */
static bool stack_is_known;

static void stack_free(void *stack)
{
	const stack_t none = {.ss_flags = SS_DISABLE};

	sigaltstack(&none, NULL);
	munmap(stack, CRASH_STACK_BYTES);
}

static void make_key(void)
{
	stack_is_known = !pthread_key_create(&stack_key, stack_free);
}

void crash_enter_thread(void)
{
	stack_t stack = {.ss_size = CRASH_STACK_BYTES}, before;

	pthread_once(&stack_once, make_key);
	if (!stack_is_known || sigaltstack(NULL, &before) || !(before.ss_flags & SS_DISABLE))
		return;
	stack.ss_sp = mmap(NULL, CRASH_STACK_BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	if (stack.ss_sp == MAP_FAILED)
		return;
	if (sigaltstack(&stack, NULL) || pthread_setspecific(stack_key, stack.ss_sp))
		stack_free(stack.ss_sp);
}
