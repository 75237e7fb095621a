// The frame of every libcheck program here:
//
//   int main(void)
//   {
//           Suite *suite = suite_create("ring");
//           TCase *basics = suite_case(suite, "basics");
//           tcase_add_test(basics, wraps_around);
//           return suite_run(suite);
//   }
//
// Each test runs in a process of its own unless CK_FORK=no. CK_RUN_CASE and CK_VERBOSITY work as in
// libcheck.

#ifndef FRMPS_TESTS_LIB_SUITE_H
#define FRMPS_TESTS_LIB_SUITE_H

#include <check.h>

/* Longest run of a single test, seconds; generous, because sanitizers and busy machines are slow,
 * and some stand still for a minute. */
#define SUITE_TIMEOUT 180

/**
 * Adds a test case whose tests fail when they leave more (or fewer) file descriptors open than they
 * found. Add fixtures of your own after it: they are then torn down before the descriptors are
 * counted.
 */
TCase *suite_case(Suite *suite, const char *name);
/** Runs and frees the suite. Return: exit status for main(): 0 if at least one test ran and all
 * passed. */
int suite_run(Suite *suite);

#endif
