// A program with thousands of allocations frees them all, or ends; meanwhile the daemon is killed,
// or its main process (which keeps a descriptor of each) is stopped. Whatever happens, nothing is
// left: no device memory, no descriptor in any process of the service. Who else is there is served
// meanwhile.
//
// FRMPS_TEST_CHUNKS (10000) is how many allocations, as far as the limit of open files allows.

#include <jansson.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define BACK "the daemon is back"
/* The least that has a chunk of its own. */
#define CHUNK_BYTES (UINT64_C(2) << 20)
/* What a GPU's driver may keep for itself in the executors, for page tables. */
#define DRIVER_BYTES (UINT64_C(64) << 20)

static struct service service;
static int lives; /* daemons that were killed */

/*
 * Programs
 */

/* A user gets three quarters of the open files. */
static unsigned chunks_wanted(void)
{
	const char *text = getenv("FRMPS_TEST_CHUNKS");
	unsigned most = text ? (unsigned)atoi(text) : 10000;
	struct rlimit files;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
	return files.rlim_max / 5 * 2 < most ? (unsigned)(files.rlim_max / 5 * 2) : most;
}

/* Allocates, and frees when it is ordered to. */
static int owner(int progress, int orders)
{
	unsigned count = chunks_wanted();
	CUdeviceptr *chunks = calloc(count, sizeof(*chunks));

	driver_attach();
	for (unsigned i = 0; i < count; i++)
		ck_cuda(cuMemAlloc_v2(&chunks[i], CHUNK_BYTES));
	report(progress);
	ordered(orders, true);
	for (unsigned i = 0; i < count; i++)
		ck_cuda(cuMemFree_v2(chunks[i]));
	report(progress);
	ordered(orders, true);
	return 0;
}

/* Asks the service something all the time. The longest that it waited for an answer goes to
 * standard error, for a look by hand. */
static int bystander(int progress, int orders)
{
	struct timespec before, after;
	size_t free_bytes, total;
	double longest_ms = 0;

	driver_attach();
	report(progress);
	while (!ordered(orders, false)) {
		double ms;

		clock_gettime(CLOCK_MONOTONIC, &before);
		ck_cuda(cuMemGetInfo_v2(&free_bytes, &total));
		clock_gettime(CLOCK_MONOTONIC, &after);
		ms = (double)(after.tv_sec - before.tv_sec) * 1e3 +
		     (double)(after.tv_nsec - before.tv_nsec) / 1e6;
		longest_ms = ms > longest_ms ? ms : longest_ms;
	}
	fprintf(stderr, "the longest answer took %.1f ms\n", longest_ms);
	return 0;
}

/*
 * What there is
 */

struct footprint {
	int holder, daemon, keeper; /* descriptors */
	uint64_t free_bytes;	    /* device memory */
};

static struct footprint look(void)
{
	struct footprint now = {.free_bytes = 0};

	status_await_no_memory(&service);
	now.free_bytes = free_memory();
	status_await_no_memory(&service);
	now.holder = service_count_fds(service.pid);
	now.daemon = service_count_fds(status_daemon(&service));
	now.keeper = service_count_fds(status_keeper(&service));
	return now;
}

/*
 * What happens to the service
 */

static void await_end(pid_t pid, int signal_number)
{
	struct pollfd wait = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};

	ck_assert_int_ge(wait.fd, 0);
	ck_assert_int_eq(kill(pid, signal_number), 0);
	ck_assert_int_eq(poll(&wait, 1, 60000), 1);
	close(wait.fd);
}

static void kill_daemon(pid_t pid)
{
	await_end(pid, SIGKILL);
	lives++;
}

static void await_back(void)
{
	ck_assert(service_log_wait(&service, BACK, lives, 120));
}

/* Until the daemon has no more descriptors than that. */
static void await_closed(pid_t pid, int most)
{
	time_t begin = time(NULL);

	while (service_count_fds(pid) > most) {
		ck_assert_int_lt(time(NULL) - begin, 120);
		sched_yield();
	}
}

/* Until a process has more descriptors than that: the holder takes them out of its socket when it
 * has its turn. */
static void await_open(pid_t pid, int least)
{
	time_t begin = time(NULL);

	while (service_count_fds(pid) <= least) {
		ck_assert_int_lt(time(NULL) - begin, 120);
		sched_yield();
	}
}

