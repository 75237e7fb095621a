// 256 programs that start at the same moment are all served, and their results are exact.

#include <stdlib.h>

#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define PROGRAMS 256
#define ROUNDS	 4u

static struct service service;

static void stop(void)
{
	ck_assert_int_eq(service_stop(&service), 0);
}

/* Works while the others do; its end waits for an order. */
static int worker(int progress, int orders)
{
	uint64_t count = 257;
	CUdeviceptr in, out;
	uint32_t result[257];

	ordered(orders, true);
	driver_open();
	in = device_words(count, 5);
	out = device_words(count, 0);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		void *arguments[] = {&out, &in, &round, &count};

		ck_cuda(launch("mix", 2, 64, NULL, arguments));
		ck_cuda(cuMemcpyDtoH_v2(result, out, sizeof(result)));
		for (uint32_t i = 0; i < count; i++)
			if (result[i] != mixed(i * 5, round, i))
				return 2;
	}
	report(progress);
	ordered(orders, true);
	return 0;
}

TEST(crowd, every_one_of_256_programs_that_start_at_once_is_served)
{
	static struct child children[PROGRAMS];

	ck_assert(service_start_configured(&service, "clients_per_user_max = 300\n"));
	for (int i = 0; i < PROGRAMS; i++)
		children[i] = child_start(worker);
	for (int i = 0; i < PROGRAMS; i++)
		child_order(&children[i]);
	for (int i = 0; i < PROGRAMS; i++)
		child_wait(&children[i], 1);
	for (int i = 0; i < PROGRAMS; i++)
		child_order(&children[i]);
	for (int i = 0; i < PROGRAMS; i++)
		ck_assert_int_eq(child_end(&children[i]), 0);
	ck_assert_int_eq(status_counter(&service, "sessions_refused"), 0);
	status_await_no_sessions(&service);
}

int main(void)
{
	Suite *suite = suite_create("crowd");
	TCase *tests = suite_case(suite, "crowd");

	tcase_set_timeout(tests, 300);
	tcase_add_checked_fixture(tests, NULL, stop);
	suite_add(tests, "crowd");
	return suite_run(suite);
}
