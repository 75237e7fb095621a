// Kernels that print, for the host backend. print.cu has the same for a GPU.

#include "tests/host/print.h"

struct say_params {
	uint32_t program, first, lines;
};
struct insist_params {
	uint32_t value, most;
};

static void say(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	uint32_t program = HOST_VALUE(uint32_t, params[0]), first = HOST_VALUE(uint32_t, params[1]);

	(void)grid;
	(void)block;
	for (uint32_t i = 0; i < HOST_VALUE(uint32_t, params[2]); i++)
		host_printf("program %u says %u\n", program, first + i);
}

static void insist(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	uint32_t value = HOST_VALUE(uint32_t, params[0]), most = HOST_VALUE(uint32_t, params[1]);

	(void)grid;
	HOST_ASSERT(block, 0, value <= most);
}

static const struct host_param say_list[] = {HOST_PARAM(struct say_params, program),
	HOST_PARAM(struct say_params, first), HOST_PARAM(struct say_params, lines)};
static const struct host_param insist_list[] = {
	HOST_PARAM(struct insist_params, value), HOST_PARAM(struct insist_params, most)};

HOST_KERNELS(HOST_KERNEL(say, say_list), HOST_KERNEL(insist, insist_list));
