// Runs libcheck suites with a descriptor count around every test. The count is taken by checked
// fixtures, so it happens in the process of the test, forked or not.

#include "tests/lib/suite.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fds.h"

static unsigned open_before;

static void count_before(void)
{
	open_before = fds_count();
}

static void compare_after(void)
{
	unsigned open_after = fds_count();
	char text[2048];

	if (open_after == open_before)
		return;
	fds_describe(text, sizeof(text));
	ck_abort_msg("%u descriptors were open before the test, %u are after it: %s", open_before, open_after,
		text);
}

TCase *suite_case(Suite *suite, const char *name)
{
	TCase *tcase = tcase_create(name);

	tcase_set_timeout(tcase, SUITE_TIMEOUT);
	tcase_add_checked_fixture(tcase, count_before, compare_after);
	suite_add_tcase(suite, tcase);
	return tcase;
}

/*
 * Tests that register themselves
 */

static struct suite_test *first, **last = &first;

void suite_register(struct suite_test *test, int begin, int end)
{
	test->begin = begin;
	test->end = end;
	*last = test;
	last = &test->next;
}

void suite_add(TCase *tcase, const char *group)
{
	bool any = false;

	for (struct suite_test *test = first; test; test = test->next) {
		if (strcmp(test->group, group))
			continue;
		_tcase_add_test(tcase, &test->test, 0, 0, test->begin, test->end);
		any = true;
	}
	if (!any) {
		fprintf(stderr, "suite.c: no test is of group %s\n", group);
		abort();
	}
}

#ifdef __SANITIZE_ADDRESS__
#define SWEEP_STEP 5
#else
#define SWEEP_STEP 1
#endif

void suite_add_sweep(TCase *tcase, const TTest *test, int kind, int places)
{
	for (int i = 0; i < places; i++)
		if ((i + kind) % SWEEP_STEP == 0)
			tcase_add_loop_test(tcase, test, kind * places + i, kind * places + i + 1);
}

/* Of the leak checker and of its allocator, where there are any. */
__attribute__((weak)) void __lsan_disable(void);
__attribute__((weak)) void __lsan_enable(void);
__attribute__((weak)) void __sanitizer_purge_allocator(void);

static bool checks_leaks = true;

/* In the process of a test, and once: what a test forks itself goes on as it is. */
static void check_leaks(void)
{
	if (checks_leaks)
		return;
	checks_leaks = true;
	__lsan_enable();
}

/* libcheck's own process frees a block for every assertion of every test. What stays of these in
 * quarantine goes on to each test after it, and the leak checker looks at every block. */
static void forget_freed(void)
{
	if (!checks_leaks)
		__sanitizer_purge_allocator();
}

/* libcheck has some of its memory on its stack alone. To find that out again in the process of each
 * test takes more time than most tests. */
static void leave_libcheck_out(void)
{
	if (!checks_leaks || !__lsan_disable || !__lsan_enable || !__sanitizer_purge_allocator ||
		pthread_atfork(forget_freed, NULL, check_leaks))
		return;
	checks_leaks = false;
	__lsan_disable();
}

/* Not on the stack, where the leak checker does not look. */
static SRunner *runner;

int suite_run(Suite *suite)
{
	runner = srunner_create(suite);
	if (srunner_fork_status(runner) == CK_FORK)
		leave_libcheck_out();
	srunner_run_all(runner, CK_ENV);
	int run = srunner_ntests_run(runner);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	runner = NULL;
	if (!run)
		fprintf(stderr, "no test ran\n");
	return run && !failed ? EXIT_SUCCESS : EXIT_FAILURE;
}
