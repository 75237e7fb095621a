// Costs of a program's way to the device: issuing a launch, many launches, launch and wait, copies,
// and the time from process start to the first finished kernel. The same binary measures whatever
// libcuda.so.1 the loader finds.
//
//   driver_path issue | wait | urgent | elapsed | rate | rate-for | allocate | copies |
//               first | gap | flood | loads
//
// Modes that run beside other programs (urgent, rate-for, gap, flood, loads) start with
// driver_wait_for_start().
//
// Environment: FRMPS_BENCH_SECONDS is the duration of rate-for, gap and flood, and the limit of
// wait and urgent; FRMPS_BENCH_WAITS is the number of waits of these two; FRMPS_BENCH_IMAGE is the
// image that the mode "loads" loads, FRMPS_BENCH_KERNEL its kernel; FRMPS_BENCH_START_NS (monotonic
// clock) is the start of the process, for "first"; FRMPS_BENCH_MIB and FRMPS_BENCH_HOST_MIB are
// device memory and memory of the process that the mode gap has besides, 0.

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "bench/lib/driver.h"
#include "bench/lib/stats.h"

static CUmodule module;
static CUfunction empty, spin;
static CUstream stream;

static void launch_empty(void)
{
	driver_check(cu.launch(empty, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), "cuLaunchKernel");
}

static void synchronize(void)
{
	driver_check(cu.stream_sync(stream), "cuStreamSynchronize");
}

static void launch_spin(CUdeviceptr out, uint64_t ns)
{
	void *arguments[] = {&out, &ns};

	driver_check(cu.launch(spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL), "cuLaunchKernel");
}

/* Bursts are short enough that no queue is ever full: this times the call, not the device. Calls
 * are timed in groups, since reading the clock costs as much as the fastest call. */
static void issue(void)
{
	enum { BURSTS = 200, GROUPS = 25, GROUP = 16 };
	struct samples samples;

	samples_init(&samples, BURSTS * GROUPS);
	for (int burst = 0; burst < BURSTS; burst++) {
		for (int group = 0; group < GROUPS; group++) {
			uint64_t begin = now_ns();

			for (int i = 0; i < GROUP; i++)
				launch_empty();
			samples_add(&samples, (double)(now_ns() - begin) / 1000 / GROUP);
		}
		synchronize();
	}
	samples_print(&samples, "issue", "us");
	samples_deinit(&samples);
}

static void wait_each(void)
{
	int waits = (int)driver_environment("FRMPS_BENCH_WAITS", 20000);
	uint64_t end = now_ns() + (uint64_t)(driver_environment("FRMPS_BENCH_SECONDS", 60) * 1e9);
	struct samples samples;

	samples_init(&samples, (size_t)waits);
	for (int i = 0; i < waits && now_ns() < end; i++) {
		uint64_t begin = now_ns();

		launch_empty();
		synchronize();
		samples_add(&samples, (double)(now_ns() - begin) / 1000);
	}
	samples_print(&samples, "launch_and_wait", "us");
	samples_deinit(&samples);
}

/* As wait_each(), in a stream of the highest priority, beside other programs. */
static void urgent(void)
{
	int least, greatest;

	driver_check(cu.stream_priorities(&least, &greatest), "cuCtxGetStreamPriorityRange");
	driver_check(cu.stream_create_priority(&stream, 1, greatest), "cuStreamCreateWithPriority");
	driver_wait_for_start();
	wait_each();
}

/* Queries of the time between two events: the first query after a wait, and later ones, in groups.
 * Also the whole sequence of a program that times a launch, since either the wait or the query has
 * to wait for the time. */
static void elapsed(void)
{
	enum { ROUNDS = 5000, GROUP = 16 };
	struct samples first, again, whole;
	CUevent begin, end;
	float ms;

	driver_check(cu.event_create(&begin, CU_EVENT_DEFAULT), "cuEventCreate");
	driver_check(cu.event_create(&end, CU_EVENT_DEFAULT), "cuEventCreate");
	samples_init(&first, ROUNDS);
	samples_init(&again, ROUNDS);
	samples_init(&whole, ROUNDS);
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t round = now_ns(), start;

		driver_check(cu.event_record(begin, stream), "cuEventRecord");
		launch_empty();
		driver_check(cu.event_record(end, stream), "cuEventRecord");
		driver_check(cu.event_sync(end), "cuEventSynchronize");
		start = now_ns();
		driver_check(cu.event_elapsed(&ms, begin, end), "cuEventElapsedTime");
		samples_add(&first, (double)(now_ns() - start) / 1000);
		samples_add(&whole, (double)(now_ns() - round) / 1000);
		start = now_ns();
		for (int j = 0; j < GROUP; j++)
			driver_check(cu.event_elapsed(&ms, begin, end), "cuEventElapsedTime");
		samples_add(&again, (double)(now_ns() - start) / 1000 / GROUP);
	}
	samples_print(&first, "elapsed_first", "us");
	samples_print(&again, "elapsed", "us");
	samples_print(&whole, "timed_launch", "us");
	samples_deinit(&first);
	samples_deinit(&again);
	samples_deinit(&whole);
}

