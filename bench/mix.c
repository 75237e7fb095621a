// A heavy program of a mix: allocates and frees memory, loads and unloads code, makes and destroys
// streams, and runs kernels of 1 ms to 5 s. FRMPS_BENCH_SEED decides the order. The program checks
// the contents of its memory, and that each kernel ran once and in order.
//
// FRMPS_BENCH_STEPS: number of steps (40); FRMPS_BENCH_IMAGE, FRMPS_BENCH_KERNEL: a module and its
// kernel. Prints {"name": "mix", "seconds": …, "kernel_seconds": …}.

#include <stdio.h>
#include <stdlib.h>

#include "bench/lib/driver.h"

#define MIB    (UINT64_C(1) << 20)
#define HELD   4u
#define CODES  3u
#define PIECES 5u /* kinds of steps */
/* The first half is for tally(), the other half for the module's kernel. */
#define CELLS_BYTES 8192u

struct held {
	CUdeviceptr at; /* 0: nothing */
	size_t bytes;
	uint32_t pattern;
};

static struct {
	uint64_t seed;
	CUfunction tally;
	CUdeviceptr cells;
	uint32_t round;
	uint64_t kernel_ns;
	void *image;
	struct held held[HELD];
	CUmodule codes[CODES];
} mix;

static uint32_t any(uint32_t below)
{
	mix.seed = mix.seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(mix.seed >> 33) % below;
}

static void wrong(const char *what)
{
	fprintf(stderr, "mix: %s\n", what);
	exit(1);
}

/* ---- memory ---- */

static void check_held(const struct held *held)
{
	size_t last = (held->bytes / 4 - 1) * 4, some = (size_t)any((uint32_t)(held->bytes / 4)) * 4;
	uint32_t words[3];

	driver_check(cu.dtoh(&words[0], held->at, 4), "cuMemcpyDtoH");
	driver_check(cu.dtoh(&words[1], held->at + some, 4), "cuMemcpyDtoH");
	driver_check(cu.dtoh(&words[2], held->at + last, 4), "cuMemcpyDtoH");
	for (int i = 0; i < 3; i++)
		if (words[i] != held->pattern)
			wrong("memory is not what was written there");
}

static void change_memory(void)
{
	struct held *held = &mix.held[any(HELD)];

	if (held->at) {
		check_held(held);
		driver_check(cu.free(held->at), "cuMemFree");
		*held = (struct held){0};
		return;
	}
	held->bytes = (16 + any(496)) * MIB;
	held->pattern = any(1u << 30);
	driver_check(cu.alloc(&held->at, held->bytes), "cuMemAlloc");
	driver_check(cu.set32(held->at, held->pattern, held->bytes / 4), "cuMemsetD32");
}

static void pin_memory(void)
{
	struct held *held = &mix.held[any(HELD)];
	size_t bytes = (4 + any(28)) * MIB;
	uint32_t *host;

	driver_check(cu.host_alloc((void **)&host, bytes, 0), "cuMemHostAlloc");
	if (held->at && held->bytes < bytes)
		bytes = held->bytes;
	if (held->at) {
		driver_check(cu.dtoh(host, held->at, bytes), "cuMemcpyDtoH");
		for (size_t i = 0; i < bytes / 4; i++)
			if (host[i] != held->pattern)
				wrong("memory is not what was written there");
	}
	driver_check(cu.host_free(host), "cuMemFreeHost");
}

/* ---- work ---- */

static uint64_t some_length_ns(void)
{
	static const uint32_t lengths_ms[] = {1, 1, 1, 1, 5, 20, 20, 200, 200, 1000, 5000};

	return UINT64_C(1000000) * lengths_ms[any(sizeof(lengths_ms) / sizeof(*lengths_ms))];
}

static void run_kernels(CUstream stream)
{
	uint64_t ns = some_length_ns();

	for (uint32_t left = ns < 50000000 ? 1 + any(20) : 1; left; left--) {
		void *arguments[] = {&mix.cells, &ns, &mix.round};

		driver_check(
			cu.launch(mix.tally, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL), "cuLaunchKernel");
		mix.round++;
		mix.kernel_ns += ns;
	}
}

/* Kernels of different streams follow each other. */
static void use_stream(void)
{
	CUstream stream;

	driver_check(cu.sync(), "cuCtxSynchronize");
	driver_check(cu.stream_create(&stream, 1), "cuStreamCreate");
	run_kernels(stream);
	driver_check(cu.stream_sync(stream), "cuStreamSynchronize");
	driver_check(cu.stream_destroy(stream), "cuStreamDestroy");
}

static void change_code(void)
{
	CUmodule *code = &mix.codes[any(CODES)];
	CUdeviceptr scratch = mix.cells + CELLS_BYTES / 2;
	void *arguments[] = {&scratch};

	if (*code) {
		driver_check(cu.module_unload(*code), "cuModuleUnload");
		*code = NULL;
		return;
	}
	driver_check(cu.module_load(code, mix.image), "cuModuleLoadData");
	driver_check(cu.launch(driver_function(*code, getenv("FRMPS_BENCH_KERNEL")), 1, 1, 1, 1, 1, 1, 0,
			     NULL, arguments, NULL),
		"cuLaunchKernel");
}

static void step(void)
{
	switch (any(PIECES)) {
	case 0:
		change_memory();
		break;
	case 1:
		pin_memory();
		break;
	case 2:
		change_code();
		break;
	case 3:
		use_stream();
		break;
	default:
		run_kernels(NULL);
	}
}

static void check_all(void)
{
	uint32_t cells[3];

	driver_check(cu.dtoh(cells, mix.cells, sizeof(cells)), "cuMemcpyDtoH");
	if (cells[0] != mix.round || cells[1] != mix.round || cells[2])
		wrong("a kernel was lost, repeated, or out of its turn");
	for (uint32_t i = 0; i < HELD; i++)
		if (mix.held[i].at)
			check_held(&mix.held[i]);
}

int main(void)
{
	uint32_t steps = (uint32_t)driver_environment("FRMPS_BENCH_STEPS", 40);
	const char *image = getenv("FRMPS_BENCH_IMAGE");
	uint64_t begin;

	if (!image || !getenv("FRMPS_BENCH_KERNEL"))
		wrong("FRMPS_BENCH_IMAGE and FRMPS_BENCH_KERNEL are not set");
	mix.seed = (uint64_t)driver_environment("FRMPS_BENCH_SEED", 1);
	mix.image = driver_read_file(image);
	begin = driver_wait_for_start();
	/* Opening the driver is a part of the program's time. */
	driver_open();
	mix.tally = driver_function(driver_module(), "tally");
	driver_check(cu.alloc(&mix.cells, CELLS_BYTES), "cuMemAlloc");
	driver_check(cu.set32(mix.cells, 0, CELLS_BYTES / 4), "cuMemsetD32");
	for (uint32_t i = 0; i < steps; i++)
		step();
	check_all();
	printf("{\"name\": \"mix\", \"seconds\": %.6f, \"kernel_seconds\": %.6f}\n",
		(double)(now_ns() - begin) / 1e9, (double)mix.kernel_ns / 1e9);
	free(mix.image);
	return 0;
}
