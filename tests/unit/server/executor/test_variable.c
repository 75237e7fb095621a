// Values of modules' variables: whose are written down, and into what they are written.

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "server/executor/variable.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/executor/fixture.h"

#define ADDRESS UINT64_C(0x7000)

static void open_path(void)
{
	fixture_open_default();
	ck_assert_int_eq(variable_open(&fixture.executor), CUDA_SUCCESS);
	fake.immediate = true;
	fake.device_word = 4711;
	fake.count = 0;
}

static void close_path(void)
{
	variable_close(&fixture.executor);
	fixture_close();
}

static int save(uint64_t address, uint64_t bytes)
{
	range_set_add(&fixture.tenant->globals, address, bytes);
	return variable_save(&fixture.executor);
}

static char why[REMAINS_TEXT];

static bool restore(int fd, uint32_t former)
{
	struct variable_set set;
	bool fine;

	variable_set_init(&set, fd);
	fine = variable_restore(fixture.tenant, &set, former, why);
	variable_set_deinit(&set);
	return fine;
}

START_TEST(values_go_to_the_same_addresses)
{
	const struct fake_call *call;
	int fd = save(ADDRESS, 8);

	ck_assert_int_ge(fd, 0);
	ck_assert_uint_eq(fake_call(FAKE_COPY, 0)->value, ADDRESS);
	ck_assert(restore(fd, 1));
	call = fake_call(FAKE_COPY, 1);
	ck_assert_uint_eq((uintptr_t)call->object, ADDRESS);
	ck_assert_uint_eq(*(uint64_t *)(uintptr_t)call->value, 4711);
	ck_assert_uint_eq(fake_count(FAKE_COPY), 2);
	close(fd);
}
END_TEST

START_TEST(nothing_is_written_but_what_the_session_has_looked_up)
{
	int fd = save(ADDRESS, 8);

	range_set_remove(&fixture.tenant->globals, ADDRESS, 8);
	ck_assert(restore(fd, 1));
	range_set_add(&fixture.tenant->globals, ADDRESS, 4);
	ck_assert(!restore(fd, 1));
	range_set_add(&fixture.tenant->globals, ADDRESS, 16);
	ck_assert(!restore(fd, 1));
	ck_assert_uint_eq(fake_count(FAKE_COPY), 1);
	close(fd);
}
END_TEST

/* An executor has served the session since: these values are old. */
START_TEST(values_of_another_generation_are_not_believed)
{
	int fd = save(ADDRESS, 8);

	ck_assert(!restore(fd, 2));
	ck_assert_uint_eq(fake_count(FAKE_COPY), 1);
	close(fd);
}
END_TEST

START_TEST(a_file_that_was_cut_off_restores_nothing)
{
	int fd = save(ADDRESS, 8);

	ck_assert_int_eq(ftruncate(fd, lseek(fd, 0, SEEK_END) - 1), 0);
	ck_assert(!restore(fd, 1));
	ck_assert(!restore(-1, 1));
	close(fd);
}
END_TEST

START_TEST(who_does_not_go_on_is_not_written_down)
{
	word_set(&fixture.tenant->ended, 1);
	ck_assert_int_eq(save(ADDRESS, 8), -1);
	word_set(&fixture.tenant->ended, 0);
	fixture.tenant->closing = true;
	ck_assert_int_eq(variable_save(&fixture.executor), -1);
	ck_assert_uint_eq(fake_count(FAKE_COPY), 0);
}
END_TEST

/* All of a session or nothing of it. */
START_TEST(what_cannot_be_read_is_left_out)
{
	fake.fails[FAKE_COPY] = CUDA_ERROR_INVALID_VALUE;
	ck_assert_int_eq(save(ADDRESS, 8), -1);
	fake.fails[FAKE_COPY] = CUDA_SUCCESS;
	ck_assert_int_eq(save(UINT64_C(0x100000), UINT64_C(1) << 40), -1);
}
END_TEST

/* What the device does not do in time may be done later: nothing goes that way any more. */
START_TEST(a_device_that_does_not_come_back_is_not_waited_for_again)
{
	int fd;

	fake.immediate = false;
	ck_assert_int_eq(save(ADDRESS, 8), -1);
	fake.immediate = true;
	fd = variable_save(&fixture.executor);
	ck_assert_int_eq(fd, -1);
	ck_assert_uint_eq(fake_count(FAKE_COPY), 1);
}
END_TEST

static CUresult fill(void)
{
	const struct range block = {FIXTURE_WINDOW, FIXTURE_WINDOW + 64};
	const uint8_t values[64] = {1};

	return variable_fill(fixture.tenant, &block, values);
}

/* It is nobody's fault, and no more than late: until then nothing of the session may be somebody else's. */
START_TEST(first_values_that_come_late_are_waited_for)
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
END_TEST

START_TEST(a_mark_that_failed_is_tried_again)
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
END_TEST

static void *fill_in_a_thread(void *unused)
{
	(void)unused;
	return (void *)(intptr_t)fill();
}

/* Whoever ends meanwhile is not told that its own work does not end: that would end the executor. */
START_TEST(first_values_on_their_way_are_nobody_elses)
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
END_TEST

/* ---- variables that only kernels know ---- */

/* Where the backend has them all. */
#define FOUND UINT64_C(0x7000000000)

static struct statics_variable counter = {.name = (char[]){"counter"}, .bytes = 256};
static struct module module;
static struct function kernel = {.module = &module, .leaves = true};

static void load_module(uint32_t variables, const char *more)
{
	module = (struct module){.id = 5};
	fake.statics =
		(struct statics){.variables = &counter, .count = variables, .more = more, .every = true};
	remains_add_module(fixture.tenant, &module);
}

