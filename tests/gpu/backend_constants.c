// Constants of many modules at a time: the service's loader has room for all in its banks, each
// reads its own, and a program can write to each.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/backend/cuda/code_memory.h"
#include "server/backend/cuda/jit.h"
#include "server/backend/cuda/loader.h"
#include "tests/gpu/backend_bed.h"

#define MODULES 100u

static const char text[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".const .align 4 .u32 number = 77;\n"
	".const .align 4 .u32 table[100] = {1, 2, 3};\n"
	".visible .entry add(.param .u64 out, .param .u32 index)\n"
	"{\n"
	".reg .b32 %r<5>; .reg .b64 %d<5>;\n"
	"ld.param.u64 %d1, [out]; ld.param.u32 %r1, [index]; ld.const.u32 %r2, [number];\n"
	"mul.wide.u32 %d2, %r1, 4; mov.u64 %d3, table; add.u64 %d3, %d3, %d2; ld.const.u32 %r3, [%d3];\n"
	"add.u32 %r2, %r2, %r3; st.global.u32 [%d1], %r2; ret;\n"
	"}\n";

struct one {
	struct backend_module *module;
	struct backend_function *function;
	struct backend_global number;
};

static void load_one(const void *code, size_t bytes, struct one *ret)
{
	struct backend_load load = {.image = code, .room = UINT64_MAX, .bytes = bytes};

	ok(OPS->module_load(&load, &ret->module));
	check(load.constants != 0);
	ok(OPS->function_find(ret->module, "add", false, &ret->function, &info));
	ok(OPS->global_find(ret->module, "number", false, &ret->number));
	check(cuda_kernel(ret->function)->own != NULL);
}

/* Return: what it adds up */
static uint32_t run(struct backend_stream *stream, const struct one *one, uint32_t index)
{
	const struct {
		uint64_t out;
		uint32_t index, unused;
	} arguments = {HOST_DATA, index, 0};
	struct backend_launch launch = {.function = one->function,
		.grid = {1, 1, 1},
		.block = {1, 1, 1},
		.info = &info,
		.arguments = (const uint8_t *)&arguments,
		.argument_bytes = sizeof(arguments)};
	uint32_t sum;

	ok(OPS->launch(stream, &launch));
	wait_stream(stream);
	memcpy(&sum, at(HOST_DATA), sizeof(sum));
	return sum;
}

void check_constants(void)
{
	static struct one all[MODULES];
	struct backend_stream *stream = stream_new();
	void *code;
	size_t bytes;
	uint32_t wrong = 0;

	ok(jit_compile(CU_JIT_INPUT_PTX, text, sizeof(text), 0, NULL, NULL, &code, &bytes));
	for (uint32_t i = 0; i < MODULES && !failures; i++)
		load_one(code, bytes, &all[i]);
	for (uint32_t i = 0; i < MODULES && !failures; i++)
		wrong += run(stream, &all[i], i % 4) != 77 + (i % 4 < 3 ? i % 4 + 1 : 0);
	for (uint32_t i = 0; i < MODULES && !failures; i++)
		ok(code_memory_write(all[i].number.address, &i, sizeof(i)));
	for (uint32_t i = 0; i < MODULES && !failures; i++)
		wrong += run(stream, &all[i], 1) != i + 2;
	for (uint32_t i = 0; i < MODULES && !failures; i++)
		ok(OPS->module_unload(all[i].module));
	printf("constants of %u modules: %u of %u kernels read wrong ones\n", MODULES, wrong, 2 * MODULES);
	check(!wrong);
	free(code);
	ok(OPS->stream_destroy(stream));
}
