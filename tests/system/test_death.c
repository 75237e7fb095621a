// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Ends that nobody's kernel is to blame for: the keeper dies, and with it everybody's memory; the kernel ends
// an executor because memory has run out. (The daemon's are in test_daemon_death.c, and what a second death
// does in each phase of a promotion in tests/gpu/matrix_second.py.)

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

/* With a sanitizer modules lie at other addresses in every process: who has looked up a variable is told. */
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

static json_t *status(void)
{
	return status_of(&service);
}

static int64_t counter(const char *name)
{
	return status_counter(&service, name);
}

/* 0 if there is none. */
static pid_t keeper_pid(void)
{
	json_t *json = status();
	pid_t pid = (pid_t)json_integer_value(json_object_get(json_object_get(json, "keeper"), "pid"));

	json_decref(json);
	return pid;
}

static pid_t active_pid(void)
{
	return status_active(&service);
}

/*
 * The keeper
 */

/* Whether the error stays, whatever is asked. */
static int is_told(CUresult error)
{
	CUdeviceptr p;

	return error && cuMemAlloc_v2(&p, 4096) && cuCtxSynchronize() ? 0 : 3;
}

static int works_until_told(int progress, int orders)
{
	CUdeviceptr word = 0;
	uint32_t one = 1;
	void *arguments[] = {&word, &one};
	CUresult error = CUDA_SUCCESS;

	(void)orders;
	driver_open();
	word = device_words(1, 0);
	while (!error) {
		error = launch("count_up", 1, 1, NULL, arguments);
		if (!error)
			error = cuCtxSynchronize();
		if (!error)
			report(progress);
	}
	return is_told(error);
}

static int allocates_until_told(int progress, int orders)
{
	CUresult error = CUDA_SUCCESS;
	CUdeviceptr p;

	(void)orders;
	driver_open();
	while (!error) {
		/* More than is kept for the next allocation: the keeper makes and takes it each time. */
		error = cuMemAlloc_v2(&p, 64 * MIB);
		if (!error)
			error = cuMemFree_v2(p);
		if (!error)
			report(progress);
	}
	return is_told(error);
}

static int waits_for_ever(int progress, int orders)
{
	uint32_t *word, value = 1;
	void *arguments[] = {&word, &value};

	(void)orders;
	driver_open();
	ck_cuda(cuMemHostAlloc((void **)&word, 4096, 0));
	*word = 0;
	ck_cuda(launch("spin_until", 1, 1, NULL, arguments));
	report(progress);
	return is_told(cuCtxSynchronize());
}

static child_function *const programs[] = {works_until_told, allocates_until_told, waits_for_ever};

#define PROGRAMS (sizeof(programs) / sizeof(*programs))

static void lose_the_keeper(int number)
{
	struct child children[PROGRAMS];
	pid_t keeper = keeper_pid();

	ck_assert_int_gt(keeper, 0);
	/* One after the other: beside the last one's kernel no module is loaded. */
	for (size_t i = 0; i < PROGRAMS; i++) {
		children[i] = child_start(programs[i]);
		child_wait(&children[i], 1);
	}
	ck_assert_int_eq(kill(keeper, SIGKILL), 0);
	for (size_t i = 0; i < PROGRAMS; i++)
		ck_assert_int_eq(child_end(&children[i]), 0);
	ck_assert_int_eq(counter("keepers_lost"), number);
	/* Whoever comes now is served, by another one. */
	ck_assert_int_eq(exit_status(spawn(one_program, 3)), 0);
	ck_assert_int_ne(keeper_pid(), keeper);
}

START_TEST(without_the_keeper_everybody_is_told_and_the_next_are_served)
{
	int fds[2], threads[2];

	lose_the_keeper(1);
	wait_closed(&service);
	status_footprint(&service, &fds[0], &threads[0]);
	lose_the_keeper(2);
	lose_the_keeper(3);
	wait_closed(&service);
	status_footprint(&service, &fds[1], &threads[1]);
	/* Executors of before, and threads of the host backend that have nothing to do, end in their own
	 * time. */
	for (int i = 0; i < 100 && (fds[1] > fds[0] || threads[1] > threads[0]); i++) {
		pass_time(100);
		service_footprint(&service, &fds[1], &threads[1]);
	}
	ck_assert_int_le(fds[1], fds[0]);
	ck_assert_int_le(threads[1], threads[0]);
	ck_assert_int_eq(counter("faults"), 0);
}
END_TEST

/*
 * Memory runs out
 */

/* A group of its own for one process, with a limit that is its alone; what it has already does not count. */
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

/* The kernel ends the executor with SIGKILL. What was lost on the way are fills, which are done again. */
START_TEST(an_executor_that_memory_runs_out_for_is_replaced)
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
END_TEST

/* Variables that were moved into the program's memory are not in the executor. */
START_TEST(moved_variables_outlive_their_executor)
{
	struct child child = child_start(moved_tallier);

	child_wait(&child, 1);
	for (int i = 0; i < 2; i++) {
		kill(active_pid(), SIGKILL);
		ck_assert(service_log_wait(&service, "promotion: executor", i + 1, 60));
	}
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
	ck_assert_int_eq(service_log_count(&service, "modules' variables were lost"), 0);
}
END_TEST

/* The values are lost with the executor: who may have written any is told, whoever has done nothing goes on.
 */
START_TEST(with_its_executor_a_program_loses_its_variables)
{
	child_function *const kinds[] = {rememberer, tallier, graph_tallier, looker, late_tallier};
	const int ends[] = {3, 3, 3, 0, 0};
	struct child child = child_start(kinds[_i]);

	child_wait(&child, 1);
	kill(active_pid(), SIGKILL);
	ck_assert(service_log_wait(&service, "promotion: executor", 1, 60));
	child_order(&child);
	ck_assert_int_eq(child_end(&child), ends[_i]);
	ck_assert_int_eq(service_log_count(&service, "modules' variables were lost"), !!ends[_i]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("death");
	TCase *tests = tcase_create("death");

	tcase_set_timeout(tests, 300);
	tcase_add_checked_fixture(tests, start, stop);
	tcase_add_test(tests, without_the_keeper_everybody_is_told_and_the_next_are_served);
	tcase_add_test(tests, moved_variables_outlive_their_executor);
	tcase_add_loop_test(tests, with_its_executor_a_program_loses_its_variables, 0, 5 * MOVES_VARIABLES);
	tcase_add_test(tests, an_executor_that_memory_runs_out_for_is_replaced);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
