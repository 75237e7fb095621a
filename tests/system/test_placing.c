// First uses of code beside a kernel that does not end, and programs that get an executor of their
// own while they run, because an operator says so. Who uses code that the driver loads waits for
// that kernel; everybody else notices nothing.
//
// FRMPS_TEST_SPLITS (20) is how many follow one another in the tests that repeat something.

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "protocol/wire.h"
#include "server/tools/ask.h"
#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define CONFIG	  "orphan_seconds = 1\nfault_patience_ms = 20000\nfault_stall_ms = 5000\nquarantine_faults = 0\n"
#define MOVED	  "has an executor of its own"
#define WAITS	  "waits for code that the driver loads"
#define NEWCOMERS 3

static struct service service;
static struct child runner;

static void start(const char *config)
{
	char text[600];

	setenv("FRMPS_HOST_FAULT_MS", "30", 1);
	snprintf(text, sizeof(text), CONFIG "%s", config);
	ck_assert(service_start_configured(&service, text));
}

static void stop(void)
{
	if (service.pid)
		ck_assert_int_eq(service_stop(&service), 0);
}

/*
 * Programs
 */

/* Its kernel ends when it is ordered to, and has begun when it says so: one that is only on its way
 * is in nobody's way. */
static int run_until_told(int progress, int orders)
{
	uint32_t *words;
	void *arguments[] = {&words};

	driver_open();
	words = shared_word();
	ck_cuda(launch("occupy", 1, 1, NULL, arguments));
	while (!__atomic_load_n(&words[0], __ATOMIC_ACQUIRE))
		pass_time(1);
	report(progress);
	ordered(orders, true);
	__atomic_store_n(&words[1], 1, __ATOMIC_RELEASE);
	ck_cuda(cuCtxSynchronize());
	return 0;
}

/* Counts on the device, exactly: 0, 2 after a wrong number, 3 when it is told an error. */
static int count(int progress, int orders)
{
	uint32_t counted = 0, by = 1, seen = 0, *host;
	CUdeviceptr word;
	CUresult error = CUDA_SUCCESS;

	setenv("FRMPS_RECOVERY", "fail", 1);
	driver_open();
	word = device_words(1, 0);
	ck_cuda(cuMemHostAlloc((void **)&host, 4, 0));
	while (!error && seen == counted && !ordered(orders, false)) {
		void *arguments[] = {&word, &by};

		for (int i = 0; i < 10 && !error; i++, counted++)
			error = launch("count_up", 1, 1, NULL, arguments);
		if (!error)
			error = cuMemcpyDtoHAsync_v2(host, word, 4, NULL);
		if (!error)
			error = cuStreamSynchronize(NULL);
		seen = *host;
		report(progress);
	}
	return error ? 3 : seen == counted ? 0 : 2;
}

/* Its code is there; when it is ordered to, it runs a kernel that needs more local memory than any
 * before. Its end: 0 if that counted. */
static int run_deep(int progress, int orders)
{
	uint32_t by = 7, seen = 0;
	CUdeviceptr word;
	void *arguments[] = {&word, &by};

	driver_open();
	word = device_words(1, 0);
	kernel("count_up");
	report(progress);
	ordered(orders, true);
	ck_cuda(launch("count_up_deep", 1, 1, NULL, arguments));
	ck_cuda(cuCtxSynchronize());
	ck_cuda(cuMemcpyDtoH_v2(&seen, word, 4));
	report(progress);
	return seen == by ? 0 : 2;
}

