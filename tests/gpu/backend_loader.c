// What the service's loader takes. Constants of many modules at a time: each module reads its own,
// and a program can write to each. Kernels with more local memory than a context has at first: the
// first one makes the context get that, and later ones wait for nothing. Large modules, as NCCL's.

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/backend/cuda/code_memory.h"
#include "server/backend/cuda/jit.h"
#include "server/backend/cuda/loader.h"
#include "tests/gpu/backend_bed.h"

#define MODULES 100u

static const char constants_text[] =
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

	ok(jit_compile(
		CU_JIT_INPUT_PTX, constants_text, sizeof(constants_text), 0, NULL, NULL, &code, &bytes));
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

#define DEEP_BLOCKS  264u
#define DEEP_THREADS 128u

/* Each thread fills so many words of its own, and adds them up again. */
static const char deep_text[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .entry deep(.param .u64 out)\n"
	"{\n"
	".local .align 16 .b8 room[%u];\n"
	".reg .pred %%p; .reg .b32 %%r<7>; .reg .b64 %%d<5>;\n"
	"ld.param.u64 %%d1, [out]; mov.u32 %%r1, %%ctaid.x; mov.u32 %%r2, %%tid.x;\n"
	"mad.lo.u32 %%r1, %%r1, %u, %%r2; mov.u64 %%d2, room; mov.u32 %%r3, 0;\n"
	"fill: mul.wide.u32 %%d3, %%r3, 4; add.u64 %%d3, %%d2, %%d3; add.u32 %%r4, %%r3, %%r1;\n"
	"st.local.u32 [%%d3], %%r4; add.u32 %%r3, %%r3, 1; setp.lt.u32 %%p, %%r3, %u; @%%p bra fill;\n"
	"mov.u32 %%r3, 0; mov.u32 %%r5, 0;\n"
	"sum: mul.wide.u32 %%d3, %%r3, 4; add.u64 %%d3, %%d2, %%d3; ld.local.u32 %%r4, [%%d3];\n"
	"add.u32 %%r5, %%r5, %%r4; add.u32 %%r3, %%r3, 1; setp.lt.u32 %%p, %%r3, %u; @%%p bra sum;\n"
	"mul.wide.u32 %%d3, %%r1, 4; add.u64 %%d1, %%d1, %%d3; st.global.u32 [%%d1], %%r5; ret;\n"
	"}\n";

struct deep {
	struct backend_module *module;
	struct backend_function *function;
	uint32_t words;
};

static void load_deep(uint32_t words, struct deep *ret)
{
	char filled[2048];
	struct backend_load load = {.room = UINT64_MAX};
	void *code;

	snprintf(filled, sizeof(filled), deep_text, words * 4, DEEP_THREADS, words, words);
	ok(jit_compile(CU_JIT_INPUT_PTX, filled, strlen(filled) + 1, 0, NULL, NULL, &code, &load.bytes));
	load.image = code;
	ok(OPS->module_load(&load, &ret->module));
	check(!OPS->module_waits(ret->module));
	ret->words = words;
	free(code);
}

/* Return: threads with a wrong sum */
static uint32_t run_deep(struct backend_stream *stream, const struct deep *one)
{
	static uint32_t sums[DEEP_BLOCKS * DEEP_THREADS];
	const uint64_t out = HOST_DATA;
	struct backend_launch launch = {.function = one->function,
		.grid = {DEEP_BLOCKS, 1, 1},
		.block = {DEEP_THREADS, 1, 1},
		.info = &info,
		.arguments = (const uint8_t *)&out,
		.argument_bytes = sizeof(out)};
	uint32_t wrong = 0;

	memset(at(HOST_DATA), 0, sizeof(sums));
	ok(OPS->launch(stream, &launch));
	wait_stream(stream);
	memcpy(sums, at(HOST_DATA), sizeof(sums));
	for (uint32_t i = 0; i < DEEP_BLOCKS * DEEP_THREADS; i++)
		wrong += sums[i] != one->words * i + one->words * (one->words - 1) / 2;
	return wrong;
}

void check_local_memory(void)
{
	struct backend_stream *stream = stream_new(), *busy = stream_new();
	uint64_t before = 0, after = 0, total;
	struct deep first, second;
	uint32_t wrong;
	pthread_t thread;

	ok(OPS->memory_info(&before, &total));
	load_deep(1250, &first);
	refused(OPS->function_find(first.module, "deep", false, &first.function, &info),
		CUDA_ERROR_NOT_READY);
	ok(OPS->function_find(first.module, "deep", true, &first.function, &info));
	ok(OPS->memory_info(&after, &total));
	wrong = run_deep(stream, &first);
	close_gate(busy, 1, 1);
	pthread_create(&thread, NULL, watchdog, (void *)(uintptr_t)3000);
	load_deep(1700, &second);
	ok(OPS->function_find(second.module, "deep", false, &second.function, &info));
	wrong += run_deep(stream, &second);
	wrong += run_deep(stream, &first);
	check(!gate_is_open());
	open_gate();
	pthread_join(thread, NULL);
	wait_stream(busy);
	printf("local memory: %u threads have wrong sums, the context has %lu MiB more, free %lu MiB\n",
		wrong, (unsigned long)((before - after) >> 20), (unsigned long)(after >> 20));
	check(!wrong);
	ok(OPS->module_unload(first.module));
	ok(OPS->module_unload(second.module));
	ok(OPS->stream_destroy(busy));
	ok(OPS->stream_destroy(stream));
}

#define LARGE_WORDS (25u << 20)

/* Counts in the last word of its variable, and tells. */
static const char large_text[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
				 ".visible .global .align 4 .u32 room[%u];\n"
				 ".visible .entry count(.param .u64 out)\n"
				 "{\n"
				 ".reg .b32 %%r<3>; .reg .b64 %%d<3>;\n"
				 "ld.param.u64 %%d1, [out]; mov.u64 %%d2, room; add.u64 %%d2, %%d2, %u;\n"
				 "ld.global.u32 %%r1, [%%d2]; add.u32 %%r1, %%r1, 1;\n"
				 "st.global.u32 [%%d2], %%r1; st.global.u32 [%%d1], %%r1; ret;\n"
				 "}\n";

void check_large_module(void)
{
	struct backend_stream *stream = stream_new(), *busy = stream_new();
	struct backend_load load = {.room = UINT64_MAX};
	const uint64_t out = HOST_DATA;
	struct backend_launch launch = {.grid = {1, 1, 1},
		.block = {1, 1, 1},
		.info = &info,
		.arguments = (const uint8_t *)&out,
		.argument_bytes = sizeof(out)};
	struct backend_module *large;
	char filled[1024];
	double begin;
	uint32_t seen;
	pthread_t thread;
	void *code;

	snprintf(filled, sizeof(filled), large_text, LARGE_WORDS, 4 * (LARGE_WORDS - 1));
	ok(jit_compile(CU_JIT_INPUT_PTX, filled, strlen(filled) + 1, 0, NULL, NULL, &code, &load.bytes));
	load.image = code;
	close_gate(busy, 1, 1);
	pthread_create(&thread, NULL, watchdog, (void *)(uintptr_t)3000);
	begin = now_us();
	ok(OPS->module_load(&load, &large));
	ok(OPS->function_find(large, "count", false, &launch.function, &info));
	for (uint32_t i = 0; i < 2; i++)
		ok(OPS->launch(stream, &launch));
	wait_stream(stream);
	printf("a module of %u MiB: %.1f ms until its kernel has run beside one without end\n",
		LARGE_WORDS >> 18, (now_us() - begin) / 1e3);
	memcpy(&seen, at(HOST_DATA), sizeof(seen));
	check(seen == 2);
	check(cuda_kernel(launch.function)->own != NULL);
	check(!gate_is_open());
	open_gate();
	pthread_join(thread, NULL);
	wait_stream(busy);
	ok(OPS->module_unload(large));
	free(code);
	ok(OPS->stream_destroy(busy));
	ok(OPS->stream_destroy(stream));
}
