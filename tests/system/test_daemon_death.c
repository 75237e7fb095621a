// The daemon dies, at rest and at any instant of its work. Programs go on, a new daemon takes over
// everything, each request is answered once, nothing is lost or left behind. To have no daemon for
// as long as a test wants, its holder is stopped with SIGSTOP before the daemon is killed. The
// keeper may die as well.
//
// FRMPS_TEST_DAEMON_KILLS (50) is how often the daemon is killed in the burst.

#include <jansson.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define BACK		  "the daemon is back"
#define CLIENTS		  8
#define EXECUTORS	  2
#define KEPT_BYTES	  (UINT64_C(6) << 20)
#define STEP_BYTES	  (UINT64_C(4) << 20)
#define PROMOTIONS	  40
#define PROMOTION_STEP_NS 100000
#define HOST_BYTES	  (UINT64_C(64) << 10)
#define QUICK_CRASHES	  9
#define DOUBLE_DEATHS	  24

static struct service service;
static int lives; /* daemons that were killed */

static void start(void)
{
	lives = 0;
	ck_assert(service_start(&service, NULL));
}

static void stop(void)
{
	if (service.pid)
		ck_assert_int_eq(service_stop(&service), 0);
}

/*
 * What the service says
 */

static json_t *status_now(void)
{
	return status_of(&service);
}

static long long number(const json_t *json, const char *key)
{
	return (long long)json_integer_value(json_object_get(json, key));
}

static json_t *domain_of(const json_t *status)
{
	return json_array_get(json_object_get(status, "domains"), 0);
}

static size_t client_count(void)
{
	json_t *status = status_now();
	size_t count = json_array_size(json_object_get(domain_of(status), "clients"));

	json_decref(status);
	return count;
}

/* Pids of the executors, active first, when all are ready. */
static void executor_pids(pid_t pids[EXECUTORS])
{
	json_t *status, *one;
	size_t index, standby = 1;

	status_await_executors(&service);
	status = status_now();
	json_array_foreach (json_object_get(domain_of(status), "executors"), index, one) {
		bool active = !strcmp(json_string_value(json_object_get(one, "role")), "active");

		ck_assert(active || standby < EXECUTORS);
		pids[active ? 0 : standby++] = (pid_t)number(one, "pid");
	}
	json_decref(status);
	ck_assert_uint_eq(standby, EXECUTORS);
}

/*
 * Killing
 */

/* A zombie counts: its parent may be stopped. */
static void wait_dead(int pidfd)
{
	struct pollfd wait = {.fd = pidfd, .events = POLLIN};

	ck_assert_int_eq(poll(&wait, 1, 60000), 1);
	close(pidfd);
}

static int watch_process(pid_t pid)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

	ck_assert_int_ge(pidfd, 0);
	return pidfd;
}

static void kill_and_wait(pid_t pid, int signal_number)
{
	int pidfd = watch_process(pid);

	ck_assert_int_eq(kill(pid, signal_number), 0);
	wait_dead(pidfd);
}

/* No daemon from here on. */
static void kill_daemon_for_long(void)
{
	pid_t pid = status_daemon(&service);

	ck_assert_int_eq(kill(service.pid, SIGSTOP), 0);
	kill_and_wait(pid, SIGKILL);
	lives++;
}

static void wait_back(void)
{
	ck_assert(service_log_wait(&service, BACK, lives, 60));
}

static void let_it_come_back(void)
{
	ck_assert_int_eq(kill(service.pid, SIGCONT), 0);
	wait_back();
}

/*
 * Programs
 */

/* Launches until it is ordered; then everything that needs the daemon; then it ends. */
static int busy(int progress, int orders)
{
	uint64_t expected = 0;
	uint32_t one = 1, sum = 0;
	CUmodule module;
	CUdeviceptr p, counter;
	void *image, *pinned;
	void *count_up[] = {&counter, &one};

	driver_open();
	counter = device_words(1, 0);
	ck_cuda(cuMemAlloc_v2(&p, KEPT_BYTES));
	while (!ordered(orders, false)) {
		ck_cuda(launch("count_up", 1, 1, NULL, count_up));
		ck_cuda(cuCtxSynchronize());
		expected++;
		report(progress);
	}
	image = read_file(getenv("FRMPS_TEST_KERNELS"));
	ck_cuda(cuModuleLoadData(&module, image));
	free(image);
	ck_cuda(cuMemFree_v2(p));
	ck_cuda(cuMemAlloc_v2(&p, STEP_BYTES));
	ck_cuda(cuMemHostAlloc(&pinned, HOST_BYTES, 0));
	ck_cuda(cuModuleUnload(module));
	ck_cuda(launch("count_up", 1, 1, NULL, count_up));
	ck_cuda(cuMemcpyDtoH_v2(&sum, counter, 4));
	return sum == (uint32_t)expected + 1 ? 0 : 2;
}

