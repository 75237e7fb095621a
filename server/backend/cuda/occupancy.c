// Occupancy questions: how many blocks of a kernel fit on the device. For a kernel that the service
// has loaded itself the driver is asked about the trampoline, which has the same registers and
// barriers, with the kernel's static shared memory in addition; limits of the kernel itself are
// checked here. Any thread.

#include <limits.h>
#include <string.h>

#include "server/backend/cuda/cuda.h"
#include "server/backend/cuda/loader.h"

/* Larger clusters only if a kernel allows them. */
#define CLUSTER_PORTABLE 8

static bool fill_dims(const struct wire_u32s *dims, unsigned int *x, unsigned int *y, unsigned int *z)
{
	if (dims->count != 3)
		return false;
	*x = dims->at[0];
	*y = dims->at[1];
	*z = dims->at[2];
	return true;
}

static int32_t own_attribute(const struct cuda_kernel *kernel, CUfunction_attribute attribute)
{
	return kernel->own->attributes[attribute];
}

/* True if a block of the kernel itself can have so much. A bound on its threads counts for launches
 * alone. */
static bool can_share(const struct cuda_kernel *kernel, uint64_t shared)
{
	return !kernel->own ||
	       shared <= (uint64_t)own_attribute(kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
}

static CUresult check_own(
	const struct loader_kernel *kernel, const CUlaunchAttribute *attributes, unsigned count)
{
	const CUlaunchAttributeValue *cluster = NULL;

	for (unsigned i = 0; i < count; i++)
		if (attributes[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
			cluster = &attributes[i].value;
	return loader_check_cluster(kernel, cluster);
}

static CUresult ask_cluster(struct backend_function *function, const struct wire_occupancy *query,
	uint64_t sms, uint64_t *ret_value)
{
	struct frmps_launch_attribute given[FRMPS_ATTRIBUTE_MAX];
	CUlaunchAttribute attributes[CUDA_ATTRIBUTES_MAX];
	const struct cuda_kernel *kernel = cuda_kernel(function);
	CUlaunchConfig config = {.attrs = attributes};
	uint32_t count = query->attributes.count / sizeof(given[0]);
	CUresult code;
	int answer = 0;

	if (query->attributes.count % sizeof(given[0]) || count > FRMPS_ATTRIBUTE_MAX ||
		query->shared_bytes > UINT_MAX ||
		!fill_dims(&query->grid, &config.gridDimX, &config.gridDimY, &config.gridDimZ) ||
		!fill_dims(&query->block, &config.blockDimX, &config.blockDimY, &config.blockDimZ))
		return CUDA_ERROR_INVALID_VALUE;
	if (count)
		memcpy(given, query->attributes.at, query->attributes.count);
	code = cuda_attributes(given, count, attributes);
	if (code)
		return code;
	if (kernel->own) {
		code = check_own(kernel->own, attributes, count);
		loader_attributes(kernel->own, attributes, &count);
	}
	if (code)
		return code;
	config.numAttrs = count;
	config.hStream = sms ? cuda_sms_stream(sms) : NULL;
	config.sharedMemBytes = cuda_shared(function, query->shared_bytes);
	code = query->query == 2 ? driver.occupancy_cluster(&answer, kernel->function, &config)
				 : driver.occupancy_clusters(&answer, kernel->function, &config);
	if (!code && query->query == 2 && kernel->own && answer > CLUSTER_PORTABLE &&
		!own_attribute(kernel, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED))
		answer = CLUSTER_PORTABLE;
	if (!code)
		*ret_value = (uint64_t)answer;
	return code;
}

static CUresult ask_blocks(
	struct backend_function *function, const struct wire_occupancy *query, uint64_t *ret_value)
{
	int blocks = 0;
	CUresult code = driver.occupancy_blocks(&blocks, cuda_function(function), (int)query->block_size,
		cuda_shared(function, query->shared_bytes), query->flags);

	if (!code && !can_share(cuda_kernel(function), query->shared_bytes))
		blocks = 0;
	if (!code)
		*ret_value = (uint64_t)blocks;
	return code;
}

static CUresult ask_shared(
	struct backend_function *function, const struct wire_occupancy *query, uint64_t *ret_value)
{
	const struct loader_kernel *own = cuda_kernel(function)->own;
	size_t bytes = 0;
	CUresult code = driver.occupancy_shared(
		&bytes, cuda_function(function), (int)query->blocks, (int)query->block_size);

	if (!code && own) {
		size_t most = (size_t)own->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];

		bytes -= bytes < own->shared ? bytes : own->shared;
		bytes = bytes < most ? bytes : most;
	}
	if (!code)
		*ret_value = bytes;
	return code;
}

CUresult cuda_occupancy(struct backend_function *function, const struct wire_occupancy *query, uint64_t sms,
	uint64_t *ret_value)
{
	if (query->block_size > INT_MAX || query->blocks > INT_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	switch (query->query) {
	case 0:
		return ask_blocks(function, query, ret_value);
	case 1:
		return ask_shared(function, query, ret_value);
	case 2:
	case 3:
		return ask_cluster(function, query, sms, ret_value);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}
