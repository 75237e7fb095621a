// One of the programs of server/demo.sh: an ordinary program of the driver API that knows nothing of frmps.
// Each round it runs a kernel over a constant input, copies the result back and checks every word; with
// --fault its kernel writes to nowhere after two seconds.
//
//   worker NAME SECONDS [--fault]
//
// Prints a line twice a second, and at the end one line of fields for the table:
//   result NAME PID ROUNDS LONGEST-PAUSE-MS CHECKSUM EXPECTED ERROR

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"

#define WORDS 65536u

static const char ptx[] =
	".version 8.0\n.target sm_80\n.address_size 64\n"
	".visible .entry mix(.param .u64 out, .param .u64 in, .param .u32 round, .param .u64 count) {\n"
	"  .reg .u64 %o, %p, %at, %n, %i, %step; .reg .u32 %x, %y, %r, %a, %b, %c; .reg .pred %end;\n"
	"  ld.param.u64 %o, [out]; ld.param.u64 %p, [in]; ld.param.u32 %r, [round];\n"
	"  ld.param.u64 %n, [count];\n"
	"  mov.u32 %a, %ctaid.x; mov.u32 %b, %ntid.x; mov.u32 %c, %tid.x;\n"
	"  mad.lo.u32 %a, %a, %b, %c; cvt.u64.u32 %i, %a;\n"
	"  mov.u32 %a, %nctaid.x; mul.lo.u32 %a, %a, %b; cvt.u64.u32 %step, %a;\n"
	"  mul.lo.u32 %r, %r, 2654435761;\n"
	"next: setp.ge.u64 %end, %i, %n; @%end bra done;\n"
	"  shl.b64 %at, %i, 2; add.u64 %at, %p, %at; ld.global.u32 %x, [%at];\n"
	"  cvt.u32.u64 %y, %i; add.u32 %x, %x, %r; add.u32 %x, %x, %y;\n"
	"  shl.b32 %y, %x, 13; xor.b32 %x, %x, %y;\n"
	"  shr.u32 %y, %x, 17; xor.b32 %x, %x, %y;\n"
	"  shl.b32 %y, %x, 5; xor.b32 %x, %x, %y;\n"
	"  shl.b64 %at, %i, 2; add.u64 %at, %o, %at; st.global.u32 [%at], %x;\n"
	"  add.u64 %i, %i, %step; bra next;\n"
	"done: ret; }\n"
	".visible .entry crash(.param .u64 address) {\n"
	"  .reg .u64 %a; ld.param.u64 %a, [address]; st.global.u32 [%a], 1; ret; }\n";

static CUresult (*cu_init)(unsigned);
static CUresult (*cu_retain)(CUcontext *, CUdevice);
static CUresult (*cu_set_current)(CUcontext);
static CUresult (*cu_load)(CUmodule *, const void *);
static CUresult (*cu_function)(CUfunction *, CUmodule, const char *);
static CUresult (*cu_alloc)(CUdeviceptr *, size_t);
static CUresult (*cu_up)(CUdeviceptr, const void *, size_t);
static CUresult (*cu_down)(void *, CUdeviceptr, size_t);
static CUresult (*cu_launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
	CUstream, void **, void **);
static CUresult (*cu_synchronize)(void);
static CUresult (*cu_error_name)(CUresult, const char **);

static const struct {
	void *pointer;
	const char *name;
} calls[] = {
	{&cu_init, "cuInit"},
	{&cu_retain, "cuDevicePrimaryCtxRetain"},
	{&cu_set_current, "cuCtxSetCurrent"},
	{&cu_load, "cuModuleLoadData"},
	{&cu_function, "cuModuleGetFunction"},
	{&cu_alloc, "cuMemAlloc_v2"},
	{&cu_up, "cuMemcpyHtoD_v2"},
	{&cu_down, "cuMemcpyDtoH_v2"},
	{&cu_launch, "cuLaunchKernel"},
	{&cu_synchronize, "cuCtxSynchronize"},
	{&cu_error_name, "cuGetErrorName"},
};

static uint32_t input[WORDS], output[WORDS];

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void need(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "worker: %s: error %d\n", what, (int)result);
	exit(1);
}

