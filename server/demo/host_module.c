// The demo's kernels for the host backend; server/demo/worker.c has them as PTX.

#include "server/backend/host/kernel.h"

struct mix_params {
	uint64_t out, in;
	uint32_t round;
	uint64_t count;
};

static void mix(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	uint32_t *out = HOST_POINTER(uint32_t, params[0]), round = HOST_VALUE(uint32_t, params[2]);
	const uint32_t *in = HOST_POINTER(uint32_t, params[1]);
	uint64_t step = (uint64_t)grid->grid.x * grid->block.x;

	HOST_FOR_THREADS(grid, thread)
	for (uint64_t i = host_global_thread(grid, block, thread); i < HOST_VALUE(uint64_t, params[3]);
		i += step) {
		uint32_t x = in[i] + round * UINT32_C(2654435761) + (uint32_t)i;

		x ^= x << 13;
		x ^= x >> 17;
		x ^= x << 5;
		out[i] = x;
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
	HOST_PARAM(struct mix_params, out),
	HOST_PARAM(struct mix_params, in),
	HOST_PARAM(struct mix_params, round),
	HOST_PARAM(struct mix_params, count),
};
static const struct host_param crash_list[] = {HOST_PARAM(struct crash_params, address)};

HOST_KERNELS(HOST_KERNEL(mix, mix_list), HOST_KERNEL(crash, crash_list));