/* Its kernel faults when it is ordered to; it uses no code before. Its end is 0 if it was told. */
static int fault_when_told(int progress, int orders)
{
	CUfunction trap;

	driver_open();
	report(progress);
	ordered(orders, true);
	trap = kernel("crash_trap");
	cuLaunchKernel(trap, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	return cuCtxSynchronize() == CUDA_ERROR_LAUNCH_FAILED ? 0 : 2;
}

/* Threads of the host backend's device, and kernels without end in more streams than that. */
#define DEVICE_THREADS 64
#define HOGS	       80

static int hog(int progress, int orders)
{
	CUstream streams[HOGS];
	uint32_t *words;
	void *arguments[] = {&words};

	driver_open();
	words = shared_word();
	for (int i = 0; i < HOGS; i++) {
		ck_cuda(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
		ck_cuda(launch("occupy", 1, 1, streams[i], arguments));
	}
	while (__atomic_load_n(&words[2], __ATOMIC_ACQUIRE) < DEVICE_THREADS)
		pass_time(1);
	report(progress);
	ordered(orders, true);
	__atomic_store_n(&words[1], 1, __ATOMIC_RELEASE);
	ck_cuda(cuCtxSynchronize());
	return 0;
}

/* Its code has variables, which get their first values by a copy. Its end: 0 if it was told that
 * the device does not take them, and had them when it was ordered to try again. */
static int load_variables(int progress, int orders)
{
	const char *name = getenv("FRMPS_TEST_MOVED_KERNELS");
	CUresult error;
	CUmodule module;

	driver_attach();
	error = cuModuleLoad(&module, name);
	report(progress);
	ordered(orders, true);
	ck_cuda(cuModuleLoad(&module, name));
	return error == CUDA_ERROR_SYSTEM_NOT_READY ? 0 : 2;
}

/* How often a test does it again that must catch a moment, or see nothing grow. */
static int repetitions(void)
{
	const char *value = getenv("FRMPS_TEST_SPLITS");

	return value ? atoi(value) : 20;
}

/* With the module that an environment variable names. */
static struct child start_with(const char *variable, int (*program)(int progress, int orders))
{
	const char *others = getenv("FRMPS_TEST_KERNELS");
	char *kept = strdup(others ? others : "");
	struct child child;

	setenv("FRMPS_TEST_KERNELS", getenv(variable), 1);
	child = child_start(program);
	setenv("FRMPS_TEST_KERNELS", kept, 1);
	free(kept);
	return child;
}

/* With kernels that keep nothing in the context, and that the driver loads. */
static struct child start_stateless(int (*program)(int progress, int orders))
{
	return start_with("FRMPS_TEST_COUNT_KERNELS", program);
}

/* With kernels that keep something there: it cannot be moved. */
static struct child start_held(int (*program)(int progress, int orders))
{
	return start_with("FRMPS_TEST_HELD_KERNELS", program);
}

static void start_runner(void)
{
	runner = child_start(run_until_told);
	child_wait(&runner, 1);
}

/* It has not noticed anything. Its kernel ends. */
static void end_runner(void)
{
	ck_assert(child_runs(&runner));
	child_order(&runner);
	ck_assert_int_eq(child_end(&runner), 0);
}

static void end_well(struct child *child)
{
	child_order(child);
	ck_assert_int_eq(child_end(child), 0);
}

/* Still at it. */
static void see_it_go_on(const struct child *child)
{
	child_drain(child);
	child_wait(child, 3);
}

static json_t *status_now(void)
{
	char *text = NULL;
	json_t *root;

	/* A daemon that has just died is back soon. */
	for (int i = 0; i < 100 && !text; i++)
		text = service_status(&service);
	root = json_loads(text ? text : "", 0, NULL);
	free(text);
	ck_assert_ptr_nonnull(root);
	return root;
}

static int domains(void)
{
	json_t *root = status_now();
	int found = (int)json_array_size(json_object_get(root, "domains"));

	json_decref(root);
	return found;
}

/* Nothing says so: it is asked for. */
static void wait_domains(int count_of_them)
{
	for (int i = 0; i < 600 && domains() != count_of_them; i++)
		pass_time(50);
	ck_assert_int_eq(domains(), count_of_them);
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Not before the runner's kernel ends. */
static struct child start_waiting(int (*program)(int progress, int orders), int waiting)
{
	struct child child = start_stateless(program);

	ck_assert(service_log_wait(&service, WAITS, waiting, 60));
	ck_assert(!child_progresses(&child));
	return child;
}

/*
 * Newcomers
 */

TEST(newcomers, a_newcomer_beside_an_endless_kernel_computes)
{
	struct child newcomer;
	uint64_t begin;

	start("");
	start_runner();
	begin = now_ms();
	newcomer = child_start(count);
	child_wait(&newcomer, 1);
	printf("a newcomer took %llu ms\n", (unsigned long long)(now_ms() - begin));
	end_well(&newcomer);
	end_runner();
	wait_closed(&service);
	ck_assert_int_eq(service_log_count(&service, WAITS), 0);
	ck_assert_int_eq(service_log_count(&service, MOVED), 0);
}

/* The driver loads its code, and would wait for the endless kernel with everybody's launches. */
TEST(newcomers_2, code_of_the_driver_waits_for_an_endless_kernel_and_holds_nobody_up)
{
	struct child busy, waiting, newcomer;

	start("");
	busy = child_start(count);
	child_wait(&busy, 3);
	start_runner();
	waiting = start_waiting(count, 1);
	newcomer = child_start(count);
	child_wait(&newcomer, 10);
	see_it_go_on(&busy);
	ck_assert(!child_progresses(&waiting));
	ck_assert_int_eq(domains(), 1);
	end_runner();
	child_wait(&waiting, 3);
	see_it_go_on(&busy);
	end_well(&waiting);
	end_well(&newcomer);
	end_well(&busy);
	wait_closed(&service);
	ck_assert_int_eq(service_log_count(&service, MOVED), 0);
}

/* As natively, the driver waits for the endless kernel where it has to make room, with everybody's
 * launches.
 */
TEST(room_2, a_kernel_that_needs_local_memory_holds_nobody_up)
{
	struct child busy, deep;

	start("");
	busy = child_start(count);
	child_wait(&busy, 3);
	deep = start_stateless(run_deep);
	child_wait(&deep, 1);
	start_runner();
	child_order(&deep);
	ck_assert(service_log_wait(&service, WAITS, 1, 60));
	see_it_go_on(&busy);
	ck_assert(!child_progresses(&deep));
	end_runner();
	child_wait(&deep, 1);
	ck_assert_int_eq(child_end(&deep), 0);
	see_it_go_on(&busy);
	end_well(&busy);
	wait_closed(&service);
}

/* A copy of the service's own that does not get through is no sign of a fault, and not lost. */
TEST(room, variables_that_wait_for_the_device_hurt_nobody)
{
	struct child first, newcomer;

	start("");
	first = child_start(hog);
	child_wait(&first, 1);
	newcomer = child_start(load_variables);
	child_wait(&newcomer, 1);
	child_order(&first);
	ck_assert_int_eq(child_end(&first), 0);
	child_order(&newcomer);
	ck_assert_int_eq(child_end(&newcomer), 0);
	ck_assert_int_eq(service_log_count(&service, "verdict:"), 0);
}

TEST(newcomers_2, all_who_wait_are_served)
{
	struct child busy, waiting[NEWCOMERS];

	start("");
	busy = child_start(count);
	child_wait(&busy, 3);
	start_runner();
	for (int i = 0; i < NEWCOMERS; i++)
		waiting[i] = start_waiting(count, i + 1);
	see_it_go_on(&busy);
	end_runner();
	for (int i = 0; i < NEWCOMERS; i++)
		child_wait(&waiting[i], 10);
	see_it_go_on(&busy);
	for (int i = 0; i < NEWCOMERS; i++)
		end_well(&waiting[i]);
	end_well(&busy);
	wait_closed(&service);
	ck_assert_int_eq(service_log_count(&service, MOVED), 0);
}

/* While it is tried, and while it rests. */
TEST(newcomers_2, a_newcomer_that_is_killed_leaves_nothing)
{
	struct child newcomer;

	start("");
	start_runner();
	for (int i = 0; i < repetitions(); i++) {
		newcomer = start_stateless(count);
		pass_time(30 + 100 * i / repetitions());
		ck_assert_int_eq(kill(newcomer.pid, SIGKILL), 0);
		child_end(&newcomer);
	}
	newcomer = start_waiting(count, 1);
	ck_assert_int_eq(kill(newcomer.pid, SIGKILL), 0);
	/* Nothing says so: it is asked for. */
	for (int i = 0; i < 600 && status_session(&service, newcomer.pid); i++)
		pass_time(50);
	ck_assert_int_eq(status_session(&service, newcomer.pid), 0);
	child_end(&newcomer);
	end_runner();
	wait_closed(&service);
}

/*
 * By order
 */

/* @reason: why it may stay; empty: it may not */
static bool isolate(const struct child *child, const char *reason)
{
	char why[400];

	ck_assert_msg(status_isolate(&service, child->pid, why, sizeof(why)), "%s", why);
	ck_assert_msg(!*why || (*reason && strstr(why, reason)), "it stays: %s", why);
	return !*why;
}

TEST(orders, a_running_program_is_isolated_by_order)
{
	struct child other, one, variables;

	start("");
	other = child_start(count);
	one = start_stateless(count);
	variables = start_held(count);
	child_wait(&one, 3);
	child_wait(&other, 3);
	child_wait(&variables, 3);
	ck_assert(isolate(&one, ""));
	ck_assert_int_eq(domains(), 2);
	see_it_go_on(&one);
	see_it_go_on(&other);
	ck_assert_int_eq(status_moves(&service, one.pid), 1);
	ck_assert_int_eq(status_moves(&service, other.pid), 0);
	ck_assert(!isolate(&one, "alone already"));
	ck_assert(!isolate(&variables, "variables"));
	ck_assert_int_eq(service_log_count(&service, MOVED), 1);
	see_it_go_on(&variables);
	end_well(&one);
	end_well(&other);
	end_well(&variables);
	wait_closed(&service);
	wait_domains(1);
}

TEST(orders, faults_hurt_their_own_domain)
{
	struct child busy, isolated, bad, worse;

	start("");
	busy = child_start(survivor);
	child_wait(&busy, 3);
	isolated = start_stateless(count);
	child_wait(&isolated, 3);
	bad = child_start(fault_when_told);
	child_wait(&bad, 1);
	ck_assert(isolate(&isolated, ""));
	ck_assert(isolate(&bad, ""));
	start_runner();
	end_well(&bad);
	see_it_go_on(&isolated);
	see_it_go_on(&busy);
	/* Only what is on the device beside a fault is in its way. */
	end_runner();
	worse = child_start(fault_when_told);
	child_wait(&worse, 1);
	end_well(&worse);
	ck_assert_int_eq(service_log_count(&service, MOVED), 2);
	see_it_go_on(&isolated);
	see_it_go_on(&busy);
	end_well(&isolated);
	end_well(&busy);
	wait_closed(&service);
}

TEST(orders, many_leave_nothing)
{
	int count_of_them = repetitions(), fds[2], threads[2];
	struct child one;

	start("");
	for (int i = 0; i < count_of_them; i++) {
		one = start_stateless(count);
		child_wait(&one, 2);
		ck_assert(isolate(&one, ""));
		see_it_go_on(&one);
		end_well(&one);
		wait_closed(&service);
		wait_domains(1);
		if (i == count_of_them / 4)
			status_footprint(&service, &fds[0], &threads[0]);
	}
	status_footprint(&service, &fds[1], &threads[1]);
	for (int i = 0; i < 40 && (fds[1] > fds[0] || threads[1] > threads[0]); i++) {
		pass_time(500);
		service_footprint(&service, &fds[1], &threads[1]);
	}
	ck_assert_int_le(fds[1], fds[0]);
	ck_assert_int_le(threads[1], threads[0]);
}

/*
 * The daemon dies meanwhile
 */

static void kill_daemon(void)
{
	json_t *root = status_now();
	pid_t pid = (pid_t)json_integer_value(json_object_get(root, "pid"));

	json_decref(root);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
}

/* The daemon may die before it answers. */
static int order_move(int session)
{
	char number[24], why[400], *answer = NULL;
	const char *argument = number;
	const struct wire_names arguments = {&argument, 1};

	snprintf(number, sizeof(number), "%d", session);
	ask_with(service.socket, "isolate", &arguments, 60, &answer, why, sizeof(why));
	free(answer);
	return 0;
}

/* At any moment of it. */
TEST(deaths, the_daemon_dies_while_a_program_moves)
{
	struct child one;
	pid_t orderer;

	start("");
	for (int i = 0; i < repetitions(); i++) {
		one = start_stateless(count);
		child_wait(&one, 3);
		orderer = spawn(order_move, (int)status_session(&service, one.pid));
		pass_time(10 + 60 * i / repetitions());
		kill_daemon();
		ck_assert(service_log_wait(&service, "the daemon is back", i + 1, 60));
		ck_assert_int_eq(exit_status(orderer), 0);
		see_it_go_on(&one);
		end_well(&one);
	}
	wait_closed(&service);
	wait_domains(1);
}

TEST(deaths, the_daemon_dies_while_a_newcomer_waits)
{
	struct child newcomer;

	start("");
	start_runner();
	newcomer = start_waiting(count, 1);
	kill_daemon();
	ck_assert(service_log_wait(&service, "the daemon is back", 1, 60));
	ck_assert(!child_progresses(&newcomer));
	end_runner();
	child_wait(&newcomer, 3);
	end_well(&newcomer);
	wait_closed(&service);
}

int main(void)
{
	Suite *suite = suite_create("placing");
	TCase *tests = tcase_create("newcomers"), *room = tcase_create("room"),
	      *orders = tcase_create("orders"), *deaths = tcase_create("deaths");

	tcase_set_timeout(tests, 600);
	tcase_set_timeout(room, 600);
	tcase_set_timeout(orders, 600);
	tcase_set_timeout(deaths, 600);
	tcase_add_checked_fixture(tests, NULL, stop);
	tcase_add_checked_fixture(room, NULL, stop);
	tcase_add_checked_fixture(orders, NULL, stop);
	tcase_add_checked_fixture(deaths, NULL, stop);
	suite_add(tests, "newcomers");
	/* It fills the device in a way that is this one's. */
	if (strcmp(getenv("FRMPS_TEST_BACKEND"), "cuda") != 0)
		suite_add(room, "room");
	suite_add(room, "room_2");
	suite_add(tests, "newcomers_2");
	suite_add(orders, "orders");
	suite_add(deaths, "deaths");
	suite_add_tcase(suite, tests);
	suite_add_tcase(suite, room);
	suite_add_tcase(suite, orders);
	suite_add_tcase(suite, deaths);
	return suite_run(suite);
}
