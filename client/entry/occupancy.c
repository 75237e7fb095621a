// Entry points of occupancy. The service answers each single question once; the search for a block
// size, with the program's own function for dynamic shared memory, runs here.

#include "client/state/occupancy.h"
#include "client/state/session.h"

#include <string.h>

#include "client/entry/entry.h"
#include "client/state/device.h"
#include "client/state/function.h"
#include "client/state/instance.h"
#include "client/submit/encode.h"

static CUresult enter(CUfunction handle, struct client_function **ret_function)
{
	CUresult result = process_enter_context();

	if (result != CUDA_SUCCESS)
		return result;
	return function_enter(handle, ret_function);
}

CUDA_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
	int *ret_blocks, CUfunction handle, int block_size, size_t shared_bytes, unsigned int flags)
{
	struct client_function *function;
	CUresult result = enter(handle, &function);

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_blocks || block_size <= 0 || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
		return CUDA_ERROR_INVALID_VALUE;
	return occupancy_preferred_blocks(function, (uint32_t)block_size, shared_bytes, flags, ret_blocks);
}

CUDA_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(
	int *ret_blocks, CUfunction handle, int block_size, size_t shared_bytes)
{
	return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
		ret_blocks, handle, block_size, shared_bytes, 0);
}

CUDA_EXPORT CUresult cuOccupancyAvailableDynamicSMemPerBlock(
	size_t *ret_bytes, CUfunction handle, int blocks, int block_size)
{
	struct client_function *function;
	uint64_t value;
	CUresult result = enter(handle, &function);

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_bytes || blocks <= 0 || block_size <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	result = occupancy_available(function, (uint32_t)blocks, (uint32_t)block_size, &value);
	if (result == CUDA_SUCCESS)
		*ret_bytes = value;
	return result;
}

/* State of a search for the best block size. */
struct search {
	const struct client_function *function;
	CUoccupancyB2DSize size_of; /* dynamic shared memory of a block size; NULL: the same for all */
	size_t shared_bytes;
	unsigned int flags;
	int largest; /* block size to begin with */
	int warp;    /* threads of a warp: the step */
	int most;    /* threads that a multiprocessor holds: the upper bound of a result */
	int processors;
};

static CUresult search_init(struct search *search, int limit)
{
	const struct client_device *device = device_get(session_ordinal(search->function->session));

	if (!device ||
		device_attribute(device, CU_DEVICE_ATTRIBUTE_WARP_SIZE, &search->warp) != CUDA_SUCCESS ||
		device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, &search->most) !=
			CUDA_SUCCESS ||
		device_attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &search->processors) !=
			CUDA_SUCCESS ||
		search->warp <= 0)
		return CUDA_ERROR_UNKNOWN;
	search->largest = (int)search->function->max_threads;
	if (limit > 0 && limit < search->largest)
		search->largest = limit;
	return CUDA_SUCCESS;
}

/* Largest block size with the most threads resident on a multiprocessor; all sizes but the first
 * are whole warps. */
