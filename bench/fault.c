// Cost of a fault, or of the end of a program, for the programs that share the device: the end of
// each kernel of a survivor, and the correctness of its results.
//
//   fault survivor [--kernel-us N] [--modules N]
//   fault culprit trap | write | null | misaligned | shared | killed | none
//
// All programs start together (driver_wait_for_start). A survivor keeps four kernels on the device
// for FRMPS_BENCH_SECONDS. With --modules it first loads FRMPS_BENCH_IMAGE so many times, and runs
// FRMPS_BENCH_KERNEL of each. Every kernel checks and counts the previous kernel (tally). The last
// line has the result:
//   exact   no call failed, and every kernel ran once and in order
//   error   a call failed
//   wrong   no call failed, and some kernel was lost, cut, repeated or out of order
// with the longest times between two ends of kernels, and the number of ends in each millisecond.
//
// A culprit launches its kernel FRMPS_BENCH_DELAY seconds after the start and calls the driver
// until an error; with `killed` the culprit ends by SIGKILL with 64 kernels in flight. Times are ms
// since the start.

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/lib/driver.h"

#define DEPTH	  4u
#define GAPS	  16u /* number of longest gaps that are printed */
#define BINS_MAX  4000u
#define PATIENCE  10.0 /* seconds that a culprit waits for its error */
#define CULPRIT_S 0.5
/* Addresses without memory. The device does not fault at the first; a process with a sanitizer may
 * use the second. */
#define FAR_ADDRESS_HOST   (UINT64_C(1) << 40)
#define FAR_ADDRESS_DEVICE (UINT64_C(6) << 40)

/* A single thread each; the same names as in bench/host_kernels.c. */
static const char faults_ptx[] =
	".version 8.0\n.target sm_80\n.address_size 64\n"
	".visible .entry fault_write(.param .u64 address) {\n"
	"  .reg .u64 %address; ld.param.u64 %address, [address]; st.volatile.global.u32 [%address], 1; ret; "
	"}\n"
	".visible .entry fault_shared(.param .u64 address) {\n"
	"  .reg .u32 %at; mov.u32 %at, 0xfffff0; st.volatile.shared.u32 [%at], 1; ret; }\n"
	".visible .entry fault_trap(.param .u64 address) { trap; ret; }\n";

struct gap {
	double at_ms, ms; /* since the beginning; length */
};

struct survivor {
	uint32_t kernel_us, modules;
	CUfunction kernel;
	CUstream stream;
	CUevent events[DEPTH];
	CUdeviceptr cells;
	uint32_t launched, finished;
	uint64_t begin_ns, last_ns;
	struct gap gaps[GAPS]; /* longest first */
	uint32_t bins[BINS_MAX];
	CUresult code;	  /* the first error */
	const char *call; /* the call that returned it */
};

static bool failed(struct survivor *survivor, CUresult code, const char *call)
{
	if (code != CUDA_SUCCESS && survivor->code == CUDA_SUCCESS) {
		survivor->code = code;
		survivor->call = call;
	}
	return code != CUDA_SUCCESS;
}

static void load_more(const struct survivor *survivor, CUdeviceptr word)
{
	const char *path = getenv("FRMPS_BENCH_IMAGE"), *kernel = getenv("FRMPS_BENCH_KERNEL");
	void *arguments[] = {&word}, *image;

	if (!survivor->modules)
		return;
	if (!path || !kernel)
		driver_check(CUDA_ERROR_INVALID_VALUE, "FRMPS_BENCH_IMAGE, FRMPS_BENCH_KERNEL");
	image = driver_read_file(path);
	for (uint32_t i = 0; i < survivor->modules; i++) {
		CUmodule module;

		driver_check(cu.module_load(&module, image), "cuModuleLoadData");
		driver_check(cu.launch(driver_function(module, kernel), 1, 1, 1, 1, 1, 1, 0, survivor->stream,
				     arguments, NULL),
			"cuLaunchKernel");
	}
	free(image);
	driver_check(cu.sync(), "cuCtxSynchronize");
}

