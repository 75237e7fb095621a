// The trial on the device, in this process: it succeeds as an executor is set up, and fails where the service's own handling
// of exceptions is switched off. Or many times in one context, with a survivor of so many blocks that each culprit has some
// beside it on its multiprocessor. This is the end of the context.

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

static void open_context(bool off)
{
	become_executor();
	backend_is_served = true;
	backend_is_unproved = off;
	ok(OPS->open_executor(0, &device));
	ok(OPS->thread_enter());
	check(backend_contains == !off);
}

void check_trial(bool off)
{
	char why[TRIAL_TEXT];
	double begin;

	open_context(off);
	begin = now_us();
	trial_run(OPS, OPS->trial, STEP_MS, why);
	printf("trial: %s after %.1f ms\n", why[0] ? why : "proved", (now_us() - begin) / 1e3);
	check(off == (why[0] != '\0'));
}

void check_trials(unsigned times)
{
	struct trial_kernels kernels = *OPS->trial;
	char why[TRIAL_TEXT] = "";
	double begin, longest = 0, took;
	unsigned i;

	open_context(false);
	kernels.blocks = TRIAL_THREADS_MAX;
	kernels.threads = 1;
	for (i = 0; i < times && !why[0]; i++) {
		begin = now_us();
		trial_run(OPS, &kernels, STEP_MS, why);
		took = now_us() - begin;
		longest = took > longest ? took : longest;
	}
	printf("trials: %u, the longest %.1f ms; the last: %s\n", i, longest / 1e3, why[0] ? why : "proved");
	check(times && !why[0]);
}
