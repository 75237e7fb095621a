// The trial on the device, in this process: it succeeds as an executor is set up, and fails where the service's own handling
// of exceptions is switched off. This is the end of the context.

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/backend/trial.h"
#include "server/role.h"
#include "server/worker/exceptions.h"
#include "tests/gpu/backend_bed.h"

#define STEP_MS 3000u

/* What supervise.c gives an executor. Before the driver is opened. */
static void become_executor(void)
{
	int dump = memfd_create("frmps-dump", 0);
	char **settings = exceptions_environment(environ);

	check(dump >= 0 && dup2(dump, HERITAGE_DUMP_FD) == HERITAGE_DUMP_FD);
	check(settings != NULL);
	if (settings)
		environ = settings;
}

void check_trial(bool off)
{
	char why[TRIAL_TEXT];
	double begin;

	become_executor();
	backend_is_served = true;
	backend_is_unproved = off;
	ok(OPS->open_executor(0, &device));
	ok(OPS->thread_enter());
	check(backend_contains == !off);
	begin = now_us();
	trial_run(OPS, OPS->trial, STEP_MS, why);
	printf("trial: %s after %.1f ms\n", why[0] ? why : "proved", (now_us() - begin) / 1e3);
	check(off == (why[0] != '\0'));
}