static void survivor_open(struct survivor *survivor)
{
	CUdeviceptr word;

	driver_open();
	survivor->kernel = driver_function(driver_module(), "tally");
	driver_check(cu.stream_create(&survivor->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	driver_check(cu.alloc(&survivor->cells, 4096), "cuMemAlloc");
	driver_check(cu.set32(survivor->cells, 0, 1024), "cuMemsetD32");
	driver_check(cu.alloc(&word, 4096), "cuMemAlloc");
	driver_check(cu.sync(), "cuCtxSynchronize");
	for (uint32_t i = 0; i < DEPTH; i++)
		driver_check(cu.event_create(&survivor->events[i], CU_EVENT_DISABLE_TIMING), "cuEventCreate");
	load_more(survivor, word);
}

static bool launch_one(struct survivor *survivor)
{
	uint64_t ns = survivor->kernel_us * UINT64_C(1000);
	uint32_t round = survivor->launched;
	void *arguments[] = {&survivor->cells, &ns, &round};

	if (failed(survivor,
		    cu.launch(survivor->kernel, 1, 1, 1, 1, 1, 1, 0, survivor->stream, arguments, NULL),
		    "cuLaunchKernel"))
		return false;
	survivor->launched++;
	return !failed(survivor, cu.event_record(survivor->events[round % DEPTH], survivor->stream),
		"cuEventRecord");
}

static void note_gap(struct survivor *survivor, struct gap gap)
{
	for (uint32_t i = 0; i < GAPS; i++)
		if (gap.ms > survivor->gaps[i].ms) {
			struct gap shorter = survivor->gaps[i];

			survivor->gaps[i] = gap;
			gap = shorter;
		}
}

static bool await_one(struct survivor *survivor)
{
	uint64_t now, bin;

	if (failed(survivor, cu.event_sync(survivor->events[survivor->finished % DEPTH]),
		    "cuEventSynchronize"))
		return false;
	now = now_ns();
	survivor->finished++;
	bin = now > survivor->begin_ns ? (now - survivor->begin_ns) / 1000000 : 0;
	if (bin < BINS_MAX)
		survivor->bins[bin]++;
	if (survivor->last_ns)
		note_gap(survivor,
			(struct gap){.at_ms = (double)(survivor->last_ns - survivor->begin_ns) / 1e6,
				.ms = (double)(now - survivor->last_ns) / 1e6});
	survivor->last_ns = now;
	return true;
}

static bool work_until(struct survivor *survivor, uint64_t end)
{
	while (now_ns() < end) {
		while (survivor->launched - survivor->finished < DEPTH)
			if (!launch_one(survivor))
				return false;
		if (!await_one(survivor))
			return false;
	}
	while (survivor->finished != survivor->launched)
		if (!await_one(survivor))
			return false;
	return true;
}

static const char *outcome(struct survivor *survivor)
{
	uint32_t cells[3] = {0};

	if (survivor->code ||
		failed(survivor, cu.dtoh(cells, survivor->cells, sizeof(cells)), "cuMemcpyDtoH"))
		return "error";
	return cells[0] == survivor->launched && cells[1] == survivor->launched && !cells[2] ? "exact"
											     : "wrong";
}

static void survivor_print(struct survivor *survivor, uint32_t bins)
{
	const char *ending = outcome(survivor);

	printf("{\"name\": \"survivor\", \"outcome\": \"%s\", \"code\": %d, \"call\": \"%s\", \"kernels\": "
	       "%u, "
	       "\"last_ms\": %.3f, \"gaps\": [",
		ending, (int)survivor->code, survivor->call ? survivor->call : "", survivor->finished,
		survivor->last_ns ? (double)(survivor->last_ns - survivor->begin_ns) / 1e6 : 0);
	for (uint32_t i = 0; i < GAPS && survivor->gaps[i].ms > 0; i++)
		printf("%s[%.3f, %.3f]", i ? ", " : "", survivor->gaps[i].at_ms, survivor->gaps[i].ms);
	printf("], \"ended_per_ms\": [");
	for (uint32_t i = 0; i < bins && i < BINS_MAX; i++)
		printf("%s%u", i ? "," : "", survivor->bins[i]);
	printf("]}\n");
	fflush(stdout);
}

static int run_survivor(uint32_t kernel_us, uint32_t modules)
{
	static struct survivor survivor;
	double seconds = driver_environment("FRMPS_BENCH_SECONDS", 1);

	survivor.kernel_us = kernel_us;
	survivor.modules = modules;
	survivor_open(&survivor);
	survivor.begin_ns = driver_wait_for_start();
	work_until(&survivor, survivor.begin_ns + (uint64_t)(seconds * 1e9));
	survivor_print(&survivor, (uint32_t)(seconds * 1000));
	return 0;
}

struct culprit {
	const char *fault;
	CUfunction kernel;
	CUdeviceptr memory;
	uint64_t address;
};

static void culprit_open(struct culprit *culprit)
{
	const char *fault = culprit->fault;
	bool is_host = getenv("FRMPS_BENCH_MODULE") != NULL;
	CUmodule module;

	driver_open();
	if (is_host)
		module = driver_module();
	else
		driver_check(cu.module_load(&module, faults_ptx), "cuModuleLoadData");
	driver_check(cu.alloc(&culprit->memory, 1 << 20), "cuMemAlloc");
	culprit->address = culprit->memory;
	if (strcmp(fault, "write") == 0)
		culprit->address = is_host ? FAR_ADDRESS_HOST : FAR_ADDRESS_DEVICE;
	else if (strcmp(fault, "null") == 0)
		culprit->address = 0;
	else if (strcmp(fault, "misaligned") == 0)
		culprit->address = culprit->memory + 1;
	culprit->kernel = driver_function(module, strcmp(fault, "trap") == 0	 ? "fault_trap"
						  : strcmp(fault, "shared") == 0 ? "fault_shared"
										 : "fault_write");
	driver_check(cu.sync(), "cuCtxSynchronize");
}

/* With work in flight that no call waits for. */
static void end_in_flight(uint64_t begin)
{
	CUfunction spin = driver_function(driver_module(), "spin");
	CUdeviceptr nowhere = 0;
	uint64_t ns = 5000000;
	void *arguments[] = {&nowhere, &ns};

	for (int i = 0; i < 64; i++)
		driver_check(cu.launch(spin, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL), "cuLaunchKernel");
	printf("{\"name\": \"culprit\", \"code\": 0, \"launched_ms\": %.3f, \"after_ms\": 0}\n",
		(double)(now_ns() - begin) / 1e6);
	fflush(stdout);
	raise(SIGKILL);
}

static CUresult call_until_failure(uint64_t launched)
{
	struct timespec pause = {.tv_nsec = 500000}; /* survivors need the processors as well */
	uint64_t end = launched + (uint64_t)(PATIENCE * 1e9);
	CUresult code = cu.sync();

	while (code == CUDA_SUCCESS && now_ns() < end) {
		nanosleep(&pause, NULL);
		code = cu.sync();
	}
	return code;
}

static int run_culprit(const char *fault)
{
	struct culprit culprit = {.fault = fault};
	uint64_t begin, launched;
	void *arguments[] = {&culprit.address};
	CUresult code;

	culprit_open(&culprit);
	begin = driver_wait_for_start();
	driver_sleep_until(begin + (uint64_t)(driver_environment("FRMPS_BENCH_DELAY", CULPRIT_S) * 1e9));
	if (strcmp(fault, "killed") == 0)
		end_in_flight(begin);
	launched = now_ns();
	code = cu.launch(culprit.kernel, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
	if (code == CUDA_SUCCESS)
		code = strcmp(fault, "none") == 0 ? cu.sync() : call_until_failure(launched);
	printf("{\"name\": \"culprit\", \"code\": %d, \"launched_ms\": %.3f, \"after_ms\": %.3f}\n",
		(int)code, (double)(launched - begin) / 1e6, (double)(now_ns() - launched) / 1e6);
	fflush(stdout);
	return 0;
}

static bool is_fault(const char *name)
{
	static const char *const known[] = {
		"trap", "write", "null", "misaligned", "shared", "killed", "none"};

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (strcmp(name, known[i]) == 0)
			return true;
	return false;
}

int main(int argc, char **argv)
{
	uint32_t kernel_us = 100, modules = 0;

	if (argc == 3 && strcmp(argv[1], "culprit") == 0 && is_fault(argv[2]))
		return run_culprit(argv[2]);
	for (int i = 2; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--kernel-us") == 0)
			kernel_us = (uint32_t)strtoul(argv[i + 1], NULL, 10);
		else if (strcmp(argv[i], "--modules") == 0)
			modules = (uint32_t)strtoul(argv[i + 1], NULL, 10);
		else
			argc = 0;
	}
	if (argc >= 2 && argc % 2 == 0 && strcmp(argv[1], "survivor") == 0)
		return run_survivor(kernel_us, modules);
	fprintf(stderr, "usage: fault survivor [--kernel-us N] [--modules N]\n"
			"       fault culprit trap | write | null | misaligned | shared | killed | none\n");
	return 64;
}
