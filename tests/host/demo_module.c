// The demo's kernels for the host backend; server/demo/worker.c has the same as PTX.

#include "tests/host/kernel.h"

struct mix_params {
	uint64_t cells;
	uint32_t round, count;
};

static void mix(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	uint32_t *cells = HOST_POINTER(uint32_t, params[0]);
	uint32_t round = HOST_VALUE(uint32_t, params[1]), count = HOST_VALUE(uint32_t, params[2]);

	HOST_FOR_THREADS(grid, thread)
	{
		uint32_t i = (uint32_t)host_global_thread(grid, block, thread), x;

		if (i >= count)
			continue;
		x = cells[i] + round * UINT32_C(2654435761) + i;
		x ^= x << 13;
		x ^= x >> 17;
		x ^= x << 5;
		cells[i] = x;
	}
}

struct crash_params {
	uint64_t address;
};

static void crash(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	(void)grid;
	(void)block;
	*HOST_POINTER(volatile uint32_t, params[0]) = 1;
}

static const struct host_param mix_list[] = {
	HOST_PARAM(struct mix_params, cells),
	HOST_PARAM(struct mix_params, round),
	HOST_PARAM(struct mix_params, count),
};
static const struct host_param crash_list[] = {HOST_PARAM(struct crash_params, address)};

HOST_KERNELS(HOST_KERNEL(mix, mix_list), HOST_KERNEL(crash, crash_list));
