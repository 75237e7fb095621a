// What a process says of its crash, and threads that are asked where they are.

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "server/backend/cuda/crash.h"
#include "tests/lib/suite.h"

static int outside; /* what was standard error */

/* Each test has a process of its own. */
static void watch_here(void)
{
	int ends[2];

	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	dup2(ends[1], STDERR_FILENO);
	close(ends[1]);
	outside = ends[0];
	crash_watch();
}

static void say(const char *text)
{
	ck_assert_int_eq(write(STDERR_FILENO, text, strlen(text)), (ssize_t)strlen(text));
}

/* What comes out, once it ends so. */
static const char *heard(const char *end)
{
	static char text[65536];
	size_t length = 0;

	text[0] = '\0';
	while (length < strlen(end) || strcmp(text + length - strlen(end), end) != 0) {
		ssize_t count = read(outside, text + length, sizeof(text) - 1 - length);

		ck_assert_int_gt(count, 0);
		length += (size_t)count;
		text[length] = '\0';
	}
	return text;
}

/* ---- crashes ---- */

/* Lets a child crash, which is ended by signal `end`. Return: what comes out; it is in the pipe, or
 * out already. */
static const char *heard_of(void (*crash)(int number), int number, int end)
{
	static char text[65536];
	size_t length = 0;
	int ends[2], status;
	ssize_t count;
	pid_t child;

	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	child = fork();
	if (child == 0) {
		dup2(ends[1], STDERR_FILENO);
		crash_watch();
		say("last words\n");
		crash(number);
		_exit(0);
	}
	close(ends[1]);
	while ((count = read(ends[0], text + length, sizeof(text) - 1 - length)) > 0)
		length += (size_t)count;
	text[length] = '\0';
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == end, "%d: %s", status, text);
	close(ends[0]);
	return text;
}

static void expect_report(const char *text, int number)
{
	char wanted[64];

	snprintf(wanted, sizeof(wanted), "crashes: signal %d, thread ", number);
	ck_assert_msg(strstr(text, wanted) != NULL, "%s", text);
}

static void crash_here(int number)
{
	raise(number);
}

START_TEST(a_crash_is_reported)
{
	const int numbers[] = {SIGABRT, SIGSEGV};
	const char *text = heard_of(crash_here, numbers[_i], numbers[_i]);

	expect_report(text, numbers[_i]);
	ck_assert_msg(strstr(text, "last words\n") != NULL, "%s", text);
}
END_TEST

static volatile bool is_bottom; /* never */

/* Until the stack is used up, in steps that do not go beyond the page behind it. */
static int go_deeper(volatile const char *above)
{
	volatile char bytes[64] = {*above};

	return is_bottom ? 0 : go_deeper(bytes) + bytes[1];
}

static void *enter_and_go_deeper(void *unused)
{
	char first = 0;

	crash_enter_thread();
	go_deeper(&first);
	return unused;
}

static void crash_deep_down(int unused)
{
	pthread_t thread;

	(void)unused;
	ck_assert_int_eq(pthread_create(&thread, NULL, enter_and_go_deeper, NULL), 0);
	pthread_join(thread, NULL);
}

START_TEST(a_stack_that_is_used_up_is_reported)
{
	const char *text = heard_of(crash_deep_down, 0, SIGSEGV);

	expect_report(text, SIGSEGV);
	ck_assert_msg(strstr(text, "last words\n") != NULL, "%s", text);
}
END_TEST

static void *enter(void *ret_stack)
{
	crash_enter_thread();
	crash_enter_thread();
	sigaltstack(NULL, ret_stack);
	return NULL;
}

static bool is_mapped(const void *at)
{
	unsigned char in_memory;

	return mincore((void *)(uintptr_t)at, 1, &in_memory) == 0;
}

/* The thread's own is the one that it has. */
START_TEST(a_thread_takes_its_stack_for_crashes_along)
{
	stack_t stack = {.ss_flags = SS_DISABLE};
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, enter, &stack), 0);
	pthread_join(thread, NULL);
	ck_assert_int_eq(stack.ss_flags & SS_DISABLE, 0);
	ck_assert(!is_mapped(stack.ss_sp));
}
END_TEST

static char fifo[] = "/tmp/frmps-crash-XXXXXX/library";