static void open_driver(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	CUcontext context;

	for (size_t i = 0; library && i < sizeof(calls) / sizeof(*calls); i++)
		*(void **)calls[i].pointer = dlsym(library, calls[i].name);
	if (!library || !cu_error_name) {
		fprintf(stderr, "worker: no libcuda.so.1\n");
		exit(1);
	}
	need(cu_init(0), "cuInit");
	need(cu_retain(&context, 0), "cuDevicePrimaryCtxRetain");
	need(cu_set_current(context), "cuCtxSetCurrent");
}

/* PTX on a GPU; the host backend takes shared objects, and the script says which. */
static CUmodule load(void)
{
	const char *path = getenv("FRMPS_DEMO_MODULE");
	static char image[4 << 20];
	CUmodule module;

	if (path) {
		FILE *file = fopen(path, "rb");

		if (!file || fread(image, 1, sizeof(image), file) == 0)
			need(CUDA_ERROR_FILE_NOT_FOUND, path);
		fclose(file);
	}
	need(cu_load(&module, path ? image : ptx), "cuModuleLoadData");
	return module;
}

static uint32_t mixed(uint32_t in, uint32_t round, uint32_t position)
{
	uint32_t x = in + round * UINT32_C(2654435761) + position;

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	return x;
}

static uint64_t fold(uint64_t sum, uint32_t word)
{
	return (sum ^ word) * UINT64_C(1099511628211);
}

struct worker {
	const char *name;
	CUfunction mix, crash;
	CUdeviceptr in, out;
	uint32_t rounds;
	uint64_t checksum, expected;
	double longest; /* seconds between two finished rounds */
};

static CUresult run_round(struct worker *w)
{
	uint64_t count = WORDS;
	void *arguments[] = {&w->out, &w->in, &w->rounds, &count};
	CUresult result = cu_launch(w->mix, 64, 1, 1, 128, 1, 1, 0, NULL, arguments, NULL);

	if (result == CUDA_SUCCESS)
		result = cu_down(output, w->out, sizeof(output));
	if (result != CUDA_SUCCESS)
		return result;
	for (uint32_t i = 0; i < WORDS; i++) {
		w->checksum = fold(w->checksum, output[i]);
		w->expected = fold(w->expected, mixed(input[i], w->rounds, i));
	}
	w->rounds++;
	return CUDA_SUCCESS;
}

static CUresult write_to_nowhere(struct worker *w)
{
	uint64_t nowhere = 16;
	void *arguments[] = {&nowhere};
	CUresult result;

	printf("%-10s writes to address 0x10 now\n", w->name);
	fflush(stdout);
	result = cu_launch(w->crash, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
	return result ? result : cu_synchronize();
}

static CUresult work(struct worker *w, double seconds, bool fault)
{
	double begin = now(), last = begin, said = begin;
	CUresult result = CUDA_SUCCESS;

	while (result == CUDA_SUCCESS && now() - begin < seconds) {
		result = fault && now() - begin > 2 ? write_to_nowhere(w) : run_round(w);
		if (result == CUDA_SUCCESS && now() - last > w->longest)
			w->longest = now() - last;
		last = now();
		if (last - said < 0.5)
			continue;
		said = last;
		printf("%-10s %6u rounds, %s, longest pause %.1f ms\n", w->name, w->rounds,
			w->checksum == w->expected ? "all right" : "WRONG RESULTS", w->longest * 1000);
		fflush(stdout);
	}
	return result;
}

int main(int argc, char **argv)
{
	struct worker w = {.name = argc > 1 ? argv[1] : "worker"};
	double seconds = argc > 2 ? strtod(argv[2], NULL) : 5;
	const char *error = "none";
	CUmodule module;
	CUresult result;

	open_driver();
	module = load();
	need(cu_function(&w.mix, module, "mix"), "mix");
	need(cu_function(&w.crash, module, "crash"), "crash");
	for (uint32_t i = 0; i < WORDS; i++)
		input[i] = i * (uint32_t)getpid();
	need(cu_alloc(&w.in, sizeof(input)), "cuMemAlloc");
	need(cu_alloc(&w.out, sizeof(output)), "cuMemAlloc");
	need(cu_up(w.in, input, sizeof(input)), "cuMemcpyHtoD");
	need(run_round(&w), "first round");
	result = work(&w, seconds, argc > 3 && strcmp(argv[3], "--fault") == 0);
	if (result != CUDA_SUCCESS)
		cu_error_name(result, &error);
	printf("result %s %d %u %.1f %016llx %016llx %s\n", w.name, (int)getpid(), w.rounds, w.longest * 1000,
		(unsigned long long)w.checksum, (unsigned long long)w.expected, error);
	return 0;
}
