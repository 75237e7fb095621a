// Cost of a launch for a program with many streams, modules or allocations, and cost of another
// such object.
//
//   scale streams | modules | allocations NUMBER
//
// The program makes NUMBER objects, launches in a stream while these exist, and releases them. Each
// stream and module is used once, because drivers may put objects on the device at their first use.
// If an object cannot be made, the program prints {"name": "limit", "made": …, "code": …} and exits
// with 3.

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/lib/driver.h"
#include "bench/lib/stats.h"

#define ALLOCATION_BYTES ((size_t)64 << 10)

static CUstream stream;
static CUfunction empty;

union item {
	CUstream stream;
	CUmodule module;
	CUdeviceptr address;
};

struct kind {
	const char *name;
	CUresult (*make)(union item *);
	CUresult (*use)(union item *); /* NULL: without a use */
	CUresult (*release)(union item *);
};

static CUresult launch_in(CUstream in, CUfunction kernel)
{
	return cu.launch(kernel, 1, 1, 1, 1, 1, 1, 0, in, NULL, NULL);
}

static CUresult make_stream(union item *item)
{
	return cu.stream_create(&item->stream, CU_STREAM_NON_BLOCKING);
}

static CUresult use_stream(union item *item)
{
	return launch_in(item->stream, empty);
}

static CUresult release_stream(union item *item)
{
	return cu.stream_destroy(item->stream);
}

static CUresult make_module(union item *item)
{
	item->module = driver_module();
	return CUDA_SUCCESS;
}

static CUresult use_module(union item *item)
{
	return launch_in(stream, driver_function(item->module, "empty"));
}

static CUresult release_module(union item *item)
{
	return cu.module_unload(item->module);
}

static CUresult make_allocation(union item *item)
{
	return cu.alloc(&item->address, ALLOCATION_BYTES);
}

static CUresult release_allocation(union item *item)
{
	return cu.free(item->address);
}

static const struct kind kinds[] = {
	{"streams", make_stream, use_stream, release_stream},
	{"modules", make_module, use_module, release_module},
	{"allocations", make_allocation, NULL, release_allocation},
};

/* Small numbers are made and released repeatedly, for a measurable time. */
#define LEAST 64u

struct times {
	uint64_t make_ns, first_use_ns, use_ns, release_ns;
	size_t made, used;
};

static void print_each(const char *name, uint64_t ns, size_t count)
{
	printf("{\"name\": \"%s\", \"us\": %.6g}\n", name, (double)ns / 1000 / (double)count);
}

static void check_each(CUresult code, size_t made, const char *kind)
{
	if (code == CUDA_SUCCESS)
		return;
	printf("{\"name\": \"limit\", \"made\": %zu, \"code\": %d}\n", made, (int)code);
	fprintf(stderr, "scale: error %d behind %zu %s\n", (int)code, made, kind);
	exit(3);
}

static void measure_waits(void)
{
	enum { WAITS = 3000 };
	struct samples samples;

	samples_init(&samples, WAITS);
	for (int i = 0; i < WAITS; i++) {
		uint64_t begin = now_ns();

		driver_check(launch_in(stream, empty), "cuLaunchKernel");
		driver_check(cu.stream_sync(stream), "cuStreamSynchronize");
		samples_add(&samples, (double)(now_ns() - begin) / 1000);
	}
	samples_print(&samples, "launch_and_wait", "us");
	samples_deinit(&samples);
}

static uint64_t use_all(const struct kind *kind, union item *items, size_t count)
{
	uint64_t begin = now_ns();

	for (size_t i = 0; i < count; i++)
		check_each(kind->use(&items[i]), i, kind->name);
	driver_check(cu.sync(), "cuCtxSynchronize");
	return now_ns() - begin;
}

/* Makes all objects, uses them, and releases them. @last: measure the launches, too */
static void cycle(const struct kind *kind, union item *items, size_t count, bool last, struct times *times)
{
	uint64_t begin = now_ns();

	for (size_t i = 0; i < count; i++)
		check_each(kind->make(&items[i]), i, kind->name);
	times->make_ns += now_ns() - begin;
	times->made += count;
	if (kind->use)
		times->first_use_ns += use_all(kind, items, count);
	if (kind->use && last)
		for (size_t used = 0; used < LEAST; used += count) {
			times->use_ns += use_all(kind, items, count);
			times->used += count;
		}
	if (last)
		measure_waits();
	begin = now_ns();
	for (size_t i = 0; i < count; i++)
		driver_check(kind->release(&items[i]), "release");
	times->release_ns += now_ns() - begin;
}

static void measure(const struct kind *kind, size_t count)
{
	union item *items = calloc(count, sizeof(*items));
	size_t cycles = count < LEAST ? LEAST / count : 1;
	struct times times = {0};

	if (!items)
		abort();
	for (size_t i = 0; i < cycles; i++)
		cycle(kind, items, count, i == cycles - 1, &times);
	print_each("make", times.make_ns, times.made);
	if (kind->use) {
		print_each("first_use", times.first_use_ns, times.made);
		print_each("use", times.use_ns, times.used);
	}
	print_each("release", times.release_ns, times.made);
	free(items);
}

int main(int argc, char **argv)
{
	const struct kind *kind = NULL;
	size_t count = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;

	for (size_t i = 0; argc == 3 && i < sizeof(kinds) / sizeof(*kinds); i++)
		if (strcmp(argv[1], kinds[i].name) == 0)
			kind = &kinds[i];
	if (!kind || !count) {
		fprintf(stderr, "usage: scale streams | modules | allocations NUMBER\n");
		return 64;
	}
	driver_open();
	empty = driver_function(driver_module(), "empty");
	driver_check(cu.stream_create(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	driver_check(launch_in(stream, empty), "cuLaunchKernel");
	driver_check(cu.stream_sync(stream), "cuStreamSynchronize");
	measure(kind, count);
	return 0;
}
