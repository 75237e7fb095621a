// Several programs that share one service: exact results side by side, and a fault of one that the
// others survive.
//
// FRMPS_TEST_CLIENTS (8) and FRMPS_TEST_LAUNCHES (1000) scale the first test.

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"

static struct service service;

static void start(void)
{
	ck_assert(service_start(&service, NULL));
}

static void stop(void)
{
	ck_assert_int_eq(service_stop(&service), 0);
}

static int number(const char *name, int otherwise)
{
	const char *value = getenv(name);

	return value ? atoi(value) : otherwise;
}

/* One program: a chain of `launches` kernels over its own data, each reading what the former
 * wrote. */
static int chain(uint32_t seed, int launches)
{
	uint64_t count = 257;
	CUdeviceptr a, b, word;
	uint32_t result[257], total, one = 1;
	CUstream stream;

	driver_open();
	a = device_words(count, seed);
	b = device_words(count, 0);
	word = device_words(1, 0);
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (uint32_t round = 0; round < (uint32_t)launches / 2; round++) {
		CUdeviceptr *out = round % 2 ? &a : &b, *in = round % 2 ? &b : &a;
		void *mix[] = {out, in, &round, &count}, *up[] = {&word, &one};

		ck_cuda(launch("mix", 2, 64, stream, mix));
		ck_cuda(launch("count_up", 1, 1, stream, up));
	}
	ck_cuda(cuMemcpyDtoHAsync_v2(result, launches / 2 % 2 ? b : a, sizeof(result), stream));
	ck_cuda(cuMemcpyDtoHAsync_v2(&total, word, 4, stream));
	ck_cuda(cuStreamSynchronize(stream));
	for (uint32_t i = 0; i < count; i++) {
		uint32_t expected = i * seed;

		for (uint32_t round = 0; round < (uint32_t)launches / 2; round++)
			expected = mixed(expected, round, i);
		if (result[i] != expected)
			return 2;
	}
	return total == (uint32_t)launches / 2 ? 0 : 3;
}

TEST(sharing, eight_programs_are_exact)
{
	int clients = number("FRMPS_TEST_CLIENTS", 8), launches = number("FRMPS_TEST_LAUNCHES", 1000);
	pid_t *pids = calloc((size_t)clients, sizeof(*pids));

	for (int i = 0; i < clients; i++) {
		pids[i] = fork();
		if (pids[i] == 0)
			_exit(chain((uint32_t)i * 7 + 1, launches));
	}
	for (int i = 0; i < clients; i++) {
		int status;

		waitpid(pids[i], &status, 0);
		ck_assert_int_eq(status, 0);
	}
	free(pids);
}

static const char *const faults[] = {"crash_write", "crash_trap", "crash_write"};

/* A program whose kernel faults: its error is sticky and its own. */
static int culprit(int fault)
{
	uint64_t nowhere = UINT64_C(0x10);
	void *arguments[] = {&nowhere};
	CUdeviceptr p;
	CUresult error;

	driver_open();
	ck_cuda(cuMemAlloc_v2(&p, 4096));
	ck_cuda(launch(faults[fault], 1, 1, NULL, arguments));
	error = cuCtxSynchronize();
	if (error == CUDA_SUCCESS || error == CUDA_ERROR_NOT_READY)
		return 2;
	if (cuMemAlloc_v2(&p, 4096) != error || cuCtxSynchronize() != error)
		return 3;
	return 0;
}

TEST(sharing, a_fault_is_one_programs_own_problem)
{
	struct child survivors[2] = {child_start(survivor), child_start(survivor)};

	for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
		for (int s = 0; s < 2; s++)
			child_wait(&survivors[s], 20);
		ck_assert_int_eq(exit_status(spawn(culprit, (int)i)), 0);
		for (int s = 0; s < 2; s++) {
			child_drain(&survivors[s]);
			child_wait(&survivors[s], 20);
		}
	}
	for (int s = 0; s < 2; s++)
		child_order(&survivors[s]);
	for (int s = 0; s < 2; s++)
		ck_assert_int_eq(child_end(&survivors[s]), 0);
}

int main(void)
{
	Suite *suite = suite_create("sharing");
	TCase *tests = tcase_create("sharing");

	tcase_set_timeout(tests, 300);
	tcase_add_checked_fixture(tests, start, stop);
	suite_add(tests, "sharing");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
