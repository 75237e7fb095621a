// Launches: refused where a driver would refuse them, else copied into the stream's queue. And
// questions about occupancy of the pretended device.

#include <string.h>

#include "tests/host/host.h"

static bool dims_fit(const uint32_t *grid, const uint32_t *block)
{
	if (!grid[0] || !grid[1] || !grid[2] || !block[0] || !block[1] || !block[2])
		return false;
	if (grid[0] > (uint32_t)HOST_GRID_X_MAX || grid[1] > HOST_GRID_YZ_MAX || grid[2] > HOST_GRID_YZ_MAX)
		return false;
	if (block[0] > HOST_THREADS_MAX || block[1] > HOST_THREADS_MAX || block[2] > HOST_BLOCK_Z_MAX)
		return false;
	return (uint64_t)block[0] * block[1] * block[2] <= HOST_THREADS_MAX;
}

/* Hints are fine. Clusters and cooperation need blocks that run together; events and nodes are
 * handles. */
static CUresult check_attribute(const struct frmps_launch_attribute *attribute)
{
	CUlaunchAttributeValue value;

	memcpy(&value, attribute->value, sizeof(value));
	switch (attribute->id) {
	case CU_LAUNCH_ATTRIBUTE_IGNORE:
	case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
	case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
	case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
	case CU_LAUNCH_ATTRIBUTE_PRIORITY:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
	case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
	case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
		return CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
		return value.cooperative ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
	case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
	case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
		return value.clusterDim.x == 1 && value.clusterDim.y == 1 && value.clusterDim.z == 1
			       ? CUDA_SUCCESS
			       : CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

CUresult host_launch_check(const struct backend_launch *launch)
{
	const struct host_function *function = host_function(launch->function);

	if (!dims_fit(launch->grid, launch->block) ||
		(function->kernel->block[0] &&
			memcmp(launch->block, function->kernel->block, sizeof(launch->block)) != 0) ||
		launch->argument_bytes < function->argument_bytes ||
		launch->shared_bytes >
			(uint32_t)function->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES])
		return CUDA_ERROR_INVALID_VALUE;
	if (launch->cooperative)
		return CUDA_ERROR_NOT_SUPPORTED;
	for (uint32_t i = 0; i < launch->attribute_count; i++) {
		CUresult code = check_attribute(&launch->attributes[i]);

		if (code)
			return code;
	}
	return CUDA_SUCCESS;
}

/* After the command: shared memory (aligned for anything), the packed arguments, a pointer to each
 * argument. */
static struct host_work *new_launch(const struct host_function *function, const struct backend_launch *launch)
{
	const struct host_kernel *kernel = function->kernel;
	size_t arguments = 128 + (size_t)launch->shared_bytes / 16 * 16 + 16;
	size_t pointers = arguments + function->argument_bytes / 16u * 16u + 16;
	struct host_work *work = host_work_new(HOST_LAUNCH, pointers + kernel->param_count * sizeof(void *));
	uint8_t *bytes;

	if (!work)
		return NULL;
	bytes = work->bytes;
	work->launch.kernel = kernel;
	work->launch.module = function->module;
	if (launch->shared_bytes)
		work->launch.shared = bytes + (128 - (uintptr_t)bytes % 128) % 128;
	if (function->argument_bytes)
		memcpy(bytes + arguments, launch->arguments, function->argument_bytes);
	work->launch.params = (void **)(void *)(bytes + pointers);
	for (uint32_t i = 0; i < kernel->param_count; i++)
		work->launch.params[i] = bytes + arguments + kernel->params[i].offset;
	return work;
}

CUresult host_launch_on(struct backend_stream *stream, const struct backend_launch *launch, uint64_t sms)
{
	struct host_work *work;
	CUresult code = host_launch_check(launch);

	if (code)
		return code;
	work = new_launch(host_function(launch->function), launch);
	if (!work)
		return host_work_error();
	work->launch.grid = (struct host_grid){
		.grid = {launch->grid[0], launch->grid[1], launch->grid[2]},
		.block = {launch->block[0], launch->block[1], launch->block[2]},
		.shared_bytes = launch->shared_bytes,
		.sms = sms,
	};
	host_stream_push(stream, work);
	return CUDA_SUCCESS;
}

CUresult host_launch(struct backend_stream *stream, const struct backend_launch *launch)
{
	return host_launch_on(stream, launch, host_stream_sms(stream));
}

static uint32_t blocks_per_sm(uint64_t block_size, uint64_t shared_bytes)
{
	uint64_t threads = (block_size + HOST_WARP - 1) / HOST_WARP * HOST_WARP;
	uint64_t blocks = HOST_SM_THREADS / threads;

	if (blocks > HOST_SM_BLOCKS)
		blocks = HOST_SM_BLOCKS;
	if (blocks > HOST_SHARED_SM / (shared_bytes + HOST_SHARED_RESERVED))
		blocks = HOST_SHARED_SM / (shared_bytes + HOST_SHARED_RESERVED);
	return (uint32_t)blocks;
}

/* As the driver, which does not take off what it reserves. */
static uint64_t available_shared(const struct host_function *function, uint64_t blocks)
{
	uint64_t each = HOST_SHARED_SM / blocks;
	uint64_t most = (uint64_t)function->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];

	return each < most ? each : most;
}

CUresult host_occupancy(struct backend_function *function, const struct wire_occupancy *query, uint64_t sms,
	uint64_t *ret_value)
{
	(void)sms; /* without effect on these answers */
	switch (query->query) {
	case 0:
		if (!query->block_size || query->block_size > HOST_THREADS_MAX ||
			query->shared_bytes > HOST_SHARED_MAX)
			return CUDA_ERROR_INVALID_VALUE;
		*ret_value = blocks_per_sm(query->block_size, query->shared_bytes);
		return CUDA_SUCCESS;
	case 1:
		if (!query->blocks || !query->block_size || query->block_size > HOST_THREADS_MAX ||
			query->blocks > blocks_per_sm(query->block_size, 0))
			return CUDA_ERROR_INVALID_VALUE;
		*ret_value = available_shared(host_function(function), query->blocks);
		return CUDA_SUCCESS;
	case 2:
	case 3:
		return CUDA_ERROR_NOT_SUPPORTED; /* no clusters */
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}
