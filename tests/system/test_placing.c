// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Programs that get an executor of their own while they run: because their code cannot be loaded beside a
// kernel that does not end, or because an operator says so. They notice nothing but time; neither do the
// others.
//
// FRMPS_TEST_SPLITS (20) is how many follow one another in the leak test.

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"

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

	setenv("FRMPS_HOST_DUMP_MS", "30", 1);
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

/* Its kernel does not end. */
static int run_for_ever(int progress, int orders)
{
	driver_open();
	ck_cuda(launch("endless", 1, 1, NULL, NULL));
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

static int domains(void)
{
	char *text = service_status(&service);
	json_t *root = json_loads(text ? text : "", 0, NULL);
	int found = (int)json_array_size(json_object_get(root, "domains"));

	free(text);
	json_decref(root);
	return found;
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

START_TEST(faults_hurt_their_own_domain)
{
	struct child busy, newcomer, bad, worse;

	start(_i ? "on_fault = fast\n" : "");
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

int main(void)
{
	Suite *suite = suite_create("placing");
	TCase *tests = tcase_create("newcomers");

	tcase_set_timeout(tests, 600);
	tcase_add_checked_fixture(tests, NULL, stop);
	tcase_add_test(tests, a_newcomer_beside_an_endless_kernel_computes);
	tcase_add_test(tests, everybody_else_stays_exact);
	tcase_add_loop_test(tests, faults_hurt_their_own_domain, 0, 2);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