static void rate(void)
{
	struct samples samples;

	samples_init(&samples, 7);
	for (int round = 0; round < 7; round++) {
		uint64_t begin = now_ns();

		for (int i = 0; i < 100000; i++)
			launch_empty();
		synchronize();
		samples_add(&samples, 100000 / ((double)(now_ns() - begin) / 1e9) / 1000);
	}
	samples_print(&samples, "launch_rate", "k/s");
	samples_deinit(&samples);
}

static double cpu_seconds(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* For a fixed time, so that processes that started together also end together. */
static void rate_for(void)
{
	double seconds = driver_environment("FRMPS_BENCH_SECONDS", 2), cpu;
	uint64_t begin, end, launches = 0, start = driver_wait_for_start();

	cpu = cpu_seconds();
	begin = now_ns();
	end = begin + (uint64_t)(seconds * 1e9);
	while (now_ns() < end) {
		for (int i = 0; i < 200; i++)
			launch_empty();
		launches += 200;
	}
	synchronize();
	printf("{\"name\": \"rate_for\", \"launches\": %llu, \"seconds\": %.6f, \"cpu_seconds\": %.6f, "
	       "\"late_seconds\": %.6f}\n",
		(unsigned long long)launches, (double)(now_ns() - begin) / 1e9, cpu_seconds() - cpu,
		(double)(begin - start) / 1e9);
}

/* A program that fills the device: four kernels in flight, each of more blocks than a device holds,
 * a block of 1 ms. */
static void flood(void)
{
	enum { AHEAD = 4, BLOCKS = 8192 };
	double seconds = driver_environment("FRMPS_BENCH_SECONDS", 3);
	uint64_t end, count = 0, ns = 1000000, begin = driver_wait_for_start();
	CUdeviceptr nowhere = 0;
	void *arguments[] = {&nowhere, &ns};
	CUevent event[AHEAD];

	for (int i = 0; i < AHEAD; i++)
		driver_check(cu.event_create(&event[i], 2), "cuEventCreate");
	end = begin + (uint64_t)(seconds * 1e9);
	for (; now_ns() < end; count++) {
		if (count >= AHEAD)
			driver_check(cu.event_sync(event[count % AHEAD]), "cuEventSynchronize");
		driver_check(cu.launch(spin, BLOCKS, 1, 1, 128, 1, 1, 0, stream, arguments, NULL),
			"cuLaunchKernel");
		driver_check(cu.event_record(event[count % AHEAD], stream), "cuEventRecord");
	}
	synchronize();
	printf("{\"name\": \"flood\", \"kernels\": %llu, \"seconds\": %.6f}\n", (unsigned long long)count,
		(double)(now_ns() - begin) / 1e9);
}

/* A pair of allocation and release, µs. */
static void allocate_device(const char *name, size_t bytes)
{
	enum { PAIRS = 300 };
	struct samples samples;

	samples_init(&samples, PAIRS);
	for (int i = -3; i < PAIRS; i++) {
		uint64_t begin = now_ns();
		CUdeviceptr at;

		driver_check(cu.alloc(&at, bytes), "cuMemAlloc");
		driver_check(cu.free(at), "cuMemFree");
		if (i >= 0)
			samples_add(&samples, (double)(now_ns() - begin) / 1000);
	}
	samples_print(&samples, name, "us");
	samples_deinit(&samples);
}

static void allocate_pinned(void)
{
	enum { PAIRS = 100 };
	struct samples samples;

	samples_init(&samples, PAIRS);
	for (int i = -3; i < PAIRS; i++) {
		uint64_t begin = now_ns();
		void *at;

		driver_check(cu.host_alloc(&at, 1 << 20, 0), "cuMemHostAlloc");
		driver_check(cu.host_free(at), "cuMemFreeHost");
		if (i >= 0)
			samples_add(&samples, (double)(now_ns() - begin) / 1000);
	}
	samples_print(&samples, "allocate_pinned", "us");
	samples_deinit(&samples);
}

/* In stream order, with a kernel in between. Only the two calls are timed. */
static void allocate_ordered(void)
{
	enum { PAIRS = 1000 };
	struct samples samples;

	samples_init(&samples, PAIRS);
	for (int i = -3; i < PAIRS; i++) {
		uint64_t begin = now_ns(), between;
		CUdeviceptr at;

		driver_check(cu.alloc_async(&at, 1 << 20, stream), "cuMemAllocAsync");
		between = now_ns() - begin;
		launch_empty();
		begin = now_ns();
		driver_check(cu.free_async(at, stream), "cuMemFreeAsync");
		if (i >= 0)
			samples_add(&samples, (double)(now_ns() - begin + between) / 1000);
		synchronize();
	}
	samples_print(&samples, "allocate_ordered", "us");
	samples_deinit(&samples);
}

static void allocate(void)
{
	allocate_device("allocate_4k", 4 << 10);
	allocate_device("allocate_1m", 1 << 20);
	allocate_device("allocate_64m", 64 << 20);
	allocate_pinned();
	allocate_ordered();
}

/* Cost of a copy to its caller on an idle device: a call may return before the end of the copy, and
 * the rest must not count for the next copy. */
static void copy_one_way(bool to_device, CUdeviceptr device, void *host, size_t bytes, const char *kind)
{
	int rounds = bytes >= 16u << 20 ? 10 : 200;
	struct samples samples;
	char name[64];

	samples_init(&samples, (size_t)rounds);
	for (int i = -2; i < rounds; i++) {
		uint64_t begin = now_ns();

		if (to_device)
			driver_check(cu.htod(device, host, bytes), "cuMemcpyHtoD");
		else
			driver_check(cu.dtoh(host, device, bytes), "cuMemcpyDtoH");
		if (i >= 0)
			samples_add(&samples, (double)bytes / (double)(now_ns() - begin));
		driver_check(cu.stream_sync(NULL), "cuStreamSynchronize");
	}
	snprintf(name, sizeof(name), "copy_%s_%s_%zu", kind, to_device ? "htod" : "dtoh", bytes);
	samples_print(&samples, name, "GB/s");
	samples_deinit(&samples);
}

static void copy_size(size_t bytes, void *host, const char *kind)
{
	CUdeviceptr device;

	driver_check(cu.alloc(&device, bytes), "cuMemAlloc");
	copy_one_way(true, device, host, bytes, kind);
	copy_one_way(false, device, host, bytes, kind);
	driver_check(cu.free(device), "cuMemFree");
}

static void copies(void)
{
	static const size_t sizes[] = {4096, 65536, 1 << 20, 16 << 20, 256 << 20};
	size_t largest = sizes[4];
	void *pinned, *pageable = malloc(largest);

	driver_check(cu.host_alloc(&pinned, largest, 0), "cuMemHostAlloc");
	memset(pinned, 1, largest);
	memset(pageable, 2, largest);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		copy_size(sizes[i], pinned, "pinned");
		copy_size(sizes[i], pageable, "pageable");
	}
	free(pageable);
}

