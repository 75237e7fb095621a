// The main process of a service with several devices: when it is ready, what it does when the
// process of a device ends, and how all end. Devices are functions of this file.

#include "server/parent.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "server/log.h"
#include "server/loop/notify.h"
#include "tests/lib/folder.h"
#include "tests/lib/suite.h"

#define COUNT 3

static int manager, starts[2];
static pid_t parent;

static void set_up(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/notify", folder_enter());
	manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(manager, (struct sockaddr *)&address, sizeof(address)), 0);
	setenv("NOTIFY_SOCKET", address.sun_path, 1);
	ck_assert_int_eq(pipe2(starts, O_CLOEXEC), 0);
}

static void tear_down(void)
{
	close(manager);
	close(starts[0]);
	close(starts[1]);
	folder_leave();
}

/* What a device does that has started. */
struct started {
	unsigned number;
	pid_t pid;
};

static void report_start(unsigned number)
{
	struct started started = {number, getpid()};

	if (write(starts[1], &started, sizeof(started)) != (ssize_t)sizeof(started))
		_exit(99);
}

static int serve(void *context, unsigned number)
{
	sigset_t set;
	int number_of_signal;

	(void)context;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	report_start(number);
	/* As a daemon, which is a child: it has the socket too. */
	if (notify_manager("READY=1"))
		_exit(98);
	sigwait(&set, &number_of_signal);
	_exit(0);
}

/* As a keeper or an executor that does not notice. */
static int serve_with_child(void *context, unsigned number)
{
	if (number == 1 && !fork()) {
		report_start(0);
		/* Not for ever, where the test is killed. */
		alarm(120);
		for (;;)
			pause();
	}
	return number == 1 ? serve(context, number) : 0;
}

/* One of them cannot be served. */
static int serve_all_but_one(void *context, unsigned number)
{
	if (number == 1)
		_exit(EX_UNAVAILABLE);
	return serve(context, number);
}

