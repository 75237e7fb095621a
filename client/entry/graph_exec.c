// Entry points: executable graphs.

#include "client/entry/entry.h"

#include "client/entry/graph_params.h"
#include "client/graph/exec.h"
#include "client/state/context.h"
#include "client/state/log.h"
#include "client/state/stream.h"

#define FLAGS                                                                                                \
	(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |              \
		CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, uint64_t flags, CUgraphNode *bad)
{
	CUresult r = enter_unsafe();

	*bad = NULL;
	if (r != CUDA_SUCCESS)
		return r;
	if (!exec || (flags & ~(uint64_t)FLAGS))
		return CUDA_ERROR_INVALID_VALUE;
	if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) {
		client_log(CLIENT_LOG_ERROR, "graphs that kernels launch are not supported");
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	return exec_new(graph, flags, exec, bad);
}

CUDA_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	TRACE_CALL();
	CUgraphNode bad;

	/* An upload needs a stream, which only the other form has. */
	if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
		return CUDA_ERROR_INVALID_VALUE;
	return instantiate(exec, graph, flags, &bad);
}

CUDA_EXPORT CUresult cuGraphInstantiate(
	CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t log_bytes)
{
	TRACE_CALL();
	CUgraphNode bad;
	CUresult r = instantiate(exec, graph, 0, &bad);

	if (log && log_bytes)
		log[0] = '\0';
	if (error_node)
		*error_node = bad;
	return r;
}

CUDA_EXPORT CUresult cuGraphInstantiate_v2(
	CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t log_bytes)
{
	return cuGraphInstantiate(exec, graph, error_node, log, log_bytes);
}

static CUresult instantiate_with(
	CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *with, bool per_thread)
{
	struct client_stream *stream;
	CUresult r = process_enter_context();

	if (r == CUDA_SUCCESS && !with)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	if (with->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
		r = stream_resolve(with->hUploadStream, per_thread, &stream);
	if (r == CUDA_SUCCESS)
		r = instantiate(exec, graph, with->flags, &with->hErrNode_out);
	with->result_out = r == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS
			   : r == CUDA_ERROR_INVALID_VALUE && !with->hErrNode_out
				   ? CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE
				   : CUDA_GRAPH_INSTANTIATE_ERROR;
	return r;
}

ENTRY_PAIR(cuGraphInstantiateWithParams, _ptsz, instantiate_with,
	(CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *with), exec, graph, with)

CUDA_EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	TRACE_CALL();
	CUresult r = also_unsafe(process_enter());

	return r == CUDA_SUCCESS ? exec_destroy(exec) : r;
}