static void first(uint64_t opened)
{
	uint64_t start = (uint64_t)driver_environment("FRMPS_BENCH_START_NS", 0);

	launch_empty();
	synchronize();
	printf("{\"name\": \"first_kernel\", \"ms\": %.3f, \"open_ms\": %.3f}\n",
		(double)(now_ns() - start) / 1e6, (double)(opened - start) / 1e6);
}

/* The program has it and does not use it. No page is like another: nobody saves all as one. */
static void hold_memory(void)
{
	const size_t piece = UINT64_C(1) << 30, mib = UINT64_C(1) << 20;
	size_t device = (size_t)driver_environment("FRMPS_BENCH_MIB", 0) * mib;
	size_t host = (size_t)driver_environment("FRMPS_BENCH_HOST_MIB", 0) * mib;
	CUdeviceptr at;
	size_t *words = malloc(host + 1);

	for (size_t bytes; device; device -= bytes) {
		bytes = device < piece ? device : piece;
		driver_check(cu.alloc(&at, bytes), "cuMemAlloc");
		driver_check(cu.set32(at, (unsigned)(device / mib), bytes / 4), "cuMemsetD32");
	}
	driver_check(words ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY, "malloc");
	for (size_t i = 0; i < host / sizeof(*words); i++)
		words[i] = i;
	driver_check(cu.sync(), "cuCtxSynchronize");
}

/* Keeps four kernels of 1 ms queued; each stores the time of its end. The gap is the longest
 * distance between two ends. */