static CUresult search_run(const struct search *search, int *ret_block_size, int *ret_blocks)
{
	/* As in the driver, of all preferences the one for no shared memory counts here. */
	CUresult (*blocks_of)(const struct client_function *, uint32_t, uint64_t, uint32_t, int *) =
		occupancy_prefers_cache(search->function) ? occupancy_preferred_blocks : occupancy_blocks;
	int size = search->largest, best = 0, best_blocks = 0, best_size = 0;

	while (size > 0 && best < search->most) {
		size_t shared = search->size_of ? search->size_of(size) : search->shared_bytes;
		int blocks;
		CUresult result = blocks_of(search->function, (uint32_t)size, shared, search->flags, &blocks);

		if (result != CUDA_SUCCESS)
			return result;
		if ((int64_t)blocks * size > best) {
			best = blocks * size;
			best_blocks = blocks;
			best_size = size;
		}
		size = (size - 1) / search->warp * search->warp;
	}
	*ret_block_size = best_size;
	*ret_blocks = best_blocks;
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *ret_grid_size, int *ret_block_size,
	CUfunction handle, CUoccupancyB2DSize size_of, size_t shared_bytes, int limit, unsigned int flags)
{
	struct search search = {.size_of = size_of, .shared_bytes = shared_bytes, .flags = flags};
	struct client_function *function;
	int size, blocks;
	CUresult result = enter(handle, &function);

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_grid_size || !ret_block_size || limit < 0 || flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
		return CUDA_ERROR_INVALID_VALUE;
	search.function = function;
	result = search_init(&search, limit);
	if (result == CUDA_SUCCESS)
		result = search_run(&search, &size, &blocks);
	if (result != CUDA_SUCCESS)
		return result;
	*ret_grid_size = blocks * search.processors;
	*ret_block_size = size;
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuOccupancyMaxPotentialBlockSize(int *ret_grid_size, int *ret_block_size,
	CUfunction handle, CUoccupancyB2DSize size_of, size_t shared_bytes, int limit)
{
	return cuOccupancyMaxPotentialBlockSizeWithFlags(
		ret_grid_size, ret_block_size, handle, size_of, shared_bytes, limit, 0);
}

/* Bytes that count of an attribute's value: programs leave the rest of the 64 bytes
 * uninitialised. */
static size_t value_bytes(CUlaunchAttributeID id)
{
	switch ((int)id) {
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
	case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		return 4;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
		return 12;
	default:
		return sizeof(CUlaunchAttributeValue);
	}
}

/* Attributes with handles do not change the occupancy. */
static CUresult take_attributes(
	struct occupancy *question, const CUlaunchAttribute *attributes, uint32_t count)
{
	if (count > 0 && !attributes)
		return CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; i < count; ++i) {
		struct frmps_launch_attribute *to = &question->attributes[question->attribute_count];
		CUlaunchAttributeID id = attributes[i].id;
		size_t bytes = value_bytes(id);

		if (id == CU_LAUNCH_ATTRIBUTE_IGNORE || id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ||
			id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT ||
			id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE ||
			!encode_is_last(attributes, count, i))
			continue;
		if (question->attribute_count++ == FRMPS_ATTRIBUTE_MAX)
			return CUDA_ERROR_INVALID_VALUE;
		encode_attribute(&attributes[i], to);
		memset(to->value + bytes, 0, sizeof(to->value) - bytes);
	}
	return CUDA_SUCCESS;
}

static CUresult ask_clusters(int *ret_number, CUfunction handle, const CUlaunchConfig *config, uint32_t query)
{
	struct occupancy question = {.query = query};
	struct client_function *function;
	uint64_t value;
	CUresult result = enter(handle, &function);

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_number || !config)
		return CUDA_ERROR_INVALID_VALUE;
	occupancy_place(&question, stream_has_context(config->hStream) ? stream_find(config->hStream) : NULL);
	question.shared_bytes = config->sharedMemBytes;
	question.grid[0] = config->gridDimX;
	question.grid[1] = config->gridDimY;
	question.grid[2] = config->gridDimZ;
	question.block[0] = config->blockDimX;
	question.block[1] = config->blockDimY;
	question.block[2] = config->blockDimZ;
	result = take_attributes(&question, config->attrs, config->numAttrs);
	if (result == CUDA_SUCCESS)
		result = occupancy_ask(function, &question, &value);
	if (result == CUDA_SUCCESS)
		*ret_number = (int)value;
	return result;
}

CUDA_EXPORT CUresult cuOccupancyMaxPotentialClusterSize(
	int *ret_size, CUfunction handle, const CUlaunchConfig *config)
{
	return ask_clusters(ret_size, handle, config, OCCUPANCY_CLUSTER_SIZE);
}

CUDA_EXPORT CUresult cuOccupancyMaxActiveClusters(
	int *ret_clusters, CUfunction handle, const CUlaunchConfig *config)
{
	return ask_clusters(ret_clusters, handle, config, OCCUPANCY_ACTIVE_CLUSTERS);
}
