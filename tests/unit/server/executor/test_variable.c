// First values of modules' variables: how they reach the device, and what is late. And what kernels
// leave in the context.

#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "server/executor/variable.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/executor/fixture.h"

static void open_path(void)
{
	fixture_open_default();
	ck_assert_int_eq(variable_open(&fixture.executor), CUDA_SUCCESS);
	fake.immediate = true;
	fake.count = 0;
}

static void close_path(void)
{
	variable_close(&fixture.executor);
	fixture_close();
}

static CUresult fill_at(uint64_t at)
{
	const struct range block = {at, at + 64};
	const uint8_t values[64] = {1};

	return variable_fill(fixture.tenant, &block, values);
}

static CUresult fill(void)
{
	return fill_at(FIXTURE_WINDOW);
}

TEST(variable, first_values_go_to_memory_of_the_program_alone)
{
	ck_assert_int_eq(fill_at(FIXTURE_WINDOW + FIXTURE_DEVICE / 2), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(fill_at(FIXTURE_WINDOW - 32), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(fill_at(UINT64_MAX - 32), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(fake_count(FAKE_COPY), 0);
	ck_assert_int_eq(fill_at((uintptr_t)fixture.host), CUDA_SUCCESS);
}

/* It is nobody's fault, and no more than late: until then nothing of the session may be somebody
 * else's. */
TEST(variable, first_values_that_come_late_are_waited_for)
{
	ck_assert_int_eq(fill(), CUDA_SUCCESS);
	ck_assert(!variable_is_late(fixture.tenant));
	fake.immediate = false;
	ck_assert_int_eq(fill(), CUDA_ERROR_SYSTEM_NOT_READY);
	ck_assert(variable_is_late(fixture.tenant));
	fake.immediate = true;
	ck_assert_int_eq(fill(), CUDA_ERROR_SYSTEM_NOT_READY);
	ck_assert(variable_is_late(fixture.tenant));
	fake_arrive();
	ck_assert(!variable_is_late(fixture.tenant));
	ck_assert_int_eq(fill(), CUDA_SUCCESS);
	ck_assert(!executor_is_lost(&fixture.executor));
}

TEST(variable, a_mark_that_failed_is_tried_again)
{
	fake.fails[FAKE_MARK] = CUDA_ERROR_OUT_OF_MEMORY;
	ck_assert_int_eq(fill(), CUDA_ERROR_SYSTEM_NOT_READY);
	ck_assert(variable_is_late(fixture.tenant));
	fake.fails[FAKE_MARK] = CUDA_SUCCESS;
	fake.immediate = false;
	ck_assert_int_eq(fill(), CUDA_ERROR_SYSTEM_NOT_READY);
	ck_assert(variable_is_late(fixture.tenant));
	fake.immediate = true;
	fake_arrive();
	ck_assert(!variable_is_late(fixture.tenant));
	ck_assert_int_eq(fill(), CUDA_SUCCESS);
}

static void *fill_in_a_thread(void *unused)
{
	(void)unused;
	return (void *)(intptr_t)fill();
}

/* Whoever ends meanwhile is not told that its own work does not end: that would end the
 * executor. */
TEST(variable, first_values_on_their_way_are_nobody_elses)
{
	struct tenant *other = tenant_new(&fixture.executor, 78);
	pthread_t thread;
	void *code;

	fake.immediate = false;
	ck_assert_int_eq(pthread_create(&thread, NULL, fill_in_a_thread, NULL), 0);
	while (!fake_count(FAKE_MARK))
		sched_yield();
	ck_assert(variable_is_late(fixture.tenant));
	ck_assert(!variable_is_late(other));
	fake_arrive();
	pthread_join(thread, &code);
	ck_assert_int_eq((intptr_t)code, CUDA_SUCCESS);
	ck_assert(!variable_is_late(fixture.tenant));
	tenant_unref(other);
}

/* ---- what kernels leave behind ---- */

static struct statics_variable counter = {.name = (char[]){"counter"}, .bytes = 256};
static struct module module;
static struct function kernel = {.module = &module};

static void load_module(uint32_t variables, const char *more)
{
	module = (struct module){.id = 5};
	fake.statics =
		(struct statics){.variables = &counter, .count = variables, .more = more, .every = true};
	remains_add_module(fixture.tenant, &module);
	kernel.leaves = remains_are_left_by(fixture.tenant, &module, "kernel");
}

TEST_LOOP(variable, what_kernels_wrote_is_lost, 0, 2)
{
	load_module(_i ? 0 : 1, _i ? "its kernels dream" : NULL);
	ck_assert(module.leaves);
	ck_assert(!remains_are_lost(fixture.tenant));
	remains_note_launch(fixture.tenant, &kernel);
	ck_assert(remains_are_lost(fixture.tenant));
}

TEST(variable, what_did_not_run_is_as_it_was_loaded)
{
	load_module(1, NULL);
	kernel.leaves = false;
	remains_note_launch(fixture.tenant, &kernel);
	ck_assert(!remains_are_lost(fixture.tenant));
	load_module(0, NULL);
	ck_assert(!module.leaves && !kernel.leaves);
	remains_note_launch(fixture.tenant, &kernel);
	ck_assert(!remains_are_lost(fixture.tenant));
}

/* Its number is free again. */
TEST(variable, an_unloaded_module_leaves_nothing)
{
	load_module(1, NULL);
	remains_note_launch(fixture.tenant, &kernel);
	remains_forget_launches(fixture.tenant, &module);
	remains_forget(fixture.tenant, &module);
	ck_assert(!remains_are_lost(fixture.tenant));
	load_module(1, NULL);
	ck_assert(!remains_are_lost(fixture.tenant));
}

/* A standby has nothing on a device: the launches are of the executor that serves the session. */
TEST(variable, a_standby_that_unloads_forgets_no_launch)
{
	load_module(1, NULL);
	remains_note_launch(fixture.tenant, &kernel);
	word_release(&fixture.tenant->generation, 0);
	remains_forget_launches(fixture.tenant, &module);
	ck_assert(remains_are_lost(fixture.tenant));
	remains_forget(fixture.tenant, &module);
	ck_assert(!remains_are_lost(fixture.tenant));
}

int main(void)
{
	Suite *suite = suite_create("variable");
	TCase *tests = tcase_create("variable");

	tcase_set_timeout(tests, 60);
	tcase_add_checked_fixture(tests, open_path, close_path);
	suite_add(tests, "variable");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
