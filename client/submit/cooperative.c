// See cooperative.h.

#include "client/submit/cooperative.h"

#include "client/state/context.h"
#include "client/state/device.h"
#include "client/state/function.h"
#include "client/state/occupancy.h"
#include "client/state/session.h"
#include "client/submit/encode.h"

/* How much of a grid with clusters runs at the same time, in what the grid counts. */
static CUresult count_clustered(const struct launch *launch, const struct client_stream *stream,
	uint32_t cluster, uint64_t *ret_blocks)
{
	struct occupancy question = {
		.query = OCCUPANCY_ACTIVE_CLUSTERS, .shared_bytes = launch->shared_bytes};
	uint64_t clusters = 0;
	CUresult result;

	occupancy_place(&question, stream);
	for (int i = 0; i < 3; ++i) {
		question.grid[i] = launch->grid[i];
		question.block[i] = launch->block[i];
	}
	for (uint32_t i = 0; i < launch->attribute_total; ++i)
		if (launch->attributes[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
			encode_attribute(&launch->attributes[i], &question.attributes[0]);
			question.attribute_count = 1;
		}
	result = occupancy_ask(launch->function, &question, &clusters);
	*ret_blocks = launch->function->counts_clusters ? clusters : clusters * cluster;
	return result;
}

/* How many multiprocessors the kernel has. */
static CUresult count_processors(
	const struct launch *launch, const struct client_stream *stream, int *ret_processors)
{
	const struct client_device *device = device_get(session_ordinal(launch->function->session));
	CUcontext green = occupancy_green(stream);

	if (!device)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!green)
		return device_attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, ret_processors);
	*ret_processors = (int)context_sms(green);
	return CUDA_SUCCESS;
}

static CUresult count_blocks(
	const struct launch *launch, const struct client_stream *stream, uint64_t *ret_blocks)
{
	uint32_t threads = launch->block[0] * launch->block[1] * launch->block[2];
	int blocks = 0, processors = 0;
	CUresult result = occupancy_blocks(launch->function, threads, launch->shared_bytes, 0, &blocks);

	if (result == CUDA_SUCCESS)
		result = count_processors(launch, stream, &processors);
	*ret_blocks = (uint64_t)blocks * (uint64_t)processors;
	return result;
}

CUresult cooperative_check(const struct launch *launch, const struct client_stream *stream)
{
	uint32_t cluster = encode_cluster_blocks(launch);
	uint64_t blocks = 0;
	CUresult result = cluster ? count_clustered(launch, stream, cluster, &blocks)
				  : count_blocks(launch, stream, &blocks);

	if (result != CUDA_SUCCESS)
		return result;
	/* The product of two factors of 32 bits fits; the third factor must not overflow either. */
	if ((uint64_t)launch->grid[0] * launch->grid[1] > blocks ||
		(uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2] > blocks)
		return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
	return CUDA_SUCCESS;
}
