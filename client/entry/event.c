// Entry points: events.

#include "client/entry/entry.h"

#include "client/graph/capture.h"
#include "client/state/context.h"
#include "client/state/event.h"
#include "client/state/mempool.h"
#include "client/state/poolshare.h"
#include "client/stage/bounce.h"
#include "client/state/stream.h"

#define EVENT_FLAGS (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

CUDA_EXPORT CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
	CUresult r = process_enter_context();

	if (r != CUDA_SUCCESS)
		return r;
	if (!event || (flags & ~(unsigned int)EVENT_FLAGS))
		return CUDA_ERROR_INVALID_VALUE;
	if ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING))
		return CUDA_ERROR_INVALID_VALUE;
	return event_create(context_current(), flags, event);
}

CUDA_EXPORT CUresult cuEventDestroy_v2(CUevent event)
{
	CUresult r = process_enter_object(true, event_session(event));

	return r == CUDA_SUCCESS ? event_destroy(event) : r;
}

CUDA_EXPORT CUresult cuEventDestroy(CUevent event)
{
	return cuEventDestroy_v2(event);
}

/* True if the stream is not of the event's context. Default streams belong to the current context;
 * the thread of host functions has none. */
static bool is_foreign(CUevent event, const struct client_stream *stream)
{
	CUcontext own = event_context(event);
	CUcontext other = stream->context ? stream->context : context_current();

	return own && other && own != other;
}

static CUresult record(CUevent event, CUstream handle, unsigned int flags, bool per_thread)
{
	struct client_stream *stream;
	bool has_context = stream_has_context(handle);
	CUresult r = process_enter_host(has_context, has_context ? stream_session(handle) : NULL);

	if (r != CUDA_SUCCESS)
		return r;
	r = stream_resolve(handle, per_thread, &stream);
	if (r != CUDA_SUCCESS)
		return r;
	if (is_foreign(event, stream))
		return CUDA_ERROR_INVALID_HANDLE;
	/* An external record becomes a node of a graph; outside a capture the call is refused. */
	if (flags == CU_EVENT_RECORD_EXTERNAL)
		return capture_is_on(stream)
			       ? capture_external(stream, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event)
			       : CUDA_ERROR_ILLEGAL_STATE;
	return flags == CU_EVENT_RECORD_DEFAULT ? event_record(event, stream) : CUDA_ERROR_INVALID_VALUE;
}

ENTRY_PAIR(cuEventRecord, _ptsz, record, (CUevent event, CUstream stream), event, stream, 0)
ENTRY_PAIR(cuEventRecordWithFlags, _ptsz, record, (CUevent event, CUstream stream, unsigned int flags), event,
	stream, flags)

CUDA_EXPORT CUresult cuEventQuery(CUevent event)
{
	CUresult r = process_enter_host(true, event_session(event));

	if (r == CUDA_SUCCESS)
		r = capture_unsafe();
	return r == CUDA_SUCCESS ? event_query(event) : r;
}

CUDA_EXPORT CUresult cuEventSynchronize(CUevent event)
{
	TRACE_CALL();
	CUresult r = also_unsafe(process_enter_object(true, event_session(event)));

	/* In a forked child there is nothing to look at. */
	if (r != CUDA_SUCCESS)
		return r;
	r = event_synchronize(event);
	mempool_settle();
	poolshare_settle();
	bounce_settle();
	return r;
}

CUDA_EXPORT CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end)
{
	CUresult r = process_enter_object(true, event_session(start));

	if (r != CUDA_SUCCESS)
		return r;
	return milliseconds ? event_elapsed(start, end, milliseconds) : CUDA_ERROR_INVALID_VALUE;
}

CUDA_EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
	return cuEventElapsedTime_v2(milliseconds, start, end);
}