/*
 * Tests
 */

static struct footprint before;
static struct child other, burst;
static pid_t served_by;
static int held; /* descriptors of the daemon while the burst is to come */

static void start(void)
{
	lives = 0;
	setenv("FRMPS_HOST_MEMORY", "1T", 1);
	ck_assert(service_start(&service, NULL));
	/* What a daemon has at rest it has had from the beginning, but for the first. */
	ck_assert_int_eq(exit_status(spawn(one_program, 1)), 0);
	kill_daemon(status_daemon(&service));
	await_back();
	before = look();
	other = child_start(bystander);
	child_wait(&other, 1);
	burst = child_start(owner);
	child_wait(&burst, 1);
	served_by = status_daemon(&service);
	held = service_count_fds(served_by);
	ck_assert_int_gt(held, before.daemon + (int)chunks_wanted());
	await_open(service.pid, before.holder + (int)chunks_wanted());
}

static void stop(void)
{
	if (service.pid)
		ck_assert_int_eq(service_stop(&service), 0);
}

/* The driver gives memory back when it gets to it. */
static void expect_nothing_left(void)
{
	time_t begin = time(NULL);
	struct footprint now;

	child_order(&other);
	ck_assert_int_eq(child_end(&other), 0);
	now = look();
	while ((now.free_bytes + DRIVER_BYTES < before.free_bytes || now.holder > before.holder ||
		       now.daemon > before.daemon || now.keeper > before.keeper) &&
		time(NULL) - begin < 30) {
		pass_time(100);
		now = look();
	}
	ck_assert_int_le(now.holder, before.holder);
	ck_assert_int_le(now.daemon, before.daemon);
	ck_assert_int_le(now.keeper, before.keeper);
	ck_assert_uint_ge(now.free_bytes + DRIVER_BYTES, before.free_bytes);
	ck_assert_int_eq(service_log_count(&service, "descriptor"), 0);
	ck_assert_int_eq(exit_status(spawn(one_program, 1)), 0);
}

static void kill_program(void)
{
	ck_assert_int_eq(kill(burst.pid, SIGKILL), 0);
	ck_assert_int_eq(child_end(&burst), 1000 + SIGKILL);
}

START_TEST(the_daemon_dies_while_everything_is_freed)
{
	child_order(&burst);
	await_closed(served_by, held - (int)chunks_wanted() / 2);
	kill_daemon(served_by);
	child_wait(&burst, 1);
	await_back();
	child_order(&burst);
	ck_assert_int_eq(child_end(&burst), 0);
	expect_nothing_left();
}
END_TEST

START_TEST(the_program_is_killed)
{
	kill_program();
	expect_nothing_left();
}
END_TEST

START_TEST(the_daemon_dies_while_a_killed_program_is_cleared_away)
{
	kill_program();
	await_closed(served_by, held - (int)chunks_wanted() / 10);
	kill_daemon(served_by);
	await_back();
	expect_nothing_left();
}
END_TEST

/* The daemon goes on with it. */
START_TEST(the_program_is_killed_while_the_main_process_stands_still)
{
	ck_assert_int_eq(kill(service.pid, SIGSTOP), 0);
	kill_program();
	await_closed(served_by, held - (int)chunks_wanted());
	ck_assert_int_eq(kill(service.pid, SIGCONT), 0);
	expect_nothing_left();
}
END_TEST

START_TEST(the_daemon_dies_as_well_while_the_main_process_stands_still)
{
	ck_assert_int_eq(kill(service.pid, SIGSTOP), 0);
	kill_program();
	await_closed(served_by, held - (int)chunks_wanted());
	kill_daemon(served_by);
	ck_assert_int_eq(kill(service.pid, SIGCONT), 0);
	await_back();
	expect_nothing_left();
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
	Suite *suite = suite_create("bursts");

	add(suite, "freed", the_daemon_dies_while_everything_is_freed);
	add(suite, "killed", the_program_is_killed);
	add(suite, "both", the_daemon_dies_while_a_killed_program_is_cleared_away);
	add(suite, "stopped", the_program_is_killed_while_the_main_process_stands_still);
	add(suite, "all", the_daemon_dies_as_well_while_the_main_process_stands_still);
	return suite_run(suite);
}
