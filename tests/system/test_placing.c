// Programs that get an executor of their own while they run: because their code cannot be loaded
// beside a kernel that does not end, or because an operator says so. They notice nothing but time;
// neither do the others.
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

#define CONFIG                                                                                               \
	"load_patience_ms = 300\nload_place_ms = 60000\norphan_seconds = 1\nfault_patience_ms = 20000\n"     \
	"fault_stall_ms = 5000\nquarantine_faults = 0\n"
#define MOVED	  "has an executor of its own"
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

/* Its kernel does not end, and has begun when it says so: one that is only on its way keeps no code
 * out. */
static int run_for_ever(int progress, int orders)
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

/* Its kernel faults when it is ordered to. Its end is 0 if it was told. */
static int fault_when_told(int progress, int orders)
{
	CUfunction trap;

	driver_open();
	trap = kernel("crash_trap");
	report(progress);
	ordered(orders, true);
	cuLaunchKernel(trap, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
	return cuCtxSynchronize() == CUDA_ERROR_LAUNCH_FAILED ? 0 : 2;
}

/* Told this often that its code cannot be loaded, when it is ordered to; it cannot be moved, for
 * its kernels keep something. Its end: 0 as described, 2 otherwise. */
#define TOLD_TIMES 3
static int load_more(int progress, int orders)
{
	CUresult error = CUDA_ERROR_SYSTEM_NOT_READY;
	CUfunction function;
	CUmodule module;

	driver_open();
	kernel("count_up");
	ck_cuda(cuModuleLoad(&module, getenv("FRMPS_TEST_COUNT_KERNELS")));
	report(progress);
	ordered(orders, true);
	for (int i = 0; i < TOLD_TIMES && error == CUDA_ERROR_SYSTEM_NOT_READY; i++) {
		error = cuModuleGetFunction(&function, module, "count_up");
		report(progress);
	}
	return error == CUDA_ERROR_SYSTEM_NOT_READY ? 0 : 2;
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

/* Its code has variables, which get their first values by a copy. */
static int load_variables(int progress, int orders)
{
	CUmodule module;

	driver_attach();
	report(progress);
	ck_cuda(cuModuleLoad(&module, getenv("FRMPS_TEST_MOVED_KERNELS")));
	report(progress);
	ordered(orders, true);
	return 0;
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

/* With kernels that keep nothing in the context. */
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
	runner = child_start(run_for_ever);
	child_wait(&runner, 1);
}

/* It has not noticed anything. */
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

/*
 * Newcomers
 */

START_TEST(a_newcomer_beside_an_endless_kernel_computes)
{
	struct child newcomer;
	uint64_t begin;

	start("");
	start_runner();
	begin = now_ms();
	newcomer = child_start(count);
	child_wait(&newcomer, 1);
	printf("a newcomer took %llu ms\n", (unsigned long long)(now_ms() - begin));
	ck_assert_int_eq(service_log_count(&service, MOVED), 1);
	end_well(&newcomer);
	end_runner();
	wait_closed(&service);
}
END_TEST

/* As natively, the driver waits for the endless kernel where it has to make room, with everybody's
 * launches.
 */
START_TEST(a_kernel_that_needs_local_memory_holds_nobody_up)
{
	struct child busy, deep;

	start("");
	busy = child_start(count);
	child_wait(&busy, 3);
	deep = start_stateless(run_deep);
	child_wait(&deep, 1);
	start_runner();
	child_order(&deep);
	see_it_go_on(&busy);
	child_wait(&deep, 1);
	ck_assert_int_eq(child_end(&deep), 0);
	ck_assert_int_eq(service_log_count(&service, MOVED), 1);
	see_it_go_on(&busy);
	end_well(&busy);
	end_runner();
	wait_closed(&service);
}
END_TEST

/* A copy of the service's own that does not get through is no sign of a fault, and not lost. */
START_TEST(variables_that_wait_for_the_device_hurt_nobody)
{
	struct child first, newcomer;

	start("");
	first = child_start(hog);
	child_wait(&first, 1);
	newcomer = child_start(load_variables);
	child_wait(&newcomer, 1);
	/* It may come to its memory yet, so it does not go anywhere else. */
	ck_assert(service_log_wait(&service, "stays with the others: its own work does not end", 1, 60));
	child_order(&first);
	child_wait(&newcomer, 1);
	child_order(&newcomer);
	ck_assert_int_eq(child_end(&newcomer), 0);
	ck_assert_int_eq(child_end(&first), 0);
	ck_assert_int_eq(service_log_count(&service, "verdict:"), 0);
}
END_TEST

START_TEST(everybody_else_stays_exact)
{
	struct child busy, newcomers[NEWCOMERS];

	start("");
	busy = child_start(count);
	child_wait(&busy, 3);
	start_runner();
	for (int i = 0; i < NEWCOMERS; i++)
		newcomers[i] = child_start(count);
	for (int i = 0; i < NEWCOMERS; i++)
		child_wait(&newcomers[i], 10);
	ck_assert_int_eq(service_log_count(&service, MOVED), NEWCOMERS);
	ck_assert_int_eq(domains(), 1 + NEWCOMERS);
	see_it_go_on(&busy);
	for (int i = 0; i < NEWCOMERS; i++)
		end_well(&newcomers[i]);
	end_well(&busy);
	end_runner();
	wait_closed(&service);
}
END_TEST

/* Those that can be moved do not wait for those that cannot; these have load_place_ms once, not
 * each time. */
START_TEST(everybody_is_moved_or_told)
{
	struct child stay[NEWCOMERS], newcomers[NEWCOMERS];
	uint64_t begin;

	/* Also for those that move, whose executors have to start: a context needs seconds on a
	 * GPU. */
	start(strcmp(getenv("FRMPS_TEST_BACKEND"), "cuda") == 0 ? "load_place_ms = 20000\n"
								: "load_place_ms = 8000\n");
	for (int i = 0; i < NEWCOMERS; i++) {
		stay[i] = start_held(load_more);
		child_wait(&stay[i], 1);
	}
	start_runner();
	begin = now_ms();
	for (int i = 0; i < NEWCOMERS; i++)
		newcomers[i] = child_start(count);
	/* Now the runner's kernel is on the device for certain. */
	ck_assert(service_log_wait(&service, MOVED, 1, 60));
	for (int i = 0; i < NEWCOMERS; i++)
		child_order(&stay[i]);
	for (int i = 0; i < NEWCOMERS; i++)
		child_wait(&newcomers[i], 3);
	for (int i = 0; i < NEWCOMERS; i++)
		child_wait(&stay[i], TOLD_TIMES);
	printf("all are moved or told after %llu ms\n", (unsigned long long)(now_ms() - begin));
	ck_assert_int_eq(service_log_count(&service, MOVED), NEWCOMERS);
	ck_assert(service_log_wait(&service, "cannot load its code", NEWCOMERS * TOLD_TIMES, 60));
	ck_assert_int_eq(service_log_count(&service, "cannot have an executor of its own"), NEWCOMERS);
	for (int i = 0; i < NEWCOMERS; i++) {
		ck_assert_int_eq(child_end(&stay[i]), 0);
		end_well(&newcomers[i]);
	}
	end_runner();
	wait_closed(&service);
}
END_TEST

START_TEST(faults_hurt_their_own_domain)
{
	struct child busy, newcomer, bad, worse;

	start("");
	busy = child_start(survivor);
	child_wait(&busy, 3);
	start_runner();
	newcomer = child_start(count);
	bad = child_start(fault_when_told);
	child_wait(&newcomer, 3);
	child_wait(&bad, 1);
	ck_assert_int_eq(service_log_count(&service, MOVED), 2);
	end_well(&bad);
	see_it_go_on(&newcomer);
	see_it_go_on(&busy);
	end_runner();
	/* Only what is on the device beside a fault is in its way. */
	ck_assert(service_log_wait(&service, "session closed", 2, 60));
	worse = child_start(fault_when_told);
	child_wait(&worse, 1);
	end_well(&worse);
	ck_assert_int_eq(service_log_count(&service, MOVED), 2);
	see_it_go_on(&newcomer);
	see_it_go_on(&busy);
	end_well(&newcomer);
	end_well(&busy);
	wait_closed(&service);
}
END_TEST

/* At any moment of it. */
START_TEST(a_newcomer_that_is_killed_leaves_nothing)
{
	struct child newcomer;

	start("load_patience_ms = 50\n");
	start_runner();
	for (int i = 0; i < repetitions(); i++) {
		newcomer = child_start(count);
		pass_time(30 + 100 * i / repetitions());
		ck_assert_int_eq(kill(newcomer.pid, SIGKILL), 0);
		child_end(&newcomer);
	}
	end_runner();
	wait_closed(&service);
	wait_domains(1);
}
END_TEST

/*
 * By order
 */

static bool isolate(const struct child *child, const char *reason)
{
	char number[24], text[400], *answer = NULL;
	const char *argument = number;
	const struct wire_names arguments = {&argument, 1};
	json_t *root;
	bool moved;

	snprintf(number, sizeof(number), "%lld", status_session(&service, child->pid));
	ck_assert_msg(!ask_with(service.socket, "isolate", &arguments, 60, &answer, text, sizeof(text)), "%s",
		text);
	root = json_loads(answer, 0, NULL);
	moved = json_is_true(json_object_get(root, "moved"));
	ck_assert_msg(
		moved || (*reason && strstr(json_string_value(json_object_get(root, "reason")), reason)),
		"it stays: %s", answer);
	free(answer);
	json_decref(root);
	return moved;
}

START_TEST(a_running_program_is_isolated_by_order)
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
END_TEST

START_TEST(many_leave_nothing)
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
END_TEST

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

START_TEST(the_daemon_dies_while_a_newcomer_is_placed)
{
	struct child newcomer;

	start("load_patience_ms = 50\n");
	start_runner();
	for (int i = 0; i < repetitions(); i++) {
		newcomer = child_start(count);
		pass_time(45 + 40 * i / repetitions());
		kill_daemon();
		child_wait(&newcomer, 3);
		ck_assert(service_log_wait(&service, "the daemon is back", i + 1, 60));
		see_it_go_on(&newcomer);
		end_well(&newcomer);
	}
	end_runner();
	wait_closed(&service);
	wait_domains(1);
}
END_TEST

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
	tcase_add_test(tests, a_newcomer_beside_an_endless_kernel_computes);
	/* It fills the device in a way that is this one's. */
	if (strcmp(getenv("FRMPS_TEST_BACKEND"), "cuda") != 0)
		tcase_add_test(room, variables_that_wait_for_the_device_hurt_nobody);
	tcase_add_test(room, a_kernel_that_needs_local_memory_holds_nobody_up);
	tcase_add_test(tests, everybody_else_stays_exact);
	tcase_add_test(tests, everybody_is_moved_or_told);
	tcase_add_test(tests, faults_hurt_their_own_domain);
	tcase_add_test(tests, a_newcomer_that_is_killed_leaves_nothing);
	tcase_add_test(orders, a_running_program_is_isolated_by_order);
	tcase_add_test(orders, many_leave_nothing);
	tcase_add_test(deaths, the_daemon_dies_while_a_newcomer_is_placed);
	suite_add_tcase(suite, tests);
	suite_add_tcase(suite, room);
	suite_add_tcase(suite, orders);
	suite_add_tcase(suite, deaths);
	return suite_run(suite);
}