static void *load_for_ever(void *unused)
{
	dlopen(fifo, RTLD_NOW);
	return unused;
}

/* Somebody has the loader's lock, and reads a library that does not come. */
static void crash_while_somebody_loads(int number)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, load_for_ever, NULL), 0);
	/* Waits for whoever reads. */
	ck_assert_int_ge(open(fifo, O_WRONLY | O_CLOEXEC), 0);
	raise(number);
}

START_TEST(a_crash_ends_the_process_whoever_is_loading)
{
	char *end = strrchr(fifo, '/');

	*end = '\0';
	ck_assert_ptr_nonnull(mkdtemp(fifo));
	*end = '/';
	ck_assert_int_eq(mkfifo(fifo, 0600), 0);
	expect_report(heard_of(crash_while_somebody_loads, SIGSEGV, SIGALRM), SIGSEGV);
	unlink(fifo);
	*end = '\0';
	rmdir(fifo);
}
END_TEST

/* ---- where a thread is ---- */

struct reader {
	int told[2], awaited[2]; /* its number goes through the one, what it waits for through the other */
	ssize_t got;
};

static void *wait_for_a_byte(void *argument)
{
	struct reader *reader = argument;
	pid_t tid = gettid();
	char byte;

	crash_enter_thread();
	prctl(PR_SET_NAME, "patient");
	ck_assert_int_eq(write(reader->told[1], &tid, sizeof(tid)), sizeof(tid));
	reader->got = read(reader->awaited[0], &byte, 1);
	return NULL;
}

/* Whether a thread of this process sleeps in the kernel. */
static bool sleeps(pid_t tid)
{
	char path[64], text[512];
	const char *state;
	ssize_t length;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	length = read(fd, text, sizeof(text) - 1);
	close(fd);
	ck_assert_int_gt(length, 0);
	text[length] = '\0';
	state = strrchr(text, ')');
	return state && state[2] == 'S';
}

START_TEST(a_thread_says_where_it_is_and_goes_on)
{
	struct reader reader;
	char text[8192];
	pthread_t thread;
	pid_t tid;

	watch_here();
	ck_assert_int_eq(pipe2(reader.told, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(reader.awaited, O_CLOEXEC), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, wait_for_a_byte, &reader), 0);
	ck_assert_int_eq(read(reader.told[0], &tid, sizeof(tid)), sizeof(tid));
	while (!sleeps(tid))
		sched_yield();
	crash_show_thread(thread);
	/* From then on it is in the handler, or waits again. */
	snprintf(text, sizeof(text), "%s", heard("]\n"));
	ck_assert_msg(strstr(text, "where thread patient is:\n") != NULL, "%s", text);
	ck_assert_int_eq(write(reader.awaited[1], "x", 1), 1);
	pthread_join(thread, NULL);
	ck_assert_int_eq(reader.got, 1);
	say("end\n");
	strncat(text, heard("end\n"), sizeof(text) - strlen(text) - 1);
	ck_assert_msg(strstr(text, "libc.so") != NULL, "%s", text);
}
END_TEST

/* An executor that contains no faults has no handler. */
TEST(crash, who_does_not_watch_asks_nobody)
{
	crash_show_thread(pthread_self());
}

int main(void)
{
	Suite *suite = suite_create("crash");
	TCase *tests = tcase_create("crash");

	/* The thread sanitizer keeps the signal until the call comes back. */
#ifndef __SANITIZE_THREAD__
	tcase_add_test(tests, a_thread_says_where_it_is_and_goes_on);
#else
	(void)a_thread_says_where_it_is_and_goes_on;
#endif
	suite_add(tests, "crash");
	/* Sanitizers have handlers of their own for that. */
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
	tcase_add_loop_test(tests, a_crash_is_reported, 0, 2);
	tcase_add_test(tests, a_stack_that_is_used_up_is_reported);
	tcase_add_test(tests, a_thread_takes_its_stack_for_crashes_along);
	tcase_add_test(tests, a_crash_ends_the_process_whoever_is_loading);
#else
	(void)a_crash_is_reported;
	(void)a_stack_that_is_used_up_is_reported;
	(void)a_thread_takes_its_stack_for_crashes_along;
	(void)a_crash_ends_the_process_whoever_is_loading;
#endif
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