/* One round of requests of every kind; each must be answered, with success. */
static void request_round(const void *image, uint32_t round)
{
	uint64_t count = 256;
	CUdeviceptr p, q, global;
	CUfunction function;
	CUmodule module;
	uint32_t word = 0;
	void *pinned, *mix[] = {&q, &p, &round, &count};
	size_t free_bytes, total;

	ck_cuda(cuMemAlloc_v2(&p, STEP_BYTES));
	ck_cuda(cuMemAlloc_v2(&q, STEP_BYTES));
	ck_cuda(cuMemHostAlloc(&pinned, HOST_BYTES, 0));
	ck_cuda(cuMemsetD32_v2(p, 7, count));
	ck_cuda(cuModuleLoadData(&module, image));
	ck_cuda(cuModuleGetFunction(&function, module, "mix"));
	ck_cuda(cuModuleGetGlobal_v2(&global, NULL, module, "global_words"));
	ck_cuda(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, mix, NULL));
	ck_cuda(cuMemcpyDtoH_v2(&word, q + 4, 4));
	if (word != mixed(7, round, 1))
		ck_abort_msg("a word is wrong");
	ck_cuda(cuModuleUnload(module));
	ck_cuda(cuMemGetInfo_v2(&free_bytes, &total));
	ck_cuda(cuMemFreeHost(pinned));
	ck_cuda(cuMemFree_v2(p));
	ck_cuda(cuMemFree_v2(q));
}

/* Requests until it is ordered; then it says so, keeps what it holds and waits for one more
 * order. */
static int requester(int progress, int orders)
{
	CUdeviceptr kept;
	void *image;

	driver_open();
	image = read_file(getenv("FRMPS_TEST_KERNELS"));
	ck_cuda(cuMemAlloc_v2(&kept, KEPT_BYTES));
	report(progress);
	for (uint32_t round = 0; !ordered(orders, false); round++)
		request_round(image, round);
	free(image);
	report(progress);
	return ordered(orders, true) ? 0 : 3;
}

/* Faults when it is ordered. */
static int culprit(int progress, int orders)
{
	uint64_t nowhere = UINT64_C(0x10);
	void *arguments[] = {&nowhere};
	CUdeviceptr p;

	driver_open();
	ck_cuda(cuMemAlloc_v2(&p, 4096));
	kernel("crash_write"); /* a request: not possible later */
	report(progress);
	ordered(orders, true);
	ck_cuda(launch("crash_write", 1, 1, NULL, arguments));
	report(progress);
	return cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS ? 0 : 2;
}

/* Free device memory as a new program sees it, MiB. */
static long free_mib(void)
{
	int ends[2];
	long mib = -1;
	pid_t pid;

	ck_assert_int_eq(pipe(ends), 0);
	pid = fork();
	if (pid == 0) {
		size_t bytes = 0, total = 0;

		driver_attach();
		ck_cuda(cuMemGetInfo_v2(&bytes, &total));
		mib = (long)(bytes >> 20);
		_exit(write(ends[1], &mib, sizeof(mib)) == sizeof(mib) ? 0 : 1);
	}
	ck_assert_int_eq(exit_status(pid), 0);
	ck_assert_int_eq(read(ends[0], &mib, sizeof(mib)), sizeof(mib));
	close(ends[0]);
	close(ends[1]);
	return mib;
}

/*
 * Tests
 */

/* What must be the same in the old and the new daemon's eyes. */
static void compare(const json_t *before, const json_t *after)
{
	json_t *old = json_array_get(json_object_get(domain_of(before), "clients"), 0),
	       *new = json_array_get(json_object_get(domain_of(after), "clients"), 0);

	ck_assert_int_ne(number(before, "pid"), number(after, "pid"));
	ck_assert_int_eq(number(before, "holder"), number(after, "holder"));
	ck_assert_int_eq(number(json_object_get(before, "keeper"), "pid"),
		number(json_object_get(after, "keeper"), "pid"));
	ck_assert(json_equal(json_object_get(domain_of(before), "executors"),
		json_object_get(domain_of(after), "executors")));
	ck_assert_int_eq(number(domain_of(before), "generation"), number(domain_of(after), "generation"));
	ck_assert_int_eq(number(old, "session"), number(new, "session"));
	ck_assert_int_eq(number(old, "pid"), number(new, "pid"));
	ck_assert_int_ge(number(old, "memory_bytes"), (long long)KEPT_BYTES);
	ck_assert_int_eq(number(old, "memory_bytes"), number(new, "memory_bytes"));
	ck_assert_int_eq(number(old, "host_bytes"), number(new, "host_bytes"));
	ck_assert_int_lt(number(old, "commands"), number(new, "commands"));
	ck_assert_int_eq(number(json_object_get(after, "counters"), "sessions_opened"), 1);
	ck_assert_int_eq(number(json_object_get(after, "counters"), "daemons_lost"), lives);
}

