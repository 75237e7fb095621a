// Programs that an operator pauses: they wait, lose nothing, and go on when they are resumed,
// whatever has happened to the service and to them meanwhile. Others notice nothing.

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/wire.h"
#include "server/tools/ask.h"
#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define CONFIG	   "orphan_seconds = 1\nquarantine_faults = 0\n"
#define LAUNCHES   20
#define TERMINATED 4
/* More than a program has left of the memory that its module's variables lie in. */
#define ASKED_BYTES (64 << 20)
#define ASK_LONG    60

static struct service service;

static void start(void)
{
	ck_assert(service_start_configured(&service, CONFIG));
}

static void stop(void)
{
	if (service.pid)
		ck_assert_int_eq(service_stop(&service), 0);
}

/* Counts on the device when it is ordered to, and says so twice: when everything is on its way, and
 * when it is done. Its end: 0 the number is right, 2 it is not, 3 told an error, TERMINATED told
 * that one. */
static int count(int progress, int orders)
{
	uint32_t by = 1, *host;
	CUdeviceptr word;
	void *arguments[] = {&word, &by};
	CUresult r = CUDA_SUCCESS;

	driver_open();
	word = device_words(1, 0);
	ck_cuda(cuMemHostAlloc((void **)&host, 4, 0));
	ck_cuda(launch("count_up", 1, 1, NULL, arguments));
	ck_cuda(cuCtxSynchronize());
	report(progress);
	ordered(orders, true);
	for (int i = 1; i < LAUNCHES && !r; i++)
		r = launch("count_up", 1, 1, NULL, arguments);
	if (!r)
		r = cuMemcpyDtoHAsync_v2(host, word, 4, NULL);
	report(progress);
	if (!r)
		r = cuCtxSynchronize();
	report(progress);
	if (r)
		return r == CUDA_ERROR_MPS_CLIENT_TERMINATED ? TERMINATED : 3;
	return *host == LAUNCHES ? 0 : 2;
}

static int trap(int progress, int orders)
{
	(void)progress;
	(void)orders;
	driver_open();
	ck_cuda(launch("crash_trap", 1, 1, NULL, NULL));
	return cuCtxSynchronize() == CUDA_ERROR_LAUNCH_FAILED ? 0 : 2;
}

/* Return: whether the service did it */
static bool order(const char *command, const struct child *child)
{
	char number[24], text[400], *answer = NULL;
	const char *argument = number;
	const struct wire_names arguments = {&argument, 1};
	int r;

	snprintf(number, sizeof(number), "%lld", status_session(&service, child->pid));
	r = ask_with(service.socket, command, &arguments, ASK_LONG, &answer, text, sizeof(text));
	/* Of one that is to move. */
	ck_assert_msg(r || !strstr(answer, "false"), "%s", answer);
	free(answer);
	return !r;
}

static long long commands_of(const struct child *child)
{
	return status_number(&service, child->pid, "commands");
}

static bool is_in_state(const struct child *child, const char *state)
{
	return status_is_in(&service, child->pid, state);
}

/* A program of which all is on its way and nothing is on the device. @ret_commands: of before its
 * pause */
static struct child start_paused(const char *kernels, long long *ret_commands)
{
	char *others = strdup(getenv("FRMPS_TEST_KERNELS"));
	struct child child;

	setenv("FRMPS_TEST_KERNELS", getenv(kernels), 1);
	child = child_start(count);
	setenv("FRMPS_TEST_KERNELS", others, 1);
	free(others);
	child_wait(&child, 1);
	*ret_commands = commands_of(&child);
	ck_assert(order("pause", &child));
	/* The serving thread has begun a turn since then. */
	ck_assert_int_eq(exit_status(spawn(one_program, 1)), 0);
	child_order(&child);
	child_wait(&child, 1);
	return child;
}

/* An executor that takes it over may not have done so yet. */
static void await_moves(const struct child *child, long long moves)
{
	for (int i = 0;
		i < 6000 && (status_moves(&service, child->pid) < moves || !is_in_state(child, "paused"));
		i++)
		pass_time(10);
	ck_assert_int_eq(status_moves(&service, child->pid), moves);
	ck_assert(is_in_state(child, "paused"));
}