static void run(enum parent_needs needs, int (*serves)(void *context, unsigned number))
{
	parent = fork();
	if (!parent) {
		/* libcheck's own handler passes it on to the test. */
		signal(SIGTERM, SIG_DFL);
		/* It ends with a test that fails, and its members with it. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		log_set_descriptor(open("/dev/null", O_WRONLY | O_CLOEXEC));
		_exit(parent_run(COUNT, needs, serves, NULL));
	}
}

/* @ret_pids: by number */
static void await_starts(unsigned count, pid_t ret_pids[COUNT])
{
	struct started started;

	for (unsigned i = 0; i < count; i++) {
		ck_assert_int_eq(read(starts[0], &started, sizeof(started)), sizeof(started));
		ret_pids[started.number] = started.pid;
	}
}

static void await_state(const char *state)
{
	char text[64];
	ssize_t length = recv(manager, text, sizeof(text) - 1, 0);

	ck_assert_int_gt(length, 0);
	text[length] = '\0';
	ck_assert_str_eq(text, state);
}

static int code_of_parent(void)
{
	int status;

	ck_assert_int_eq(waitpid(parent, &status, 0), parent);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

TEST(parent, all_are_ready_together_and_end_together)
{
	pid_t pids[COUNT];

	run(PARENT_ALL, serve);
	await_starts(COUNT, pids);
	await_state("READY=1");
	kill(parent, SIGTERM);
	await_state("STOPPING=1");
	ck_assert_int_eq(code_of_parent(), 0);
	for (unsigned i = 0; i < COUNT; i++)
		ck_assert_int_lt(kill(pids[i], 0), 0);
}

TEST(parent, who_fails_starts_again_alone)
{
	pid_t pids[COUNT], later[COUNT] = {0};

	run(PARENT_ALL, serve);
	await_starts(COUNT, pids);
	await_state("READY=1");
	kill(pids[1], SIGKILL);
	await_starts(1, later);
	ck_assert_int_gt(later[1], 0);
	ck_assert_int_eq(kill(pids[0], 0), 0);
	ck_assert_int_eq(kill(pids[2], 0), 0);
	kill(parent, SIGTERM);
	ck_assert_int_eq(code_of_parent(), 0);
}

TEST(parent, nothing_of_who_failed_is_left)
{
	pid_t pids[COUNT];
	struct pollfd wait = {.events = POLLIN};
	int ended;

	run(PARENT_ALL, serve_with_child);
	await_starts(2, pids);
	wait.fd = (int)syscall(SYS_pidfd_open, pids[0], 0);
	ck_assert_int_ge(wait.fd, 0);
	kill(pids[1], SIGKILL);
	ended = poll(&wait, 1, 60000);
	/* Nobody else ends it where the test fails. */
	syscall(SYS_pidfd_send_signal, wait.fd, SIGKILL, NULL, 0);
	ck_assert_int_eq(ended, 1);
	close(wait.fd);
	kill(parent, SIGTERM);
	code_of_parent();
}

TEST(parent, a_device_that_cannot_be_served_ends_the_start)
{
	run(PARENT_ALL, serve_all_but_one);
	ck_assert_int_eq(code_of_parent(), EX_UNAVAILABLE);
}

/* One of them fails, but may be served later. */
static int serve_all_but_one_now(void *context, unsigned number)
{
	static const char name[] = "tried"; /* in the folder of the test */

	if (number == 1 && mkdir(name, 0700) == 0)
		_exit(EXIT_FAILURE);
	return serve(context, number);
}

TEST(parent, a_device_that_fails_at_the_start_comes_later)
{
	pid_t pids[COUNT] = {0};

	run(PARENT_SOME, serve_all_but_one_now);
	await_starts(COUNT - 1, pids);
	ck_assert_int_eq(pids[1], 0);
	await_state("READY=1");
	await_starts(1, pids);
	ck_assert_int_gt(pids[1], 0);
	kill(parent, SIGTERM);
	ck_assert_int_eq(code_of_parent(), 0);
}

/* A wrong configuration is wrong for all. */
TEST(parent, a_failure_for_good_ends_the_start)
{
	run(PARENT_SOME, serve_all_but_one);
	ck_assert_int_eq(code_of_parent(), EX_UNAVAILABLE);
}

static int serve_none(void *context, unsigned number)
{
	(void)context;
	_exit(EXIT_FAILURE + (int)number);
}

TEST(parent, without_a_device_nothing_starts)
{
	run(PARENT_SOME, serve_none);
	ck_assert_int_eq(code_of_parent(), EXIT_FAILURE);
}

/* An operator's quit: each of them ends by itself. */
TEST(parent, whoever_is_asked_to_end_does_not_start_again)
{
	struct pollfd wait = {.fd = starts[0], .events = POLLIN};
	pid_t pids[COUNT];

	run(PARENT_ALL, serve);
	await_starts(COUNT, pids);
	await_state("READY=1");
	for (unsigned i = 0; i < COUNT; i++)
		kill(pids[i], SIGTERM);
	ck_assert_int_eq(code_of_parent(), 0);
	ck_assert_int_eq(poll(&wait, 1, 0), 0);
}

TEST(parent, nobody_outlives_the_parent)
{
	pid_t pids[COUNT];
	int ends[2], status;
	char byte;

	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	run(PARENT_ALL, serve);
	await_starts(COUNT, pids);
	kill(parent, SIGKILL);
	ck_assert_int_eq(waitpid(parent, &status, 0), parent);
	/* Whoever lives has it. */
	close(ends[1]);
	ck_assert_int_eq(read(ends[0], &byte, 1), 0);
	close(ends[0]);
}

int main(void)
{
	Suite *suite = suite_create("parent");
	TCase *tests = suite_case(suite, "parent");

	tcase_add_checked_fixture(tests, set_up, tear_down);
	suite_add(tests, "parent");
	return suite_run(suite);
}
