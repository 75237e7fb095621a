// A module for the host backend whose variables can be moved into its program's memory, and whose
// constants can have a mirror there. kernels.cu is the same for a GPU, where compilers' code always
// can be.

#include "tests/lib/host_kernels.h"

#include <string.h>

#include "tests/host/kernel.h"

static uint32_t first_tally = 1000, first_board[100] = {1, 2, 3};
static uint32_t *tally = &first_tally, (*board)[100] = &first_board;
static uint32_t settings[64] = {1, 2, 3};

static void count_up(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	uint32_t *word = HOST_POINTER(uint32_t, params[0]);

	(void)grid;
	(void)block;
	__atomic_fetch_add(word, HOST_VALUE(uint32_t, params[1]), __ATOMIC_RELAXED);
}

static void tally_up(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	(void)grid;
	(void)block;
	*tally += HOST_VALUE(uint32_t, params[0]);
	(*board)[99] = *tally;
}

static void read_tally(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	(void)grid;
	(void)block;
	*HOST_POINTER(uint32_t, params[0]) = (*board)[99] == *tally && (*board)[2] == 3 ? *tally : 0;
}

static void read_settings(const struct host_grid *grid, const struct host_block_index *block, void **params)
{
	(void)grid;
	(void)block;
	memcpy(HOST_POINTER(uint32_t, params[0]), settings, sizeof(settings));
}

static const struct host_param count_up_list[] = {
	HOST_PARAM(struct count_up_params, word), HOST_PARAM(struct count_up_params, by)};
static const struct host_param tally_up_list[] = {HOST_PARAM(struct tally_up_params, by)};
static const struct host_param read_tally_list[] = {HOST_PARAM(struct read_tally_params, out)};
static const struct host_param read_settings_list[] = {HOST_PARAM(struct read_settings_params, out)};

HOST_KERNELS(HOST_KERNEL(count_up, count_up_list), HOST_KERNEL(tally_up, tally_up_list),
	HOST_KERNEL(read_tally, read_tally_list), HOST_KERNEL(read_settings, read_settings_list));
HOST_MOVED(HOST_MOVED_ROW(tally), HOST_MOVED_ROW(board));
#ifdef MANAGED
HOST_MANAGED;
#else
HOST_CONSTANTS(HOST_GLOBAL(settings));
#endif