/* First lines of calls on an executable graph. */
static CUresult begin(CUgraphExec handle, const void *must_be, struct client_exec **ret_exec)
{
	CUresult r = process_enter_context();

	if (r != CUDA_SUCCESS)
		return r;
	*ret_exec = exec_find(handle);
	return *ret_exec && must_be ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUDA_EXPORT CUresult cuGraphExecGetFlags(CUgraphExec handle, uint64_t *flags)
{
	struct client_exec *exec;
	CUresult r = begin(handle, flags, &exec);

	if (r == CUDA_SUCCESS)
		*flags = exec_flags(exec);
	return r;
}

/* The same, in a stream. A capture is at an end even without a graph. */
static CUresult begin_in(CUgraphExec handle, CUstream where, bool per_thread, struct client_exec **ret_exec,
	struct client_stream **ret_stream)
{
	CUresult r = enter_of_stream(where);

	if (r == CUDA_SUCCESS)
		r = stream_resolve(where, per_thread, ret_stream);
	if (r != CUDA_SUCCESS)
		return r;
	if (capture_is_on(*ret_stream))
		return capture_refuse(*ret_stream);
	*ret_exec = exec_find(handle);
	return *ret_exec ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult launch(CUgraphExec handle, CUstream where, bool per_thread)
{
	struct client_stream *stream;
	struct client_exec *exec;
	CUresult r = begin_in(handle, where, per_thread, &exec, &stream);

	return r == CUDA_SUCCESS ? leave_launch(exec_launch(exec, stream), stream) : r;
}

ENTRY_PAIR(cuGraphLaunch, _ptsz, launch, (CUgraphExec exec, CUstream stream), exec, stream)

static CUresult upload(CUgraphExec handle, CUstream where, bool per_thread)
{
	struct client_stream *stream;
	struct client_exec *exec;
	CUresult r = begin_in(handle, where, per_thread, &exec, &stream);

	return r == CUDA_SUCCESS ? exec_upload(exec) : r;
}

ENTRY_PAIR(cuGraphUpload, _ptsz, upload, (CUgraphExec exec, CUstream stream), exec, stream)

/* ---- changes ---- */

CUDA_EXPORT CUresult cuGraphExecUpdate_v2(
	CUgraphExec handle, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
	TRACE_CALL();
	CUgraphExecUpdateResultInfo unused;
	struct client_exec *exec;
	CUresult r = begin(handle, handle, &exec);

	return r == CUDA_SUCCESS ? exec_update(exec, graph, info ? info : &unused) : r;
}

CUDA_EXPORT CUresult cuGraphExecUpdate(
	CUgraphExec handle, CUgraph graph, CUgraphNode *error_node, CUgraphExecUpdateResult *result)
{
	TRACE_CALL();
	CUgraphExecUpdateResultInfo info = {.result = CU_GRAPH_EXEC_UPDATE_ERROR};
	CUresult r = cuGraphExecUpdate_v2(handle, graph, &info);

	if (error_node)
		*error_node = info.errorNode;
	if (result)
		*result = info.result;
	return r;
}

/* Sets the parameters of a node; `maker` makes these. */
#define SET(handle, node, maker)                                                                             \
	do {                                                                                                 \
		struct graph_params params;                                                                  \
		struct client_exec *exec;                                                                    \
		CUresult r = begin(handle, handle, &exec);                                                   \
		if (r == CUDA_SUCCESS)                                                                       \
			r = maker;                                                                           \
		return r == CUDA_SUCCESS ? exec_set(exec, node, &params) : r;                                \
	} while (0)

CUDA_EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(
	CUgraphExec handle, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *given)
{
	struct client_exec *exec;
	CUresult r = begin(handle, given, &exec);

	return r == CUDA_SUCCESS ? exec_set_kernel(exec, node, given) : r;
}

CUDA_EXPORT CUresult cuGraphExecKernelNodeSetParams(
	CUgraphExec handle, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *given)
{
	CUDA_KERNEL_NODE_PARAMS wide;

	return cuGraphExecKernelNodeSetParams_v2(handle, node, graph_params_widen(given, &wide));
}

CUDA_EXPORT CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec handle, CUgraphNode node,
	const CUDA_MEMCPY3D *given, __attribute__((unused)) CUcontext context)
{
	SET(handle, node, graph_params_copy(given, &params));
}

CUDA_EXPORT CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec handle, CUgraphNode node,
	const CUDA_MEMSET_NODE_PARAMS *given, __attribute__((unused)) CUcontext context)
{
	SET(handle, node, graph_params_set(given, &params));
}

CUDA_EXPORT CUresult cuGraphExecHostNodeSetParams(
	CUgraphExec handle, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *given)
{
	SET(handle, node, graph_params_host(given, &params));
}

CUDA_EXPORT CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec handle, CUgraphNode node, CUevent event)
{
	SET(handle, node, params_event(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, &params));
}

CUDA_EXPORT CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec handle, CUgraphNode node, CUevent event)
{
	SET(handle, node, params_event(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, &params));
}

CUDA_EXPORT CUresult cuGraphExecBatchMemOpNodeSetParams(
	CUgraphExec handle, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *given)
{
	SET(handle, node, graph_params_batch(given, &params));
}

CUDA_EXPORT CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec handle, CUgraphNode node, CUgraph child)
{
	struct client_exec *exec;
	CUresult r = begin(handle, handle, &exec);

	return r == CUDA_SUCCESS ? exec_set_child(exec, node, child) : r;
}

CUDA_EXPORT CUresult cuGraphExecNodeSetParams(CUgraphExec handle, CUgraphNode node, CUgraphNodeParams *given)
{
	if (given && given->type == CU_GRAPH_NODE_TYPE_KERNEL)
		return cuGraphExecKernelNodeSetParams_v2(handle, node, &given->kernel);
	if (given && given->type == CU_GRAPH_NODE_TYPE_GRAPH)
		return cuGraphExecChildGraphNodeSetParams(handle, node, given->graph.graph);
	SET(handle, node, graph_params_any(given, NULL, &params));
}

CUDA_EXPORT CUresult cuGraphNodeSetEnabled(CUgraphExec handle, CUgraphNode node, unsigned int enabled)
{
	struct client_exec *exec;
	CUresult r = begin(handle, handle, &exec);

	return r == CUDA_SUCCESS ? exec_enable(exec, node, enabled != 0) : r;
}

CUDA_EXPORT CUresult cuGraphNodeGetEnabled(CUgraphExec handle, CUgraphNode node, unsigned int *enabled)
{
	struct client_exec *exec;
	bool is;
	CUresult r = begin(handle, enabled, &exec);

	if (r == CUDA_SUCCESS)
		r = exec_is_enabled(exec, node, &is);
	if (r == CUDA_SUCCESS)
		*enabled = is;
	return r;
}
