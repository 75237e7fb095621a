// Ends that nobody's kernel is to blame for: the keeper dies, and the memory that it has made
// stays; the kernel ends an executor because memory has run out. (The daemon's are in
// test_daemon_death.c, and what a second death does in each phase of a promotion in
// tests/gpu/matrix_second.py.)

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define MIB (UINT64_C(1) << 20)

/* With a sanitizer modules lie at other addresses in every process: who has looked up a variable is
 * told. */
#ifdef __SANITIZE_ADDRESS__
#define MOVES_VARIABLES 0
#else
#define MOVES_VARIABLES 1
#endif

static struct service service;

static void start(void)
{
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

static int64_t counter(const char *name)
{
	return status_counter(&service, name);
}

static pid_t active_pid(void)
{
	return status_active(&service);
}

/*
 * The keeper
 */

#define GONE	   "the keeper of the device memory is gone"
#define KEPT_WORDS (UINT64_C(3) << 18) /* of the memory that is kept: more than one chunk */
#define BLOCK                                                                                                \
	(64 * MIB) /* more than is kept for the next allocation: the keeper makes and takes it each time */
#define ROUNDS 4
#define KILLS  20

static bool words_are(CUdeviceptr p, uint32_t *words, uint64_t count, uint32_t factor)
{
	uint64_t wrong = 0;

	ck_cuda(cuMemcpyDtoH_v2(words, p, count * 4));
	for (uint64_t i = 0; i < count; i++)
		wrong += words[i] != (uint32_t)i * factor;
	return !wrong;
}

/* Memory of the keeper that there is now is made, used and given back. */
static bool block_works(uint32_t *words)
{
	CUdeviceptr block;
	uint32_t last = 0;
	bool good;

	ck_cuda(cuMemAlloc_v2(&block, BLOCK));
	ck_cuda(cuMemsetD32_v2(block, 78, BLOCK / 4));
	ck_cuda(cuMemcpyDtoH_v2(&last, block + BLOCK - 4, 4));
	for (uint64_t i = 0; i < KEPT_WORDS; i++)
		words[i] = (uint32_t)i * 5;
	ck_cuda(cuMemcpyHtoD_v2(block, words, KEPT_WORDS * 4));
	good = last == 78 && words_are(block, words, KEPT_WORDS, 5);
	ck_cuda(cuMemFree_v2(block));
	return good;
}

/* Has memory, and with each order looks at all of it, changes it by a kernel and asks for more. */
static int keeps(int progress, int orders)
{
	uint32_t *words = malloc(KEPT_WORDS * 4), one = 1, sum = 0;
	CUdeviceptr kept, counter;
	void *arguments[] = {&counter, &one};

	driver_open();
	kept = device_words(KEPT_WORDS, 3);
	counter = device_words(1, 0);
	report(progress);
	for (uint32_t round = 1; round <= ROUNDS; round++) {
		ordered(orders, true);
		if (!words_are(kept, words, KEPT_WORDS, 3))
			return 2;
		ck_cuda(launch("count_up", 1, 1, NULL, arguments));
		ck_cuda(cuMemcpyDtoH_v2(&sum, counter, 4));
		if (sum != round || !block_works(words))
			return 3;
		report(progress);
	}
	/* Its frees are what gives everything back, not its end. */
	ck_cuda(cuMemFree_v2(kept));
	ck_cuda(cuMemFree_v2(counter));
	free(words);
	report(progress);
	ordered(orders, true);
	return 0;
}

static void next_round(const struct child *child)
{
	child_order(child);
	child_wait(child, 1);
}

/* Returns when the service knows. */
static void kill_keeper(void)
{
	pid_t keeper = status_keeper(&service);
	int gone = service_log_count(&service, GONE);

	ck_assert_int_eq(kill(keeper, SIGKILL), 0);
	ck_assert(service_log_wait(&service, GONE, gone + 1, 60));
}

static void kill_active(int number)
{
	status_await_executors(&service);
	kill(active_pid(), SIGKILL);
	ck_assert(service_log_wait(&service, "promotion: executor", number, 60));
}

TEST(death, without_the_keeper_programs_keep_their_memory)
{
	struct child child = child_start(keeps), bystander = child_start(survivor);
	int fds[2], threads[2];

	child_wait(&child, 1);
	child_wait(&bystander, 3);
	kill_keeper();
	next_round(&child);
	/* The first to take over has had the memory mapped before; the second knows it by its
	 * descriptors alone. */
	kill_active(1);
	next_round(&child);
	kill_active(2);
	next_round(&child);
	kill_keeper();
	next_round(&child);
	child_drain(&bystander);
	child_wait(&bystander, 3);
	child_order(&bystander);
	ck_assert_int_eq(child_end(&bystander), 0);
	child_wait(&child, 1);
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
	ck_assert_int_eq(counter("keepers_lost"), 2);
	ck_assert_int_eq(counter("promotions"), 2);
	ck_assert_int_eq(exit_status(spawn(one_program, 3)), 0);
	wait_closed(&service);
	status_await_no_memory(&service);
	status_footprint(&service, &fds[0], &threads[0]);
	kill_keeper();
	kill_keeper();
	wait_closed(&service);
	status_await_no_memory(&service);
	status_footprint(&service, &fds[1], &threads[1]);
	/* Threads of the host backend that have nothing to do end in their own time. */
	for (int i = 0; i < 100 && (fds[1] > fds[0] || threads[1] > threads[0]); i++) {
		pass_time(100);
		service_footprint(&service, &fds[1], &threads[1]);
	}
	ck_assert_int_le(fds[1], fds[0]);
	ck_assert_int_le(threads[1], threads[0]);
}

/* What is freed comes back although nobody has a handle of it any more. */
TEST(death, what_a_former_keeper_has_made_is_given_back)
{
	struct child child = child_start(keeps);

	child_wait(&child, 1);
	for (int i = 0; i < ROUNDS; i++) {
		kill_keeper();
		next_round(&child);
	}
	child_wait(&child, 1);
	status_await_bytes(&service, child.pid, "memory_bytes", (long long)(BLOCK - 1));
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
	status_await_no_memory(&service);
}

/* Until the daemon has a request of the child. */
static void await_request(int64_t before)
{
	while (counter("requests") == before)
		;
}

/* The keeper has a request and ends; or there is none, because its end is not known yet: who says
 * so is stopped. */
TEST_LOOP(death, an_allocation_waits_for_the_next_keeper, 0, 2)
{
	struct child child = child_start(keeps);
	pid_t keeper = status_keeper(&service);
	int64_t before;

	child_wait(&child, 1);
	before = counter("requests");
	ck_assert_int_eq(kill(_i ? service.pid : keeper, SIGSTOP), 0);
	if (_i) {
		ck_assert_int_eq(kill(keeper, SIGKILL), 0);
		ck_assert(service_log_wait(&service, "is ended by the daemon", 1, 60));
	}
	child_order(&child);
	await_request(before);
	ck_assert(child_runs(&child));
	ck_assert_int_eq(_i ? kill(service.pid, SIGCONT) : kill(keeper, SIGKILL), 0);
	child_wait(&child, 1);
	ck_assert_int_eq(counter("keepers_lost"), 1);
	ck_assert_int_ne(status_keeper(&service), keeper);
	for (int i = 1; i < ROUNDS; i++)
		next_round(&child);
	child_wait(&child, 1);
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
	status_await_no_memory(&service);
}

static int allocates(int progress, int orders)
{
	uint32_t *words = malloc(KEPT_WORDS * 4);

	driver_open();
	while (!ordered(orders, false)) {
		if (!block_works(words))
			return 2;
		report(progress);
	}
	free(words);
	return 0;
}

/* Whatever it is at when it dies. */
TEST(death, every_allocation_is_answered)
{
	struct child children[3];
	const size_t count = sizeof(children) / sizeof(*children);

	for (size_t i = 0; i < count; i++) {
		children[i] = child_start(allocates);
		child_wait(&children[i], 1);
	}
	for (int i = 0; i < KILLS; i++) {
		kill_keeper();
		for (size_t j = 0; j < count; j++) {
			child_drain(&children[j]);
			child_wait(&children[j], 2);
		}
	}
	for (size_t i = 0; i < count; i++) {
		child_order(&children[i]);
		ck_assert_int_eq(child_end(&children[i]), 0);
	}
	ck_assert_int_eq(counter("keepers_lost"), KILLS);
	status_await_no_memory(&service);
}

/*
 * Memory runs out
 */

/* A group of its own for one process, with a limit that is its alone; what it has already does not
 * count. */
static char group[128];

static bool write_word(const char *name, const char *text)
{
	char path[192];
	int fd;
	bool good;

	snprintf(path, sizeof(path), "%s/%s", group, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	if (fd >= 0)
		close(fd);
	return good;
}

/* Return: false where that is not permitted. */
static bool make_group(const char *folder, const char *limit)
{
	bool made;

	snprintf(group, sizeof(group), "%s/frmps-test-%d", folder, (int)getpid());
	made = !access(folder, W_OK) && !mkdir(group, 0700);
	if (made && write_word(limit, "33554432"))
		return true;
	if (made)
		rmdir(group);
	*group = '\0';
	return false;
}

static bool confine(pid_t pid)
{
	char text[16];

	if (!make_group("/sys/fs/cgroup/memory", "memory.limit_in_bytes") &&
		!make_group("/sys/fs/cgroup", "memory.max"))
		return false;
	snprintf(text, sizeof(text), "%d", (int)pid);
	return write_word("cgroup.procs", text);
}

/* Fills more memory than the group may have, when it is told to. */
static int fills(int progress, int orders)
{
	enum { WORDS = 32 << 20 };
	uint32_t *words = malloc(WORDS * sizeof(*words)), wrong = 0;
	CUdeviceptr p;

	driver_open();
	ck_cuda(cuMemAlloc_v2(&p, WORDS * sizeof(*words)));
	report(progress);
	ordered(orders, true);
	ck_cuda(cuMemsetD32_v2(p, 77, WORDS));
	ck_cuda(cuMemcpyDtoH_v2(words, p, WORDS * sizeof(*words)));
	for (int i = 0; i < WORDS; i++)
		wrong += words[i] != 77;
	free(words);
	return wrong ? 2 : 0;
}

/* The kernel ends the executor with SIGKILL. What was lost on the way are fills, which are done
 * again. */
TEST(death, an_executor_that_memory_runs_out_for_is_replaced)
{
	struct child bystander = child_start(survivor), filler = child_start(fills);
	pid_t active;

	child_wait(&bystander, 3);
	child_wait(&filler, 1);
	active = active_pid();
	if (!confine(active)) {
		/* Where groups are not ours to make, the signal is the same. */
		fprintf(stderr, "no memory group can be made here: the executor is killed\n");
		kill(active, SIGKILL);
	}
	child_order(&filler);
	ck_assert_int_eq(child_end(&filler), 0);
	ck_assert(service_log_wait(&service, "promotion: executor", 1, 60));
	ck_assert_int_eq(service_log_count(&service, "verdict: nobody is proved guilty"), 1);
	child_drain(&bystander);
	child_wait(&bystander, 3);
	child_order(&bystander);
	ck_assert_int_eq(child_end(&bystander), 0);
	ck_assert_int_eq(counter("promotions"), 1);
	ck_assert_int_eq(counter("culprits"), 0);
	ck_assert_int_ne(active_pid(), active);
	if (*group)
		ck_assert_int_eq(rmdir(group), 0);
}

/* Variables that were moved into the program's memory are not in the executor. */
TEST(death, moved_variables_outlive_their_executor)
{
	struct child child = child_start(moved_tallier);

	child_wait(&child, 1);
	for (int i = 0; i < 2; i++) {
		kill(active_pid(), SIGKILL);
		ck_assert(service_log_wait(&service, "promotion: executor", i + 1, 60));
	}
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
	ck_assert_int_eq(service_log_count(&service, "in its modules' variables"), 0);
}

/* The values are lost with the executor: who may have written any is told, whoever has done nothing
 * goes on.
 */
TEST_LOOP(death, with_its_executor_a_program_loses_its_variables, 0, 5 * MOVES_VARIABLES)
{
	child_function *const kinds[] = {rememberer, tallier, graph_tallier, looker, late_tallier};
	const int ends[] = {3, 3, 3, 0, 0};
	struct child child = child_start(kinds[_i]);

	child_wait(&child, 1);
	kill(active_pid(), SIGKILL);
	ck_assert(service_log_wait(&service, "promotion: executor", 1, 60));
	child_order(&child);
	ck_assert_int_eq(child_end(&child), ends[_i]);
	ck_assert_int_eq(service_log_count(&service, "in its modules' variables"), !!ends[_i]);
}

int main(void)
{
	Suite *suite = suite_create("death");
	TCase *tests = tcase_create("death");

	tcase_set_timeout(tests, 300);
	tcase_add_checked_fixture(tests, start, stop);
	suite_add(tests, "death");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
