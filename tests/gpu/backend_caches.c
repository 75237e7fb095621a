// Instruction caches of the device: new code where other code has run. The service's loader enters
// it through trampolines that invalidate the caches; with others the old code runs, so this check
// would fail.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/backend/cuda/code_memory.h"
#include "server/backend/cuda/jit.h"
#include "server/backend/cuda/loader.h"
#include "server/backend/cuda/trampoline.h"
#include "tests/gpu/backend_bed.h"

#define BLOCKS	264u
#define THREADS 128u
#define TURNS	60u
/* What code memory leaves alone before it uses it again (code_memory.c), and a step. */
#define REST_BYTES  (UINT64_C(64) << 20)
#define PIECE_BYTES (UINT64_C(1) << 20)

static void *codes[2];
static size_t code_bytes[2];

static void compile(uint32_t which)
{
	char text[1024];

	snprintf(text, sizeof(text),
		".version 7.0\n.target sm_70\n.address_size 64\n"
		".visible .entry tell(.param .u64 out)\n"
		"{\n"
		".reg .b32 %%r<5>; .reg .b64 %%d<4>;\n"
		"ld.param.u64 %%d1, [out]; mov.u32 %%r1, %%ctaid.x; mov.u32 %%r2, %%tid.x;\n"
		"mad.lo.u32 %%r3, %%r1, %u, %%r2; mul.wide.u32 %%d2, %%r3, 4; add.u64 %%d3, %%d1, %%d2;\n"
		"mov.u32 %%r4, %u; st.global.u32 [%%d3], %%r4; ret;\n"
		"}\n",
		THREADS, which + 1);
	ok(jit_compile(
		CU_JIT_INPUT_PTX, text, strlen(text) + 1, 0, NULL, NULL, &codes[which], &code_bytes[which]));
}

/* Until pieces are used again. What is taken here stays. */
static void wear(void)
{
	struct code_memory memory;

	ok(code_memory_take(REST_BYTES, false, &memory));
	code_memory_give(&memory);
	for (memory.was_code = false; !memory.was_code && !failures;)
		ok(code_memory_take(PIECE_BYTES, false, &memory));
	code_memory_give(&memory);
	for (memory.was_code = false; !memory.was_code && !failures;)
		ok(code_memory_take(1, false, &memory));
	code_memory_give(&memory);
}

static bool tells(uint32_t want)
{
	static uint32_t told[BLOCKS * THREADS];
	bool right = true;

	memcpy(told, at(HOST_DATA), sizeof(told));
	for (uint32_t i = 0; i < BLOCKS * THREADS; i++)
		right &= told[i] == want;
	return right;
}

/* Loads, runs and unloads one of the two. Return: whether it ran */
static bool run(struct backend_stream *stream, uint32_t which, bool invalidates, uint64_t *ret_at)
{
	struct backend_launch launch = {.grid = {BLOCKS, 1, 1}, .block = {THREADS, 1, 1}, .info = &info};
	const uint64_t out = HOST_DATA;
	struct backend_load load = {.image = codes[which], .bytes = code_bytes[which]};
	struct backend_module *loaded;
	struct loader_kernel *own;
	bool right;

	ok(OPS->module_load(&load, &loaded));
	ok(OPS->function_find(loaded, "tell", false, &launch.function, &info));
	own = cuda_kernel(launch.function)->own;
	check(own != NULL);
	*ret_at = own->code;
	if (!invalidates)
		own->kernel.function = trampolines_find(NULL, false, 24, 1, own->carried)->function;
	memset(at(HOST_DATA), 0, BLOCKS * THREADS * sizeof(uint32_t));
	launch.arguments = (const uint8_t *)&out;
	launch.argument_bytes = sizeof(out);
	ok(OPS->launch(stream, &launch));
	wait_stream(stream);
	right = tells(which + 1);
	ok(OPS->module_unload(loaded));
	return right;
}

/* Return: in how many turns the wrong code ran */
static uint32_t count_wrong(struct backend_stream *stream, bool invalidates)
{
	uint64_t place = 0, before = 0;
	uint32_t wrong = 0, same = 0;

	for (uint32_t i = 0; i < TURNS && !failures; i++) {
		wrong += !run(stream, i % 2, invalidates, &place);
		same += place == before;
		before = place;
	}
	check(same >= TURNS / 2);
	return wrong;
}

void check_caches(void)
{
	struct backend_stream *stream = stream_new();
	uint32_t with, without;

	compile(0);
	compile(1);
	wear();
	with = count_wrong(stream, true);
	without = count_wrong(stream, false);
	printf("other code at one address: wrong in %u of %u turns, in %u with trampolines that invalidate "
	       "nothing\n",
		with, TURNS, without);
	check(with == 0);
	check(without > 0);
	free(codes[0]);
	free(codes[1]);
	ok(OPS->stream_destroy(stream));
}
