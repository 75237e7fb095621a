// See outlast.h.

#include "tests/system/outlast.h"

#include <check.h>

#include "tests/system/status.h"

#define TURNS 20

static void go_on(const struct child *child)
{
	child_drain(child);
	child_wait(child, TURNS);
}

static void end(struct service *service, struct child *child)
{
	child_order(child);
	ck_assert_int_eq(child_end(child), 0);
	ck_assert_int_eq(service_stop(service), 0);
}

void expect_outlasts_faults(struct service *service, child_function *goes_on, int (*culprit)(int), int faults)
{
	struct child child;

	ck_assert(service_start_configured(service, "quarantine_faults = 0\n"));
	child = child_start(goes_on);
	child_wait(&child, TURNS);
	for (int i = 0; i < faults; i++) {
		ck_assert_int_eq(exit_status(spawn(culprit, 0)), 0);
		status_await_faults(service, i + 1);
		go_on(&child);
	}
	end(service, &child);
}

void expect_outlasts_executors(struct service *service, child_function *goes_on, int executors)
{
	struct child child;

	ck_assert(service_start(service, NULL));
	child = child_start(goes_on);
	child_wait(&child, TURNS);
	for (int i = 0; i < executors; i++) {
		status_replace_active(service, i + 1);
		go_on(&child);
	}
	end(service, &child);
}
