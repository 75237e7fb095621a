// Instruction caches of the device keep code that has run, whatever is written there later, until
// they have a turn. So the service's loader lets addresses rest that have held code; where this
// check lets two kernels have one without a turn, the wrong one runs.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/backend/cuda/code_caches.h"
#include "server/backend/cuda/code_memory.h"
#include "server/backend/cuda/driver.h"
#include "server/backend/cuda/jit.h"
#include "server/backend/cuda/loader.h"
#include "server/backend/kernels.h"
#include "tests/gpu/backend_bed.h"

#define BLOCKS	264u
#define THREADS 128u
#define TURNS	60u
/* Much, for a turn of the caches to be due. */
#define WORN_BYTES (UINT64_C(65) << 20)
/* Bytes of the kernel, at most. */
#define CODE_MOST 1024u

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

static bool tells(uint32_t want)
{
	static uint32_t told[BLOCKS * THREADS];
	bool right = true;

	memcpy(told, at(HOST_DATA), sizeof(told));
	for (uint32_t i = 0; i < BLOCKS * THREADS; i++)
		right &= told[i] == want;
	return right;
}

static void run(struct backend_stream *stream, struct backend_function *function)
{
	struct backend_launch launch = {
		.function = function, .grid = {BLOCKS, 1, 1}, .block = {THREADS, 1, 1}, .info = &info};
	const uint64_t out = HOST_DATA;

	memset(at(HOST_DATA), 0, BLOCKS * THREADS * sizeof(uint32_t));
	launch.arguments = (const uint8_t *)&out;
	launch.argument_bytes = sizeof(out);
	ok(OPS->launch(stream, &launch));
	wait_stream(stream);
}

/* Return: where the kernel of the module lies */
static uint64_t load_one(uint32_t which, struct backend_module **ret_module, struct backend_function **ret)
{
	struct backend_load load = {.image = codes[which], .room = UINT64_MAX, .bytes = code_bytes[which]};

	ok(OPS->module_load(&load, ret_module));
	ok(OPS->function_find(*ret_module, "tell", false, ret, &info));
	check(cuda_kernel(*ret)->own != NULL);
	return cuda_kernel(*ret)->own->code;
}

/* One after the other, as programs load and unload. Return: in how many turns the wrong code ran */
static uint32_t take_turns(struct backend_stream *stream)
{
	uint64_t place, before = 0;
	uint32_t wrong = 0;

	for (uint32_t i = 0; i < TURNS && !failures; i++) {
		struct backend_function *function;
		struct backend_module *loaded;

		place = load_one(i % 2, &loaded, &function);
		check(place > before);
		before = place;
		run(stream, function);
		wrong += !tells(i % 2 + 1);
		ok(OPS->module_unload(loaded));
	}
	return wrong;
}

/* Return: its bytes */
static uint64_t place_code(uint32_t which, uint8_t *ret)
{
	struct kernels kernels;
	uint8_t tail[64];
	uint64_t bytes = 0;

	check(!kernels_open(&kernels, codes[which], code_bytes[which]) && kernels.count == 1 &&
		kernels_code_bytes(&kernels, &kernels.at[0]) <= CODE_MOST);
	if (!failures) {
		bytes = kernels_code_bytes(&kernels, &kernels.at[0]);
		kernels_place(&kernels, &kernels.at[0], ret, tail);
	}
	kernels_close(&kernels);
	return bytes;
}

static void give_turn(void)
{
	struct code_memory memory;

	ok(code_memory_take(WORN_BYTES, &memory));
	ok(code_memory_settle(&memory, 0));
	code_memory_give(&memory);
	check(code_memory_is_worn());
	code_caches_tend();
	check(!code_memory_is_worn());
	ok(driver.context_synchronize());
	code_caches_tend();
}

/* Both where the first one is. */
static uint32_t share_place(struct backend_stream *stream, bool has_turns)
{
	static uint8_t code[2][CODE_MOST];
	struct backend_function *function;
	struct backend_module *loaded;
	uint64_t place = load_one(0, &loaded, &function), bytes[2];
	uint32_t wrong = 0;

	for (uint32_t i = 0; i < 2; i++)
		bytes[i] = place_code(i, code[i]);
	for (uint32_t i = 0; i < TURNS && !failures; i++) {
		ok(code_memory_write(place, code[i % 2], bytes[i % 2]));
		if (has_turns)
			give_turn();
		run(stream, function);
		wrong += !tells(i % 2 + 1);
	}
	ok(OPS->module_unload(loaded));
	return wrong;
}

void check_caches(void)
{
	struct backend_stream *stream = stream_new();
	uint32_t apart, shared, told;

	compile(0);
	compile(1);
	apart = take_turns(stream);
	shared = share_place(stream, false);
	told = share_place(stream, true);
	printf("other code: wrong in %u of %u turns, in %u where one address has both, in %u with turns of "
	       "the caches\n",
		apart, TURNS, shared, told);
	check(apart == 0);
	check(shared > 0);
	check(told == 0);
	free(codes[0]);
	free(codes[1]);
	ok(OPS->stream_destroy(stream));
}
