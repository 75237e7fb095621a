// One of the programs of server/demo.sh: an ordinary program of the driver API that knows nothing
// of frmps. The program runs one kernel after the other. Each changes all cells in place, so that a
// kernel that was lost, cut or run twice shows at the end. Single thread.
//
//   worker
//
// Orders come on standard input: a line "fault" lets the next kernel write to nowhere; the end of
// input ends the work. board.h describes the output. Exit status: 0 if no call failed and every
// cell is exact.

#include <dlfcn.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"

#define CELLS	4096u
#define THREADS 128u
#define NOWHERE 16u /* an address that no program has */
/* Shorter gaps are not reported, and a line without a gap follows now and then. */
#define GAP_NS	 UINT64_C(1000000)
#define QUIET_NS UINT64_C(50000000)

static const char ptx[] =
	".version 8.0\n.target sm_80\n.address_size 64\n"
	".visible .entry mix(.param .u64 cells, .param .u32 round, .param .u32 count) {\n"
	"  .reg .u64 %at; .reg .u32 %i, %n, %x, %y, %r, %b; .reg .pred %end;\n"
	"  mov.u32 %i, %ctaid.x; mov.u32 %b, %ntid.x; mov.u32 %x, %tid.x; mad.lo.u32 %i, %i, %b, %x;\n"
	"  ld.param.u32 %n, [count]; setp.ge.u32 %end, %i, %n; @%end bra done;\n"
	"  ld.param.u64 %at, [cells]; mad.wide.u32 %at, %i, 4, %at; ld.global.u32 %x, [%at];\n"
	"  ld.param.u32 %r, [round]; mul.lo.u32 %r, %r, 2654435761;\n"
	"  add.u32 %x, %x, %r; add.u32 %x, %x, %i;\n"
	"  shl.b32 %y, %x, 13; xor.b32 %x, %x, %y;\n"
	"  shr.u32 %y, %x, 17; xor.b32 %x, %x, %y;\n"
	"  shl.b32 %y, %x, 5; xor.b32 %x, %x, %y;\n"
	"  st.global.u32 [%at], %x;\n"
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

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
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

/* PTX on a GPU; a shared object, which the script names, on the host backend. */
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

struct worker {
	CUfunction mix, crash;
	CUdeviceptr cells;
	uint32_t expected[CELLS]; /* cells after all kernels so far */
	uint32_t kernels;
	uint64_t last_ns, said_ns; /* end of the last kernel; last line about a kernel */
};

static void report(struct worker *w, uint64_t now)
{
	if (now - w->last_ns < GAP_NS && now - w->said_ns < QUIET_NS)
		return;
	printf("did %u %llu %llu\n", w->kernels, (unsigned long long)w->last_ns, (unsigned long long)now);
	fflush(stdout);
	w->said_ns = now;
}

static CUresult run_kernel(struct worker *w)
{
	uint32_t count = CELLS;
	void *arguments[] = {&w->cells, &w->kernels, &count};
	CUresult result = cu_launch(w->mix, CELLS / THREADS, 1, 1, THREADS, 1, 1, 0, NULL, arguments, NULL);
	uint64_t now;

	if (result == CUDA_SUCCESS)
		result = cu_synchronize();
	if (result != CUDA_SUCCESS)
		return result;
	now = now_ns();
	for (uint32_t i = 0; i < CELLS; i++) {
		uint32_t x = w->expected[i] + w->kernels * UINT32_C(2654435761) + i;

		x ^= x << 13;
		x ^= x >> 17;
		x ^= x << 5;
		w->expected[i] = x;
	}
	w->kernels++;
	report(w, now);
	w->last_ns = now;
	return CUDA_SUCCESS;
}

static CUresult write_to_nowhere(struct worker *w)
{
	uint64_t nowhere = NOWHERE;
	void *arguments[] = {&nowhere};
	CUresult result;

	printf("fault %llu\n", (unsigned long long)now_ns());
	fflush(stdout);
	result = cu_launch(w->crash, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
	return result ? result : cu_synchronize();
}

enum order { GO_ON, FAULT, END };

static enum order order(void)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
	char line[16];

	if (poll(&input, 1, 0) <= 0)
		return GO_ON;
	return read(STDIN_FILENO, line, sizeof(line)) > 0 ? FAULT : END;
}

static CUresult work(struct worker *w)
{
	CUresult result = run_kernel(w);

	while (result == CUDA_SUCCESS)
		switch (order()) {
		case GO_ON:
			result = run_kernel(w);
			break;
		case FAULT:
			result = write_to_nowhere(w);
			break;
		case END:
			return result;
		}
	return result;
}

/* Return: CUDA_SUCCESS if the cells could be read; then *ret_exact is true if all are correct. */
static CUresult compare(const struct worker *w, bool *ret_exact)
{
	static uint32_t cells[CELLS];
	CUresult result = cu_down(cells, w->cells, sizeof(cells));

	*ret_exact = result == CUDA_SUCCESS;
	for (uint32_t i = 0; i < CELLS && *ret_exact; i++)
		*ret_exact = cells[i] == w->expected[i];
	return result;
}

static int end(const struct worker *w, CUresult result)
{
	const char *name = "(unknown)";
	bool exact = false;

	if (result == CUDA_SUCCESS)
		result = compare(w, &exact);
	if (result != CUDA_SUCCESS) {
		cu_error_name(result, &name);
		printf("error %llu %d %s\n", (unsigned long long)now_ns(), (int)result, name);
		return 1;
	}
	puts(exact ? "end exact" : "end wrong");
	return exact ? 0 : 1;
}

int main(void)
{
	static struct worker w;
	CUmodule module;

	open_driver();
	module = load();
	need(cu_function(&w.mix, module, "mix"), "mix");
	need(cu_function(&w.crash, module, "crash"), "crash");
	for (uint32_t i = 0; i < CELLS; i++)
		w.expected[i] = i * (uint32_t)getpid();
	need(cu_alloc(&w.cells, sizeof(w.expected)), "cuMemAlloc");
	need(cu_up(w.cells, w.expected, sizeof(w.expected)), "cuMemcpyHtoD");
	w.last_ns = now_ns();
	return end(&w, work(&w));
}
