// Entry points: stream capture.

#include "client/entry/entry.h"

#include "client/state/stream.h"
#include "client/state/thread.h"

static CUresult begin(CUstream handle, CUstreamCaptureMode mode, bool per_thread)
{
	struct client_stream *stream;
	CUresult r = enter_stream(handle, per_thread, &stream);

	return r == CUDA_SUCCESS ? capture_begin(stream, mode, NULL, NULL, NULL, 0) : r;
}

ENTRY_PAIR(cuStreamBeginCapture, _ptsz, begin, (CUstream stream), stream, CU_STREAM_CAPTURE_MODE_GLOBAL)
ENTRY_PAIR(cuStreamBeginCapture_v2, _ptsz, begin, (CUstream stream, CUstreamCaptureMode mode), stream, mode)

static CUresult begin_to(CUstream handle, CUgraph graph, const CUgraphNode *nodes,
	const CUgraphEdgeData *data, size_t count, CUstreamCaptureMode mode, bool per_thread)
{
	struct client_stream *stream;
	CUresult r = enter_stream(handle, per_thread, &stream);

	if (r == CUDA_SUCCESS && !graph)
		r = CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? capture_begin(stream, mode, graph, nodes, data, count) : r;
}

ENTRY_PAIR(cuStreamBeginCaptureToGraph, _ptsz, begin_to,
	(CUstream stream, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count,
		CUstreamCaptureMode mode),
	stream, graph, nodes, data, count, mode)

static CUresult end(CUstream handle, CUgraph *graph, bool per_thread)
{
	struct client_stream *stream;
	CUresult r = enter_stream(handle, per_thread, &stream);

	if (r == CUDA_SUCCESS && !graph)
		r = CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? capture_end(stream, graph) : r;
}

ENTRY_PAIR(cuStreamEndCapture, _ptsz, end, (CUstream stream, CUgraph *graph), stream, graph)

static CUresult query(
	CUstream handle, CUstreamCaptureStatus *status, struct capture_info *info, bool per_thread)
{
	struct client_stream *stream;
	CUresult r = enter_stream(handle, per_thread, &stream);

	if (r == CUDA_SUCCESS && !status)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = capture_query(stream, info);
	if (r == CUDA_SUCCESS)
		*status = info->status;
	return r;
}

static CUresult is_capturing(CUstream handle, CUstreamCaptureStatus *status, bool per_thread)
{
	struct capture_info info;

	return query(handle, status, &info, per_thread);
}

ENTRY_PAIR(cuStreamIsCapturing, _ptsz, is_capturing, (CUstream stream, CUstreamCaptureStatus *status), stream,
	status)

/* Outputs of the later forms that the earlier forms lack. */
struct more {
	CUgraph *graph;
	const CUgraphNode **nodes;
	const CUgraphEdgeData **data;
	size_t *count;
	bool can_tell; /* the form has an output for edge data */
};

static bool are_ordinary(const struct capture_info *info)
{
	for (size_t i = 0; i < info->count; ++i)
		if (info->data[i].from_port || info->data[i].type)
			return false;
	return true;
}

/* Writes the outputs beside the status only for a stream that captures. */
static CUresult get_info(
	CUstream handle, CUstreamCaptureStatus *status, uint64_t *id, struct more more, bool per_thread)
{
	struct capture_info info;
	CUresult r = query(handle, status, &info, per_thread);

	if (r != CUDA_SUCCESS || info.status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
		return r;
	if (!more.can_tell && more.nodes && !are_ordinary(&info))
		return CUDA_ERROR_LOSSY_QUERY;
	if (id)
		*id = info.id;
	if (more.graph)
		*more.graph = info.graph;
	if (more.nodes)
		*more.nodes = info.nodes;
	if (more.data)
		*more.data = info.data;
	if (more.count)
		*more.count = info.count;
	return CUDA_SUCCESS;
}

#define NONE ((struct more){0})

ENTRY_PAIR(cuStreamGetCaptureInfo, _ptsz, get_info,
	(CUstream stream, CUstreamCaptureStatus *status, uint64_t *id), stream, status, id, NONE)
ENTRY_PAIR(cuStreamGetCaptureInfo_v2, _ptsz, get_info,
	(CUstream stream, CUstreamCaptureStatus *status, uint64_t *id, CUgraph *graph,
		const CUgraphNode **nodes, size_t *count),
	stream, status, id, ((struct more){graph, nodes, NULL, count, false}))
ENTRY_PAIR(cuStreamGetCaptureInfo_v3, _ptsz, get_info,
	(CUstream stream, CUstreamCaptureStatus *status, uint64_t *id, CUgraph *graph,
		const CUgraphNode **nodes, const CUgraphEdgeData **data, size_t *count),
	stream, status, id, ((struct more){graph, nodes, data, count, data != NULL}))

static CUresult update(CUstream handle, CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count,
	unsigned int flags, bool per_thread)
{
	struct client_stream *stream;
	CUresult r = enter_stream(handle, per_thread, &stream);

	if (r == CUDA_SUCCESS && flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	return capture_update(stream, nodes, data, count, flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES);
}

ENTRY_PAIR(cuStreamUpdateCaptureDependencies, _ptsz, update,
	(CUstream stream, CUgraphNode *nodes, size_t count, unsigned int flags), stream, nodes, NULL, count,
	flags)
ENTRY_PAIR(cuStreamUpdateCaptureDependencies_v2, _ptsz, update,
	(CUstream stream, CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count, unsigned int flags),
	stream, nodes, data, count, flags)

CUDA_EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	struct thread *thread = thread_self();
	CUstreamCaptureMode before = thread->capture_mode;
	CUresult r = process_enter_early();

	if (r != CUDA_SUCCESS)
		return r;
	if (!mode || (unsigned int)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	thread->capture_mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}
