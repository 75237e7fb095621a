// See crash.h. A handler of the signals of a crash writes the thread's name and calls to standard
// error, which is the log. It has a stack of its own in each of our threads, as text of clients'
// may send a compiler deeper than any stack.
//
// A thread that does not come back from somewhere is asked for the same by another signal, and goes
// on.

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
/* Several times what the handler and the registers that a signal saves take. */
#define CRASH_STACK_BYTES 65536u
/* The driver is not known to use it. */
#define SHOW_SIGNAL SIGUSR2
/* The loader's lock is held that long only by somebody who waits for the thread that crashed. */
#define CRASH_SECONDS 5u

static _Atomic bool shows; /* there is a handler for SHOW_SIGNAL */

static void say(const char *text, int length)
{
	/* Nobody is left to tell when standard error is gone. */
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

/* Any thread, in the middle of anything, of the C library's parts as well: nothing here allocates.
 * The names of frames take the loader's lock, which another thread may have for as long as it waits
 * for this one. The signal comes again when this returns, and does what it does by default. */
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

/* As above, but that it has to leave everything as it was. A thread that is about to wait for the
 * loader's lock waits here instead. */
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

	/* The first call loads what it needs. */
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

/* ---- a stack for it ---- */

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
