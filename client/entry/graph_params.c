// See graph_params.h.

#include "client/entry/graph_params.h"

#include "client/state/log.h"
#include "client/submit/operation.h"

const CUDA_KERNEL_NODE_PARAMS *graph_params_widen(
	const CUDA_KERNEL_NODE_PARAMS_v1 *given, CUDA_KERNEL_NODE_PARAMS *wide)
{
	if (!given)
		return NULL;
	*wide = (CUDA_KERNEL_NODE_PARAMS){
		.func = given->func,
		.gridDimX = given->gridDimX,
		.gridDimY = given->gridDimY,
		.gridDimZ = given->gridDimZ,
		.blockDimX = given->blockDimX,
		.blockDimY = given->blockDimY,
		.blockDimZ = given->blockDimZ,
		.sharedMemBytes = given->sharedMemBytes,
		.kernelParams = given->kernelParams,
		.extra = given->extra,
	};
	return wide;
}

CUresult graph_params_copy(const CUDA_MEMCPY3D *given, struct graph_params *ret_params)
{
	return given ? params_copy(given, ret_params) : CUDA_ERROR_INVALID_VALUE;
}

CUresult graph_params_set(const CUDA_MEMSET_NODE_PARAMS *given, struct graph_params *ret_params)
{
	return given ? params_set(given, ret_params) : CUDA_ERROR_INVALID_VALUE;
}

CUresult graph_params_host(const CUDA_HOST_NODE_PARAMS *given, struct graph_params *ret_params)
{
	return given ? params_host(given, ret_params) : CUDA_ERROR_INVALID_VALUE;
}

CUresult graph_params_batch(const CUDA_BATCH_MEM_OP_NODE_PARAMS *given, struct graph_params *ret_params)
{
	CUresult r = given ? operation_check(given->count, given->paramArray) : CUDA_ERROR_INVALID_VALUE;

	return r == CUDA_SUCCESS ? params_batch(given, ret_params) : r;
}

static CUDA_MEMSET_NODE_PARAMS narrow(const CUDA_MEMSET_NODE_PARAMS_v2 *given)
{
	return (CUDA_MEMSET_NODE_PARAMS){.dst = given->dst,
		.pitch = given->pitch,
		.value = given->value,
		.elementSize = given->elementSize,
		.width = given->width,
		.height = given->height};
}

CUresult graph_params_any(
	const CUgraphNodeParams *given, const struct graph_params *keep, struct graph_params *ret_params)
{
	CUDA_MEMSET_NODE_PARAMS set_params;

	if (!given)
		return CUDA_ERROR_INVALID_VALUE;
	switch (given->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return params_kernel(&given->kernel, keep, ret_params);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return params_copy(&given->memcpy.copyParams, ret_params);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		set_params = narrow(&given->memset);
		return params_set(&set_params, ret_params);
	case CU_GRAPH_NODE_TYPE_HOST:
		return params_host(&given->host, ret_params);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return params_event(given->type, given->eventRecord.event, ret_params);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		return graph_params_batch(&given->memOp, ret_params);
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
	case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
		client_log(CLIENT_LOG_ERROR, "graph nodes for external semaphores are not supported");
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}