static void gap(void)
{
	double seconds = driver_environment("FRMPS_BENCH_SECONDS", 3);
	uint64_t kernel_ns = (uint64_t)driver_environment("FRMPS_BENCH_KERNEL_NS", 1e6);
	size_t most = (size_t)(seconds * 1e9 / (double)kernel_ns) + 64, count = 0;
	uint64_t *ended, end;
	CUevent event[4];
	struct samples samples;

	driver_check(cu.host_alloc((void **)&ended, most * sizeof(*ended), 0), "cuMemHostAlloc");
	memset(ended, 0, most * sizeof(*ended));
	for (int i = 0; i < 4; i++)
		driver_check(cu.event_create(&event[i], 2), "cuEventCreate");
	hold_memory();
	end = driver_wait_for_start() + (uint64_t)(seconds * 1e9);
	while (now_ns() < end && count < most) {
		if (count >= 4)
			driver_check(cu.event_sync(event[count % 4]), "cuEventSynchronize");
		launch_spin((CUdeviceptr)(uintptr_t)&ended[count], kernel_ns);
		driver_check(cu.event_record(event[count++ % 4], stream), "cuEventRecord");
	}
	synchronize();
	samples_init(&samples, most);
	for (size_t i = 1; i < count; i++)
		samples_add(&samples, (double)(ended[i] - ended[i - 1]) / 1e6);
	samples_print(&samples, "gap", "ms");
	samples_deinit(&samples);
}

/* The driver and the service put code on the device at its first lookup or launch: that is part of
 * a load. */
static void loads(void)
{
	const char *path = getenv("FRMPS_BENCH_IMAGE"), *kernel = getenv("FRMPS_BENCH_KERNEL");
	int rounds = (int)driver_environment("FRMPS_BENCH_LOADS", 10);
	struct samples loads, uses, releases;
	CUdeviceptr word;
	void *image, *arguments[] = {&word};

	if (!path || !kernel)
		driver_check(CUDA_ERROR_INVALID_VALUE, "FRMPS_BENCH_IMAGE, FRMPS_BENCH_KERNEL");
	image = driver_read_file(path);
	driver_check(cu.alloc(&word, 4096), "cuMemAlloc");
	samples_init(&loads, (size_t)rounds);
	samples_init(&uses, (size_t)rounds);
	samples_init(&releases, (size_t)rounds);
	driver_wait_for_start();
	for (int i = 0; i < rounds; i++) {
		uint64_t begin = now_ns(), loaded_at, used_at;
		CUfunction function;
		CUmodule loaded;

		driver_check(cu.module_load(&loaded, image), "cuModuleLoadData");
		loaded_at = now_ns();
		function = driver_function(loaded, kernel);
		driver_check(
			cu.launch(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL), "cuLaunchKernel");
		synchronize();
		used_at = now_ns();
		driver_check(cu.module_unload(loaded), "cuModuleUnload");
		samples_add(&loads, (double)(loaded_at - begin) / 1e6);
		samples_add(&uses, (double)(used_at - loaded_at) / 1e6);
		samples_add(&releases, (double)(now_ns() - used_at) / 1e6);
	}
	samples_print(&loads, "load", "ms");
	samples_print(&uses, "use", "ms");
	samples_print(&releases, "release", "ms");
	samples_deinit(&loads);
	samples_deinit(&uses);
	samples_deinit(&releases);
	free(image);
}

static const struct {
	const char *name;
	void (*measure)(void);
} questions[] = {
	{"issue", issue},
	{"wait", wait_each},
	{"urgent", urgent},
	{"elapsed", elapsed},
	{"rate", rate},
	{"rate-for", rate_for},
	{"allocate", allocate},
	{"copies", copies},
	{"gap", gap},
	{"flood", flood},
	{"loads", loads},
};

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	void (*measure)(void) = NULL;
	uint64_t opened;

	for (size_t i = 0; i < sizeof(questions) / sizeof(*questions); i++)
		if (strcmp(what, questions[i].name) == 0)
			measure = questions[i].measure;
	if (!measure && strcmp(what, "first") != 0) {
		fprintf(stderr,
			"usage: driver_path issue | wait | urgent | elapsed | rate | rate-for | allocate | "
			"copies | first | gap | flood | loads\n");
		return 64;
	}
	driver_open();
	opened = now_ns();
	module = driver_module();
	empty = driver_function(module, "empty");
	spin = driver_function(module, "spin");
	driver_check(cu.stream_create(&stream, 1), "cuStreamCreate");
	if (!measure) {
		first(opened);
		return 0;
	}
	launch_empty();
	synchronize();
	measure();
	return 0;
}