START_TEST(programs_go_on_and_everything_is_taken_over)
{
	struct child child = child_start(busy);
	json_t *before, *after;

	child_wait(&child, 3);
	status_await_executors(&service);
	before = status_now();
	kill_daemon_for_long();
	child_drain(&child);
	child_wait(&child, 20);
	ck_assert_int_eq(service_log_count(&service, BACK), 0);
	let_it_come_back();
	after = status_now();
	compare(before, after);
	json_decref(before);
	json_decref(after);
	/* A newcomer, and then what the old one needs a daemon for. */
	ck_assert_int_eq(exit_status(spawn(one_program, 4)), 0);
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
	status_await_rest(&service);
}
END_TEST

START_TEST(a_request_made_without_a_daemon_waits_for_the_next)
{
	struct child child = child_start(busy);

	child_wait(&child, 1);
	kill_daemon_for_long();
	child_order(&child);
	pass_time(20);
	ck_assert(child_runs(&child));
	let_it_come_back();
	ck_assert_int_eq(child_end(&child), 0);
}
END_TEST

static void kill_daemon_somewhen(unsigned delay_us)
{
	struct timespec delay = {.tv_nsec = (long)delay_us * 1000};

	nanosleep(&delay, NULL);
	kill_and_wait(status_daemon(&service), SIGKILL);
	lives++;
	wait_back();
}

/* Each has something to do from here on. */
static void start_requesters(struct child *children)
{
	for (int i = 0; i < CLIENTS; i++)
		children[i] = child_start(requester);
	for (int i = 0; i < CLIENTS; i++)
		child_wait(&children[i], 1);
}

/* All are there, and what they did came out well. */
static void end_requesters(struct child *children)
{
	for (int i = 0; i < CLIENTS; i++)
		child_order(&children[i]);
	for (int i = 0; i < CLIENTS; i++)
		child_wait(&children[i], 1);
	ck_assert_uint_eq(client_count(), CLIENTS);
	for (int i = 0; i < CLIENTS; i++)
		child_order(&children[i]);
	for (int i = 0; i < CLIENTS; i++)
		ck_assert_int_eq(child_end(&children[i]), 0);
}

/* The terms of the programs change, and they go on. */
static void reload(int limit_mib)
{
	FILE *file = fopen(service.config, "we");

	ck_assert_ptr_nonnull(file);
	fprintf(file, "memory_limit = %dM\nmemory_guarantee = %dM\n", limit_mib, limit_mib ? 8 : 0);
	ck_assert_int_eq(fclose(file), 0);
	ck_assert_int_eq(system("\"$FRMPS_TEST_CTL\" reload"), 0);
}

static void expect_limit(int limit_mib)
{
	json_t *status = status_now(), *one;
	size_t index;

	json_array_foreach (json_object_get(domain_of(status), "clients"), index, one)
		ck_assert_int_eq(number(one, "memory_limit"), (long long)limit_mib << 20);
	json_decref(status);
}

START_TEST(every_request_is_answered_once)
{
	const char *text = getenv("FRMPS_TEST_DAEMON_KILLS");
	int kills = text ? atoi(text) : 50, fds[2], threads[2];
	struct child children[CLIENTS];
	long free_before;

	kill_daemon_somewhen(0);
	ck_assert_int_eq(exit_status(spawn(one_program, 1)), 0);
	status_await_rest(&service);
	free_before = free_mib();
	status_footprint(&service, &fds[0], &threads[0]);
	start_requesters(children);
	srand(17);
	for (int i = 0; i < kills; i++) {
		reload(1024 + i);
		kill_daemon_somewhen((unsigned)rand() % 20000);
		expect_limit(1024 + i);
	}
	end_requesters(children);
	/* What a newcomer sees is no part of the limit any more. */
	reload(0);
	status_await_rest(&service);
	ck_assert_int_eq(free_mib(), free_before);
	ck_assert_int_eq(service_log_count(&service, "rejected"), 0);
	status_footprint(&service, &fds[1], &threads[1]);
	/* Idle worker threads of the host backend end after a while. */
	for (int i = 0; i < 40 && fds[1] > fds[0]; i++) {
		pass_time(500);
		service_footprint(&service, &fds[1], &threads[1]);
	}
	ck_assert_int_le(fds[1], fds[0]);
}
END_TEST

