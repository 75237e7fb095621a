// The trial on the device, in this process: it succeeds as an executor is set up, and fails where
// the service's own handling of exceptions is switched off. Or many times in one context, with a
// survivor of so many blocks that each culprit has some beside it on its multiprocessor; half-way
// the driver gets more local memory, for which it could make its handler anew. Or with culprits
// that are not in their kernel's code, and have to be led there (backend/cuda/handler.c). This is
// the end of the context.

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/backend/trial.h"
#include "server/role.h"
#include "server/worker/exceptions.h"
#include "tests/gpu/backend_bed.h"

#define STEP_MS	    3000u
#define STACK_BYTES 16384

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

/* A kernel whose warp is in the driver's code of assert() when it has faulted. No function of the
 * module may have its address taken: the compiler would put a copy of it behind the kernel, into
 * the kernel's own code, and read where to jump from a table. So the address is added to the
 * kernel's own. */
static const char failing[] =
	".extern .func __assertfail (.param .b64 message, .param .b64 file, .param .b32 line, .param .b64 "
	"function, .param .b64 bytes);\n"
	".global .b8 frmps_trial_name[2] = {120, 0};\n"
	".visible .entry frmps_trial_assert()\n"
	"{\n"
	"	.reg .b64 %d;\n"
	"	mov.u64 %d, frmps_trial_name; cvta.global.u64 %d, %d;\n"
	"	{ .param .b64 message; .param .b64 file; .param .b32 line; .param .b64 function; .param .b64 "
	"bytes;\n"
	"	st.param.b64 [message], %d; st.param.b64 [file], %d; st.param.b32 [line], 1;\n"
	"	st.param.b64 [function], %d; st.param.b64 [bytes], 1;\n"
	"	call.uni __assertfail, (message, file, line, function, bytes); }\n"
	"	ret;\n"
	"}\n";

/* Only culprits that are not in their kernel's code. */
static void use_elsewhere(struct trial_kernels *kernels)
{
	static char text[8192];

	snprintf(text, sizeof(text), "%s%s", (const char *)kernels->image, failing);
	kernels->image = text;
	kernels->bytes = strlen(text) + 1;
	kernels->culprits[0] = kernels->culprits[2]; /* the jump */
	kernels->culprits[1].name = "frmps_trial_assert";
	kernels->culprits[1].code = CUDA_ERROR_ASSERT;
	kernels->culprits[2].name = NULL;
}

void check_trials(unsigned times, bool leave)
{
	struct trial_kernels kernels = *OPS->trial;
	char why[TRIAL_TEXT] = "";
	double begin, longest = 0, took;
	uint64_t stack;
	unsigned i;

	open_context(false);
	if (leave)
		use_elsewhere(&kernels);
	kernels.blocks = TRIAL_THREADS_MAX;
	kernels.threads = 1;
	for (i = 0; i < times && !why[0]; i++) {
		if (i == times / 2)
			ok(OPS->limit_set(CU_LIMIT_STACK_SIZE, STACK_BYTES, &stack));
		begin = now_us();
		trial_run(OPS, &kernels, STEP_MS, why);
		took = now_us() - begin;
		longest = took > longest ? took : longest;
	}
	printf("trials: %u, the longest %.1f ms; the last: %s\n", i, longest / 1e3, why[0] ? why : "proved");
	check(times && !why[0]);
}
