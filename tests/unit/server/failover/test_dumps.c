// Whoever writes into a dump is noticed, until it is forgotten.

#include "server/failover/dumps.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#include <uv.h>

#include "tests/lib/suite.h"

#define FILES 3

static uv_loop_t loop;
static struct dumps *dumps;
static int files[FILES], ids[FILES];
static unsigned told[FILES];

static void on_written(void *context, int id)
{
	ck_assert_ptr_eq(context, &loop);
	for (int i = 0; i < FILES; i++)
		told[i] += ids[i] == id;
}

static void open_all(void)
{
	uv_loop_init(&loop);
	dumps = dumps_new(&loop, on_written, &loop);
	ck_assert_ptr_nonnull(dumps);
	for (int i = 0; i < FILES; i++) {
		files[i] = memfd_create("dump", MFD_CLOEXEC);
		ids[i] = dumps_watch(dumps, files[i]);
		ck_assert_int_ge(ids[i], 0);
		told[i] = 0;
	}
}

static void close_all(void)
{
	for (int i = 0; i < FILES; i++)
		close(files[i]);
	ck_assert_ptr_null(dumps_free(dumps));
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
}

/* Everything here is local: a few rounds carry every consequence through. */
static void turn(void)
{
	for (int i = 0; i < 4; i++)
		uv_run(&loop, UV_RUN_NOWAIT);
}

/* Opened by its path, as the driver does: what is written through the descriptor itself goes unnoticed. */
static void write_to(int i)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", files[i]);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	ck_assert_int_eq(write(fd, "x", 1), 1);
	close(fd);
}

static void write_and_look(int i)
{
	write_to(i);
	turn();
}

START_TEST(who_was_written_to_is_told)
{
	write_and_look(1);
	ck_assert(!told[0] && told[1] && !told[2]);
	write_and_look(2);
	ck_assert(!told[0] && told[2]);
}
END_TEST

START_TEST(the_forgotten_one_is_not)
{
	dumps_forget(dumps, ids[0]);
	write_and_look(0);
	ck_assert_uint_eq(told[0], 0);
	write_and_look(1);
	ck_assert_uint_gt(told[1], 0);
}
END_TEST

/* An event that waits while its executor goes must not become that of a later one. */
START_TEST(ids_are_not_given_out_again)
{
	int old = ids[0];

	write_to(0);
	dumps_forget(dumps, old);
	close(files[0]);
	files[0] = memfd_create("dump", MFD_CLOEXEC);
	ids[0] = dumps_watch(dumps, files[0]);
	ck_assert_int_ne(ids[0], old);
	turn();
	ck_assert_uint_eq(told[0], 0);
}
END_TEST

START_TEST(without_any_nothing_happens)
{
	ck_assert_int_eq(dumps_watch(NULL, files[0]), -1);
	dumps_forget(NULL, 1);
	dumps_forget(dumps, -1);
	ck_assert_ptr_null(dumps_free(NULL));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("server/failover/dumps");
	TCase *tests = suite_case(suite, "dumps");

	/* The first loop of a process opens what all share. */
	uv_loop_init(&loop);
	uv_loop_close(&loop);
	tcase_add_checked_fixture(tests, open_all, close_all);
	tcase_add_test(tests, who_was_written_to_is_told);
	tcase_add_test(tests, the_forgotten_one_is_not);
	tcase_add_test(tests, ids_are_not_given_out_again);
	tcase_add_test(tests, without_any_nothing_happens);
	return suite_run(suite);
}