static void see_it_wait(const struct child *child, long long commands)
{
	ck_assert(is_in_state(child, "paused"));
	ck_assert_int_eq(exit_status(spawn(one_program, 1)), 0);
	ck_assert_int_eq(commands_of(child), commands);
	ck_assert(child_runs(child));
}

static void see_it_end_well(struct child *child)
{
	ck_assert(order("resume", child));
	child_wait(child, 1);
	ck_assert_int_eq(child_end(child), 0);
	wait_closed(&service);
}

TEST(pauses, a_paused_program_waits_and_goes_on)
{
	long long commands;
	struct child child;

	start();
	child = start_paused("FRMPS_TEST_KERNELS", &commands);
	see_it_wait(&child, commands);
	ck_assert(order("pause", &child));
	see_it_wait(&child, commands);
	see_it_end_well(&child);
	ck_assert_int_eq(service_log_count(&service, "is paused"), 1);
	ck_assert_int_eq(service_log_count(&service, "is resumed"), 1);
}

/* Asks the service for memory when it is ordered to. */
static int asker(int progress, int orders)
{
	CUdeviceptr memory;
	CUresult r;

	driver_open();
	report(progress);
	ordered(orders, true);
	r = cuMemAlloc_v2(&memory, ASKED_BYTES);
	report(progress);
	return r ? 3 : 0;
}

TEST(pauses, its_requests_wait_as_well)
{
	struct child child;

	start();
	child = child_start(asker);
	child_wait(&child, 1);
	ck_assert(order("pause", &child));
	child_order(&child);
	ck_assert_int_eq(exit_status(spawn(one_program, 1)), 0);
	ck_assert_int_eq(kill(status_daemon(&service), SIGKILL), 0);
	ck_assert(service_log_wait(&service, "the daemon is back", 1, 60));
	pass_time(100);
	ck_assert(!child_progresses(&child));
	ck_assert_int_lt(status_number(&service, child.pid, "memory_bytes"), ASKED_BYTES);
	see_it_end_well(&child);
}

TEST(pauses, it_stays_paused_when_executors_and_daemons_die)
{
	long long commands;
	struct child child;

	start();
	child = start_paused("FRMPS_TEST_KERNELS", &commands);
	status_replace_active(&service, 1);
	await_moves(&child, 1);
	see_it_wait(&child, commands);
	ck_assert_int_eq(kill(status_daemon(&service), SIGKILL), 0);
	ck_assert(service_log_wait(&service, "the daemon is back", 1, 60));
	see_it_wait(&child, commands);
	status_replace_active(&service, 2);
	await_moves(&child, 2);
	see_it_wait(&child, commands);
	see_it_end_well(&child);
}

TEST(pauses, it_stays_paused_beside_a_fault)
{
	long long commands;
	struct child child, culprit;

	start();
	child = start_paused("FRMPS_TEST_KERNELS", &commands);
	culprit = child_start(trap);
	ck_assert_int_eq(child_end(&culprit), 0);
	status_await_faults(&service, 1);
	see_it_wait(&child, commands);
	see_it_end_well(&child);
}

TEST(pauses, it_stays_paused_in_an_executor_of_its_own)
{
	long long commands;
	struct child child;

	start();
	child = start_paused("FRMPS_TEST_COUNT_KERNELS", &commands);
	ck_assert(order("isolate", &child));
	await_moves(&child, 1);
	see_it_wait(&child, commands);
	see_it_end_well(&child);
}

TEST(pauses, it_can_be_terminated)
{
	long long commands;
	struct child child;

	start();
	child = start_paused("FRMPS_TEST_KERNELS", &commands);
	ck_assert(order("terminate", &child));
	child_wait(&child, 1);
	ck_assert_int_eq(child_end(&child), TERMINATED);
	wait_closed(&service);
}

TEST(pauses, it_can_be_killed)
{
	long long commands;
	struct child child;

	start();
	child = start_paused("FRMPS_TEST_KERNELS", &commands);
	ck_assert_int_eq(kill(child.pid, SIGKILL), 0);
	ck_assert_int_eq(child_end(&child), 1000 + SIGKILL);
	wait_closed(&service);
}

int main(void)
{
	Suite *suite = suite_create("pauses");
	TCase *tests = tcase_create("pauses");

	tcase_set_timeout(tests, 600);
	tcase_add_checked_fixture(tests, NULL, stop);
	suite_add(tests, "pauses");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
