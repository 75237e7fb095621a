// A program goes on, exactly, whatever becomes of others and of its executor.

#ifndef FRMPS_TESTS_SYSTEM_OUTLAST_H
#define FRMPS_TESTS_SYSTEM_OUTLAST_H

#include "tests/lib/service.h"
#include "tests/system/program.h"

/**
 * Runs a program against a service of its own while others do something bad.
 * @goes_on: a program that reports its turns, and ends with 0 at an order
 * @culprit: a program whose kernel faults; ends with 0
 */
void expect_outlasts_faults(
	struct service *service, child_function *goes_on, int (*culprit)(int), int faults);
/** The same while the program's executor is killed, with its work under way. */
void expect_outlasts_executors(struct service *service, child_function *goes_on, int executors);

#endif
