// See said.h. Standard error becomes a pipe. The driver writes the lines of an assertion before it reads the
// fault, in the same thread or one that waits for it, so they are in the pipe when somebody asks.
//
//   FILE:LINE: FUNCTION: block: [x,y,z], thread: [x,y,z] Assertion `CONDITION` failed.
//
// The log keeps the old descriptor: what is said last before a process dies does not wait for a thread. What the
// C library or the driver say of a crash would die in the pipe, and where it was nobody would know: a handler of
// the signals of a crash writes both to the old descriptor. It has a stack of its own in each of our threads, as
// text of clients' may send a compiler deeper than any stack.
//
// A thread that does not come back from somewhere is asked for the same by another signal, and goes on.

#include "server/backend/cuda/said.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "server/detached.h"
#include "server/log.h"
#include "shm/layout.h"

#define LINE_BYTES 4096u
#define TAKE_TRIES 20 /* more than a pipe holds */
#define FRAMES	   48
#define LOCK_TRIES 10 /* of a millisecond */
/* Several times what the handler and the registers that a signal saves take. */
#define CRASH_STACK_BYTES 65536u
/* The driver is not known to use it. */
#define SHOW_SIGNAL SIGUSR2
/* The loader's lock is held that long only by somebody who waits for the thread that crashed. */
#define CRASH_SECONDS 5u

static struct {
	pthread_mutex_t lock; /* of all but the descriptors */
	int from, to;	      /* the pipe's end; the old standard error */
	char line[LINE_BYTES];
	size_t length;
	char kept[SHM_ASSERTION_BYTES];
	size_t kept_length;
	uint64_t kept_at; /* ms: when the first of it came */
} said = {.lock = PTHREAD_MUTEX_INITIALIZER, .from = -1, .to = -1};

static _Atomic bool shows; /* there is a handler for SHOW_SIGNAL */

static bool ends(const char *text, size_t length, const char *end)
{
	size_t bytes = strlen(end);

	return length >= bytes && !memcmp(text + length - bytes, end, bytes);
}

static bool is_assertion(const char *line, size_t length)
{
	return memmem(line, length, ": block: [", 10) && memmem(line, length, "] Assertion `", 13) &&
	       ends(line, length, " failed.\n");
}

static void pass_on(const char *text, size_t length)
{
	/* Nobody is left to tell when standard error is gone. */
	if (write(said.to, text, length) < 0)
		return;
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* A line, or a part of one that is too long. */
static void take_line(void)
{
	size_t length = said.length;

	said.length = 0;
	if (!is_assertion(said.line, length)) {
		pass_on(said.line, length);
	} else if (length < sizeof(said.kept) - said.kept_length) {
		said.kept_at = said.kept_length ? said.kept_at : now_ms();
		memcpy(said.kept + said.kept_length, said.line, length);
		said.kept_length += length;
	}
}

/* What is there. */
static void read_on(void)
{
	char bytes[LINE_BYTES];
	ssize_t count = read(said.from, bytes, sizeof(bytes));

	for (ssize_t i = 0; i < count; i++) {
		said.line[said.length++] = bytes[i];
		if (bytes[i] == '\n' || said.length == sizeof(said.line))
			take_line();
	}
}

static void *listen_on(void *unused)
{
	struct pollfd wait = {.fd = said.from, .events = POLLIN};

	for (;;) {
		if (poll(&wait, 1, -1) < 0)
			continue;
		pthread_mutex_lock(&said.lock);
		read_on();
		pthread_mutex_unlock(&said.lock);
	}
	return unused;
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

/* Any thread, in the middle of anything, of the C library's parts as well: nothing here allocates. The names of
 * frames take the loader's lock, which another thread may have for as long as it waits for this one.
 * The signal comes again when this returns, and does what it does by default. */
static void on_crash(int number)
{
	void *frames[FRAMES];
	char text[128], name[16] = "";
	ssize_t count;
	int length;

	end_soon();
	prctl(PR_GET_NAME, name);
	length = snprintf(
		text, sizeof(text), "frmps: this process crashes: signal %d, thread %s\n", number, name);
	pass_on(text, (size_t)length);
	backtrace_symbols_fd(frames, backtrace(frames, FRAMES), said.to);
	/* Whoever reads may be in the middle of a line. */
	for (int i = 0; i < LOCK_TRIES && pthread_mutex_trylock(&said.lock); i++)
		poll(NULL, 0, 1);
	for (int i = 0; i < TAKE_TRIES && (count = read(said.from, text, sizeof(text))) > 0; i++)
		pass_on(text, (size_t)count);
	raise(number);
}

/* As above, but that it has to leave everything as it was. A thread that is about to wait for the loader's lock
 * waits here instead. */
static void on_show(int number)
{
	int error = errno, length;
	void *frames[FRAMES];
	char text[128], name[16] = "";

	(void)number;
	prctl(PR_GET_NAME, name);
	length = snprintf(text, sizeof(text), "frmps: where thread %s is:\n", name);
	pass_on(text, (size_t)length);
	backtrace_symbols_fd(frames, backtrace(frames, FRAMES), said.to);
	errno = error;
}

static void handle_signals(void)
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

void said_show_thread(pthread_t thread)
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

void said_enter_thread(void)
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

/* ---- listening ---- */

void said_listen(void)
{
	int ends[2], old = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);

	if (old < 0)
		return;
	if (pipe2(ends, O_CLOEXEC) < 0) {
		close(old);
		return;
	}
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	said.from = ends[0];
	said.to = old;
	if (!detached_start(listen_on, NULL, NULL) && dup2(ends[1], STDERR_FILENO) >= 0)
		log_set_descriptor(old);
	else
		log_warning("what the driver says of assertions goes to the log: %m");
	close(ends[1]);
	handle_signals();
}

/* What the thread has not come to yet; others may be writing. Under the lock. */
static void read_all(void)
{
	struct pollfd rest = {.fd = said.from, .events = POLLIN};

	for (int i = 0; i < TAKE_TRIES && poll(&rest, 1, 0) > 0; i++)
		read_on();
}

void said_forget(unsigned ms)
{
	pthread_mutex_lock(&said.lock);
	read_all();
	if (said.kept_length && now_ms() - said.kept_at > ms)
		said.kept_length = 0;
	pthread_mutex_unlock(&said.lock);
}

void said_take(char *ret, size_t size)
{
	size_t count;

	pthread_mutex_lock(&said.lock);
	read_all();
	count = said.kept_length < size ? said.kept_length : size - 1;
	while (count && said.kept[count - 1] != '\n')
		count--;
	memcpy(ret, said.kept, count);
	ret[count] = '\0';
	said.kept_length = 0;
	pthread_mutex_unlock(&said.lock);
}