static void find_kernel(void)
{
	remains_find(fixture.tenant, &module);
	kernel.leaves = remains_are_left_by(fixture.tenant, &module, "kernel");
}

START_TEST(what_kernels_wrote_goes_along)
{
	int fd;

	load_module(1, NULL);
	ck_assert(module.leaves);
	find_kernel();
	remains_note_launch(fixture.tenant, &kernel);
	fd = variable_save(&fixture.executor);
	ck_assert_int_ge(fd, 0);
	ck_assert_uint_eq(fake_call(FAKE_COPY, 0)->value, FOUND);
	ck_assert(restore(fd, 1));
	ck_assert_uint_eq((uintptr_t)fake_call(FAKE_COPY, 1)->object, FOUND);
	/* It ends otherwise: nothing is there. */
	ck_assert(!restore(-1, 1));
	ck_assert_str_eq(why, "");
	close(fd);
}
END_TEST

START_TEST(what_did_not_run_is_as_it_was_loaded)
{
	load_module(1, NULL);
	find_kernel();
	ck_assert_int_eq(variable_save(&fixture.executor), -1);
	ck_assert(restore(-1, 1));
	kernel.leaves = false;
	remains_note_launch(fixture.tenant, &kernel);
	ck_assert(restore(-1, 1));
	load_module(0, NULL);
	find_kernel();
	ck_assert(!module.leaves && !kernel.leaves);
	remains_note_launch(fixture.tenant, &kernel);
	ck_assert(restore(-1, 1));
}
END_TEST

/* With the reason, also where the executor halts gently. */
START_TEST(what_cannot_be_taken_along_is_told)
{
	load_module(1, "its kernels dream");
	find_kernel();
	ck_assert(restore(-1, 1));
	remains_note_launch(fixture.tenant, &kernel);
	ck_assert_int_eq(variable_save(&fixture.executor), -1);
	ck_assert(!restore(-1, 1));
	ck_assert_str_eq(why, "its kernels dream");
}
END_TEST

/* Not there, of another size, or not looked for yet. */
START_TEST(a_variable_that_is_not_found_is_told)
{
	load_module(1, NULL);
	remains_note_launch(fixture.tenant, &kernel);
	ck_assert(!restore(-1, 1));
	ck_assert_str_eq(why, "its variables are not found");
	fake.global_bytes = 128;
	find_kernel();
	ck_assert_int_eq(variable_save(&fixture.executor), -1);
	ck_assert(!restore(-1, 1));
	ck_assert_str_eq(why, "counter");
}
END_TEST

/* Its number is free again. */
START_TEST(an_unloaded_module_leaves_nothing)
{
	load_module(1, NULL);
	find_kernel();
	remains_note_launch(fixture.tenant, &kernel);
	ck_assert(!restore(-1, 1));
	remains_forget_launches(fixture.tenant, &module);
	remains_forget(fixture.tenant, &module);
	ck_assert(restore(-1, 1));
	load_module(1, NULL);
	find_kernel();
	ck_assert(restore(-1, 1));
}
END_TEST

START_TEST(there_may_be_too_many)
{
	load_module(1, NULL);
	find_kernel();
	remains_note_launch(fixture.tenant, &kernel);
	for (uint32_t i = 0; i < REMAINS_MAX; i++) {
		module = (struct module){.id = 6};
		remains_add_module(fixture.tenant, &module);
	}
	/* Values of the first are lost, but nothing has run of the others. */
	ck_assert(!restore(-1, 1));
	ck_assert_str_eq(why, "");
	remains_note_launch(fixture.tenant, &kernel);
	ck_assert(!restore(-1, 1));
	ck_assert_str_eq(why, "there are too many");
}
END_TEST

/* Nor is it held against those that come later. */
START_TEST(too_many_are_forgotten_with_their_module)
{
	load_module(1, NULL);
	for (uint32_t i = 0; i < REMAINS_MAX; i++)
		remains_add_module(fixture.tenant, &module);
	find_kernel();
	remains_note_launch(fixture.tenant, &kernel);
	remains_forget_launches(fixture.tenant, &module);
	remains_forget(fixture.tenant, &module);
	load_module(1, NULL);
	find_kernel();
	remains_note_launch(fixture.tenant, &kernel);
	ck_assert(!restore(-1, 1));
	ck_assert_str_eq(why, "");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("variable");
	TCase *tests = tcase_create("variable");

	tcase_set_timeout(tests, 60);
	tcase_add_checked_fixture(tests, open_path, close_path);
	tcase_add_test(tests, values_go_to_the_same_addresses);
	tcase_add_test(tests, nothing_is_written_but_what_the_session_has_looked_up);
	tcase_add_test(tests, values_of_another_generation_are_not_believed);
	tcase_add_test(tests, a_file_that_was_cut_off_restores_nothing);
	tcase_add_test(tests, who_does_not_go_on_is_not_written_down);
	tcase_add_test(tests, what_cannot_be_read_is_left_out);
	tcase_add_test(tests, a_device_that_does_not_come_back_is_not_waited_for_again);
	tcase_add_test(tests, first_values_that_come_late_are_waited_for);
	tcase_add_test(tests, a_mark_that_failed_is_tried_again);
	tcase_add_test(tests, first_values_on_their_way_are_nobody_elses);
	tcase_add_test(tests, what_kernels_wrote_goes_along);
	tcase_add_test(tests, what_did_not_run_is_as_it_was_loaded);
	tcase_add_test(tests, what_cannot_be_taken_along_is_told);
	tcase_add_test(tests, a_variable_that_is_not_found_is_told);
	tcase_add_test(tests, an_unloaded_module_leaves_nothing);
	tcase_add_test(tests, there_may_be_too_many);
	tcase_add_test(tests, too_many_are_forgotten_with_their_module);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
