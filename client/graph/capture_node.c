// Commands of streams that capture, each as the parameters of a node. See capture.h.

#include "client/graph/capture.h"

#include "client/graph/memory.h"
#include "client/graph/params.h"
#include "client/state/context.h"
#include "client/submit/encode.h"

/* An error of making the parameters takes precedence. */
static CUresult append(struct client_stream *stream, struct graph_params *params, CUresult r)
{
	return r == CUDA_SUCCESS ? capture_add(stream, params) : r;
}

static CUcontext context_of(const struct client_stream *stream)
{
	CUcontext green = stream->green, own = stream->context;

	return green ? green : own ? own : context_current();
}

/* The size of clusters that the kernel's text demands is the node's attribute. */
static CUresult take_cluster(const struct client_function *function, struct graph_params *params)
{
	const int32_t *own = function->attributes;
	const CUlaunchAttributeValue value = {
		.clusterDim = {(unsigned int)own[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH],
			(unsigned int)own[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT],
			(unsigned int)own[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH]}};

	return value.clusterDim.x
		       ? params_attribute_default(params, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value)
		       : CUDA_SUCCESS;
}

CUresult capture_launch(struct client_stream *stream, const struct launch *launch)
{
	struct graph_params params;
	CUresult r = params_launch(launch, &params);

	if (r != CUDA_SUCCESS)
		return r;
	r = params_place(&params, context_of(stream));
	if (r == CUDA_SUCCESS)
		r = take_cluster(launch->function, &params);
	if (r != CUDA_SUCCESS)
		params_deinit(&params);
	return append(stream, &params, r);
}

CUresult capture_copy(const struct box *box, struct client_stream *stream, unsigned int how)
{
	struct graph_params params;
	CUresult r;

	if (!(how & COPY_ASYNC))
		return capture_refuse(stream);
	r = params_box(box, how, &params);
	return append(stream, &params, r);
}

CUresult capture_set(const struct copy_fill *fill, struct client_stream *stream, unsigned int how)
{
	CUDA_MEMSET_NODE_PARAMS set = {
		.dst = fill->dst,
		.pitch = fill->pitch,
		.value = fill->value,
		.elementSize = fill->element_bytes,
		.width = fill->width,
		.height = fill->height,
	};
	struct graph_params params;
	CUresult r;

	if (!(how & COPY_ASYNC))
		return capture_refuse(stream);
	r = params_set(&set, &params);
	return append(stream, &params, r);
}

CUresult capture_host(struct client_stream *stream, CUhostFn fn, void *user)
{
	struct graph_params params;
	CUresult r = params_host(&(CUDA_HOST_NODE_PARAMS){fn, user}, &params);

	return append(stream, &params, r);
}

CUresult capture_batch(
	struct client_stream *stream, unsigned int count, const CUstreamBatchMemOpParams *operations)
{
	CUDA_BATCH_MEM_OP_NODE_PARAMS given = {
		.count = count, .paramArray = (CUstreamBatchMemOpParams *)(uintptr_t)operations};
	struct graph_params params;
	CUresult r;

	if (count == 0)
		return CUDA_SUCCESS;
	r = params_batch(&given, &params);
	return append(stream, &params, r);
}

CUresult capture_external(struct client_stream *stream, CUgraphNodeType type, CUevent event)
{
	struct graph_params params;
	CUresult r = params_event(type, event, &params);

	return append(stream, &params, r);
}

CUresult capture_alloc(struct client_stream *stream, uint64_t bytes, CUdeviceptr *ret_address)
{
	struct graph_params params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
	CUcontext context = stream->context ? stream->context : context_current();
	CUresult r = graph_memory_new(context, bytes, &params.memory);
	CUdeviceptr address = r == CUDA_SUCCESS ? graph_memory_address(params.memory) : 0;

	r = append(stream, &params, r);
	if (r == CUDA_SUCCESS)
		*ret_address = address;
	else
		graph_memory_reap();
	return r;
}

CUresult capture_free(struct client_stream *stream, CUdeviceptr address)
{
	struct graph_params params = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .address = address};

	return append(stream, &params, graph_memory_is(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}
