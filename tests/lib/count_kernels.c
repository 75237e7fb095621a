// A module for the host backend whose kernels have no state of their own: no variables, and it is
// linked without the compiler's start files, which have some. It waits as one that a driver loads.
// count_kernels.cu is the same for a GPU, where count_up_deep needs more than the service's loader
// gives.

#include "tests/lib/host_kernels.h"

#include "tests/host/kernel.h"

static void count_up(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	uint32_t *word = HOST_POINTER(uint32_t, params[0]);

	(void)grid;
	(void)block;
	__atomic_fetch_add(word, HOST_VALUE(uint32_t, params[1]), __ATOMIC_RELAXED);
}

static const struct host_param count_up_list[] = {
	HOST_PARAM(struct count_up_params, word), HOST_PARAM(struct count_up_params, by)};

static void count_up_deep(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	count_up(grid, block, params);
}

HOST_WAITS;
HOST_KERNELS(HOST_KERNEL(count_up, count_up_list), HOST_KERNEL(count_up_deep, count_up_list));