static void kill_both(bool together)
{
	pid_t keeper = status_keeper(&service);
	int dead = watch_process(keeper);

	if (together) {
		pid_t daemon = status_daemon(&service);

		ck_assert_int_eq(kill(keeper, SIGKILL), 0);
		pass_time(rand() % 3);
		kill_and_wait(daemon, SIGKILL);
		lives++;
		wait_dead(dead);
		wait_back();
	} else {
		kill_daemon_for_long();
		ck_assert_int_eq(kill(keeper, SIGKILL), 0);
		wait_dead(dead);
		let_it_come_back();
	}
}

START_TEST(the_keeper_may_die_with_the_daemon)
{
	struct child children[CLIENTS];

	start_requesters(children);
	srand(9);
	for (int i = 0; i < DOUBLE_DEATHS; i++)
		kill_both(i % 2);
	ck_assert_int_eq(status_counter(&service, "keepers_lost"), DOUBLE_DEATHS);
	end_requesters(children);
	status_await_no_memory(&service);
	ck_assert_int_eq(service_log_count(&service, "rejected"), 0);
}
END_TEST

START_TEST(programs_that_come_and_go_meanwhile_are_served)
{
	pid_t pids[CLIENTS];

	srand(4);
	for (int round = 0; round < 12; round++) {
		for (int i = 0; i < CLIENTS; i++)
			pids[i] = spawn(one_program, i + 1);
		for (int i = 0; i < 5; i++)
			kill_daemon_somewhen((unsigned)rand() % 3000);
		for (int i = 0; i < CLIENTS; i++)
			ck_assert_int_eq(exit_status(pids[i]), 0);
	}
	status_await_rest(&service);
}
END_TEST

/* Something happens to the active executor while there is no daemon. */
static void expect_promotion(struct child *bystander, int dead_executor)
{
	wait_dead(dead_executor);
	let_it_come_back();
	child_drain(bystander);
	child_wait(bystander, 3);
	child_order(bystander);
	ck_assert_int_eq(child_end(bystander), 0);
	status_await_rest(&service);
}

START_TEST(a_fault_without_a_daemon_is_known_to_the_next)
{
	struct child bystander = child_start(survivor), guilty = child_start(culprit);
	json_t *status;
	pid_t pids[EXECUTORS];

	child_wait(&bystander, 3);
	child_wait(&guilty, 1);
	ck_assert_int_eq(exit_status(spawn(one_program, 2)), 0);
	executor_pids(pids);
	kill_daemon_for_long();
	child_order(&guilty);
	child_wait(&guilty, 1);
	/* The executor needs nobody for that. */
	ck_assert_int_eq(child_end(&guilty), 0);
	let_it_come_back();
	ck_assert(service_log_wait(&service, "verdict:", 1, 60));
	child_drain(&bystander);
	child_wait(&bystander, 3);
	status = status_now();
	ck_assert_int_eq(number(json_object_get(status, "counters"), "culprits"), 1);
	ck_assert_int_eq(number(domain_of(status), "generation"), 1);
	json_decref(status);
	child_order(&bystander);
	ck_assert_int_eq(child_end(&bystander), 0);
	status_await_rest(&service);
}
END_TEST

START_TEST(an_executor_that_dies_without_a_daemon_is_replaced)
{
	struct child bystander = child_start(survivor);
	pid_t pids[EXECUTORS];
	int active;

	child_wait(&bystander, 3);
	executor_pids(pids);
	active = watch_process(pids[0]);
	kill_daemon_for_long();
	ck_assert_int_eq(kill(pids[0], SIGKILL), 0);
	expect_promotion(&bystander, active);
}
END_TEST

