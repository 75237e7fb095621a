// The frame of every libcheck program here:
//
//   TEST(basics, wraps_around)
//   {
//           …
//   }
//
//   int main(void)
//   {
//           Suite *suite = suite_create("ring");
//           TCase *basics = suite_case(suite, "basics");
//           suite_add(basics, "basics");
//           return suite_run(suite);
//   }
//
// A test is one definition, which names its group; a case takes whole groups. START_TEST and
// tcase_add_*() are for tests that libcheck must know more of: an exit code, a signal, numbers that
// only the program knows.
//
// Each test runs in a process of its own unless CK_FORK=no. CK_RUN_CASE and CK_VERBOSITY work as in
// libcheck.

#ifndef FRMPS_TESTS_LIB_SUITE_H
#define FRMPS_TESTS_LIB_SUITE_H

#include <check.h>
#include <stdbool.h>
#include <stddef.h>

/* Longest run of a single test, seconds; generous, because sanitizers and busy machines are slow,
 * and some stand still for a minute. */
#define SUITE_TIMEOUT 180

/**
 * Adds a test case whose tests fail when they leave more (or fewer) file descriptors open than they
 * found. Add fixtures of your own after it: they are then torn down before the descriptors are
 * counted.
 */
TCase *suite_case(Suite *suite, const char *name);
/* A test that is defined by TEST() or TEST_LOOP(). Static. */
struct suite_test {
	TTest test;
	const char *group;
	int begin, end; /* runs with _i from begin to end - 1 */
	struct suite_test *next;
};

/** Called before main(), once for each test, in the order of their definitions. */
void suite_register(struct suite_test *test, int begin, int end);

/** Defines a test of a group. */
#define TEST(group, name) TEST_LOOP(group, name, 0, 1)
/** The same, run for each _i from begin to end - 1, which are known before main(). */
#define TEST_LOOP(group, name, begin, end)                                                                   \
	static void name(int _i CK_ATTRIBUTE_UNUSED);                                                        \
	static struct suite_test name##_test = {{#name, name, __FILE__, __LINE__}, #group, 0, 0, NULL};      \
	static __attribute__((constructor)) void name##_register(void)                                       \
	{                                                                                                    \
		suite_register(&name##_test, (int)(begin), (int)(end));                                      \
	}                                                                                                    \
	static void name(int _i CK_ATTRIBUTE_UNUSED)

/** Adds the tests of a group to a case, in the order of their definitions. A group without tests is
 * an error. */
void suite_add(TCase *tcase, const char *group);

/**
 * Adds a sweep over all places where something may die: a START_TEST() is run with _i from
 * kind * places to (kind + 1) * places - 1. A build with address checks, which is several times
 * slower, takes every fifth place alone, another one for each kind of death.
 */
void suite_add_sweep(TCase *tcase, const TTest *test, int kind, int places);

/** Runs and frees the suite. Return: exit status for main(): 0 if at least one test ran and all
 * passed. */
int suite_run(Suite *suite);

#endif
