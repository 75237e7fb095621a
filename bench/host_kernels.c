// The benchmarks' kernels for the host backend; bench/lib/driver.c has them as PTX.

#include <time.h>

#include "server/backend/host/kernel.h"

static uint64_t nanoseconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void empty(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	(void)grid;
	(void)block;
	(void)params;
}

struct spin_params {
	uint64_t out, ns;
};

static void spin(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	uint64_t begin = nanoseconds(), *out = HOST_POINTER(uint64_t, params[0]);

	(void)grid;
	(void)block;
	while (nanoseconds() - begin < HOST_VALUE(uint64_t, params[1]))
		;
	if (out)
		*out = nanoseconds();
}

static const struct host_param spin_list[] = {
	HOST_PARAM(struct spin_params, out), HOST_PARAM(struct spin_params, ns)};

HOST_KERNELS(HOST_KERNEL_PLAIN(empty), HOST_KERNEL(spin, spin_list));