/* The daemon is killed at the moments of a promotion, one after the other. */
START_TEST(a_promotion_survives_the_daemon)
{
	struct child bystander = child_start(survivor);
	pid_t pids[EXECUTORS];

	child_wait(&bystander, 3);
	for (int i = 0; i < PROMOTIONS; i++) {
		struct timespec delay = {.tv_nsec = (long)i * PROMOTION_STEP_NS};
		pid_t victim;

		executor_pids(pids);
		victim = status_daemon(&service);
		ck_assert_int_eq(kill(pids[0], SIGKILL), 0);
		nanosleep(&delay, NULL);
		kill_and_wait(victim, SIGKILL);
		lives++;
		wait_back();
		child_drain(&bystander);
		child_wait(&bystander, 2);
	}
	child_order(&bystander);
	ck_assert_int_eq(child_end(&bystander), 0);
	status_await_rest(&service);
}
END_TEST

/* Waits for a kernel that never ends, then expects errors. */
static int wait_for_ever(int progress, int orders)
{
	(void)orders;
	driver_open();
	ck_cuda(launch_spin(shared_word(), 1, NULL));
	report(progress);
	if (cuCtxSynchronize() == CUDA_SUCCESS)
		return 3;
	return cuMemAlloc_v2(&(CUdeviceptr){0}, 4) == CUDA_SUCCESS ? 4 : 0;
}

START_TEST(with_the_holder_everything_ends)
{
	struct child child = child_start(wait_for_ever);
	pid_t pids[64];
	int count, watches[64];

	child_wait(&child, 1);
	kill_and_wait(status_daemon(&service), SIGKILL);
	lives++;
	wait_back();
	/* A standby that was being told something is replaced. */
	while ((count = service_children(&service, pids, 64)) != 2 + EXECUTORS)
		sched_yield();
	for (int i = 0; i < count; i++)
		watches[i] = watch_process(pids[i]);
	ck_assert_int_eq(kill(service.pid, SIGKILL), 0);
	ck_assert_int_eq(child_end(&child), 0);
	for (int i = 0; i < count; i++)
		wait_dead(watches[i]);
	service_stop(&service);
}
END_TEST

START_TEST(a_service_that_is_told_to_stop_still_lets_programs_finish)
{
	struct child child = child_start(busy);
	int holder = watch_process(service.pid);

	child_wait(&child, 1);
	kill_daemon_somewhen(0);
	ck_assert_int_eq(kill(service.pid, SIGTERM), 0);
	ck_assert(service_log_wait(&service, "stopping: waits", 1, 60));
	/* Once more in the middle of that. */
	for (int i = 0; i < 2; i++) {
		kill_and_wait(status_daemon(&service), SIGKILL);
		lives++;
		wait_back();
	}
	child_wait(&child, 3);
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
	/* Nobody has to tell the last daemon once more. */
	wait_dead(holder);
	ck_assert_int_eq(service_stop(&service), 0);
}
END_TEST

START_TEST(a_daemon_that_crashes_all_the_time_is_given_up)
{
	int holder = watch_process(service.pid);
	struct child child = child_start(wait_for_ever);

	child_wait(&child, 1);
	for (int i = 0; i < QUICK_CRASHES; i++) {
		kill_and_wait(status_daemon(&service), SIGILL);
		service.crashes = ++lives;
		if (i + 1 < QUICK_CRASHES)
			wait_back();
	}
	wait_dead(holder);
	ck_assert_int_eq(child_end(&child), 0);
	ck_assert_int_eq(service_log_count(&service, "is not started again"), 1);
	ck_assert_int_eq(service_stop(&service), 1);
}
END_TEST

static void add(Suite *suite, const char *name, const TTest *test)
{
	TCase *tests = tcase_create(name);

	tcase_set_timeout(tests, 300);
	tcase_add_checked_fixture(tests, start, stop);
	tcase_add_test(tests, test);
	suite_add_tcase(suite, tests);
}

int main(void)
{
	Suite *suite = suite_create("daemon_death");

	add(suite, "rest", programs_go_on_and_everything_is_taken_over);
	add(suite, "wait", a_request_made_without_a_daemon_waits_for_the_next);
	add(suite, "burst", every_request_is_answered_once);
	add(suite, "keeper", the_keeper_may_die_with_the_daemon);
	add(suite, "visits", programs_that_come_and_go_meanwhile_are_served);
	add(suite, "fault", a_fault_without_a_daemon_is_known_to_the_next);
	add(suite, "executor", an_executor_that_dies_without_a_daemon_is_replaced);
	add(suite, "promotion", a_promotion_survives_the_daemon);
	add(suite, "holder", with_the_holder_everything_ends);
	add(suite, "stop", a_service_that_is_told_to_stop_still_lets_programs_finish);
	add(suite, "crashes", a_daemon_that_crashes_all_the_time_is_given_up);
	return suite_run(suite);
}
