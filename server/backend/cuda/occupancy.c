// Occupancy questions: how much of a kernel fits on the device. Any thread.

#include <limits.h>
#include <string.h>

#include "server/backend/cuda/cuda.h"

static bool fill_dims(const struct wire_u32s *dims, unsigned int *x, unsigned int *y, unsigned int *z)
{
	if (dims->count != 3)
		return false;
	*x = dims->at[0];
	*y = dims->at[1];
	*z = dims->at[2];
	return true;
}

static CUresult ask_cluster(
	CUfunction function, const struct wire_occupancy *query, uint64_t sms, uint64_t *ret_value)
{
	struct frmps_launch_attribute given[FRMPS_ATTRIBUTE_MAX];
	CUlaunchAttribute attributes[FRMPS_ATTRIBUTE_MAX];
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
	config.numAttrs = count;
	config.hStream = sms ? cuda_sms_stream(sms) : NULL;
	config.sharedMemBytes = (unsigned int)query->shared_bytes;
	code = query->query == 2 ? driver.occupancy_cluster(&answer, function, &config)
				 : driver.occupancy_clusters(&answer, function, &config);
	if (!code)
		*ret_value = (uint64_t)answer;
	return code;
}

static CUresult ask_blocks(CUfunction function, const struct wire_occupancy *query, uint64_t *ret_value)
{
	int blocks = 0;
	CUresult code = driver.occupancy_blocks(
		&blocks, function, (int)query->block_size, query->shared_bytes, query->flags);

	if (!code)
		*ret_value = (uint64_t)blocks;
	return code;
}

static CUresult ask_shared(CUfunction function, const struct wire_occupancy *query, uint64_t *ret_value)
{
	size_t bytes = 0;
	CUresult code = driver.occupancy_shared(&bytes, function, (int)query->blocks, (int)query->block_size);

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
		return ask_blocks(cuda_function(function), query, ret_value);
	case 1:
		return ask_shared(cuda_function(function), query, ret_value);
	case 2:
	case 3:
		return ask_cluster(cuda_function(function), query, sms, ret_value);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}
