// See loader_trial.h. Where a trial fails the reason is in the log.

#include "server/backend/cuda/loader_trial.h"

#include <stdlib.h>

#include "server/backend/cuda/code_memory.h"
#include "server/backend/cuda/jit.h"
#include "server/backend/cuda/loader.h"
#include "server/log.h"

#define THREADS 64u
#define NUMBER	1000u

static const uint32_t steps[4] = {3, 5, 7, 11};
#define BASE 200u

static const char text[] =
	".version 7.0\n"
	".target sm_70\n"
	".address_size 64\n"
	".const .align 4 .u32 steps[4] = {3, 5, 7, 11};\n"
	".global .align 4 .u32 base[2] = {100, 200};\n"
	".visible .entry frmps_loaded(.param .u64 results, .param .u32 number)\n"
	"{\n"
	"	.shared .align 4 .b8 tally[256];\n"
	"	.reg .b32 %r<10>; .reg .b64 %d<5>;\n"
	"	ld.param.u64 %d1, [results]; ld.param.u32 %r1, [number]; mov.u32 %r2, %tid.x;\n"
	"	and.b32 %r3, %r2, 3; mul.wide.u32 %d2, %r3, 4; mov.u64 %d3, steps; add.u64 %d3, %d3, %d2;\n"
	"	ld.const.u32 %r4, [%d3]; ld.global.u32 %r5, [base+4]; add.u32 %r4, %r4, %r5;\n"
	"	mov.u32 %r6, tally; mad.lo.u32 %r7, %r2, 4, %r6; st.shared.u32 [%r7], %r4; bar.sync 0;\n"
	"	sub.u32 %r8, 63, %r2; mad.lo.u32 %r7, %r8, 4, %r6; ld.shared.u32 %r9, [%r7];\n"
	"	add.u32 %r9, %r9, %r1; mul.wide.u32 %d4, %r2, 4; add.u64 %d1, %d1, %d4;\n"
	"	st.global.u32 [%d1], %r9; ret;\n"
	"}\n";

static CUresult launch(struct backend_function *function, const struct backend_function_info *info,
	uint64_t results, uint32_t ret[THREADS])
{
	const struct {
		uint64_t results;
		uint32_t number, unused;
	} arguments = {results, NUMBER, 0};
	const struct backend_launch launch = {.function = function,
		.info = info,
		.grid = {1, 1, 1},
		.block = {THREADS, 1, 1},
		.arguments = (const uint8_t *)&arguments,
		.argument_bytes = sizeof(arguments)};
	CUresult code = cuda_launch(NULL, &launch);

	if (!code)
		code = driver.copy_to_host(ret, results, THREADS * sizeof(ret[0]), NULL);
	return code ? code : driver.context_synchronize();
}

static bool is_right(const uint32_t results[THREADS])
{
	bool right = true;

	for (uint32_t i = 0; i < THREADS; i++)
		right &= results[i] == steps[(THREADS - 1 - i) % 4] + BASE + NUMBER;
	return right;
}

static CUresult run(struct loader_module *module, const struct code_memory *memory, bool *ret_right)
{
	struct backend_function_info *info = calloc(1, sizeof(*info));
	struct backend_function *function;
	uint32_t results[THREADS] = {0};
	CUresult code = info ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	if (!code)
		code = loader_find(module, "frmps_loaded", &function, info);
	if (!code)
		code = launch(function, info, memory->at, results);
	*ret_right = !code && is_right(results);
	free(info);
	return code;
}

bool loader_is_proved(void)
{
	struct backend_load load = {.window = 0};
	struct loader_module *module = NULL;
	struct code_memory memory = {0};
	struct fatbin_bytes cubin = {0};
	enum load_reason why = LOAD_REASON_NONE;
	void *compiled = NULL;
	bool right = false;
	CUresult code =
		jit_compile(CU_JIT_INPUT_PTX, text, sizeof(text), 0, NULL, NULL, &compiled, &cubin.count);

	cubin.at = compiled;
	if (!code)
		code = loader_load(&cubin, NULL, &load, &module, &why);
	if (!code)
		code = code_memory_take(THREADS * sizeof(uint32_t), &memory);
	if (!code)
		code = run(module, &memory, &right);
	if (code || !right)
		log_warning("the trial of the service's loader: code %d, results are %s%s%s", (int)code,
			right ? "right" : "wrong", why ? ": " : "", load_reason_text(why));
	if (!module)
		free(cubin.at);
	/* Where a kernel has faulted nothing is known of the device. */
	if (!code) {
		loader_unload(module);
		code_memory_give(&memory);
	}
	return !code && right;
}
