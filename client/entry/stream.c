// Entry points: streams. Entry points of captures are in capture.c.

#include "client/entry/entry.h"

#include "client/graph/capture.h"
#include "client/state/activity.h"
#include "client/state/context.h"
#include "client/state/event.h"
#include "client/state/green.h"
#include "client/state/mempool.h"
#include "client/state/poolshare.h"
#include "client/stage/bounce.h"
#include "client/state/stream.h"
#include "client/state/thread.h"
#include "client/submit/callback.h"
#include "client/submit/wait.h"

CUDA_EXPORT CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
	TRACE_CALL();
	struct client_stream *made;
	CUresult r = process_enter_context();

	if (r != CUDA_SUCCESS)
		return r;
	if (!stream || (flags & ~(unsigned int)CU_STREAM_NON_BLOCKING))
		return CUDA_ERROR_INVALID_VALUE;
	r = stream_create(context_shown(), flags, priority, &made);
	if (r == CUDA_SUCCESS)
		r = activity_join(made, context_shown());
	if (r == CUDA_SUCCESS)
		*stream = stream_handle(made);
	return r;
}

CUDA_EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
	return cuStreamCreateWithPriority(stream, flags, 0);
}

CUDA_EXPORT CUresult cuStreamDestroy_v2(CUstream handle)
{
	TRACE_CALL();
	struct client_stream *stream;
	CUresult r = enter_stream(handle, false, &stream);

	if (r != CUDA_SUCCESS)
		return r;
	return stream_destroy(stream, handle);
}

CUDA_EXPORT CUresult cuStreamDestroy(CUstream handle)
{
	return cuStreamDestroy_v2(handle);
}

/* The same for calls that a host function may make. */
static CUresult enter_host(CUstream handle, bool per_thread, struct client_stream **ret_stream)
{
	bool has_context = stream_has_context(handle);
	CUresult r = process_enter_host(has_context, has_context ? stream_session(handle) : NULL);

	return r == CUDA_SUCCESS ? stream_resolve(handle, per_thread, ret_stream) : r;
}

static CUresult query(CUstream handle, bool per_thread)
{
	struct client_stream *stream;
	CUresult r = enter_host(handle, per_thread, &stream);

	if (r == CUDA_SUCCESS)
		r = capture_is_on(stream) ? capture_refuse(stream) : capture_unsafe();
	return r == CUDA_SUCCESS ? wait_query_stream(stream) : r;
}

ENTRY_PAIR(cuStreamQuery, _ptsz, query, (CUstream stream), stream)

/* In a host function: the stream may wait for that very function. */
static CUresult expect_idle(struct client_stream *stream)
{
	CUresult r = wait_query_stream(stream);

	return r == CUDA_ERROR_NOT_READY ? CUDA_ERROR_NOT_PERMITTED : r;
}

static CUresult synchronize(CUstream handle, bool per_thread)
{
	struct client_stream *stream;
	CUresult r = enter_host(handle, per_thread, &stream);

	/* A forked child has nothing to look at. */
	if (r != CUDA_SUCCESS)
		return r;
	r = capture_is_on(stream) ? capture_refuse(stream) : capture_unsafe();
	if (thread_self()->is_callbacks)
		return r == CUDA_SUCCESS ? expect_idle(stream) : r;
	if (r == CUDA_SUCCESS)
		r = wait_stream(stream);
	mempool_settle();
	poolshare_settle();
	bounce_settle();
	return r;
}

ENTRY_PAIR(cuStreamSynchronize, _ptsz, synchronize, (CUstream stream), stream)

static CUresult wait_event(CUstream handle, CUevent event, unsigned int flags, bool per_thread)
{
	struct client_stream *stream;
	CUresult r = enter_stream(handle, per_thread, &stream);

	if (r != CUDA_SUCCESS)
		return r;
	/* An external wait becomes a node of a graph. */
	if (flags == CU_EVENT_WAIT_EXTERNAL)
		return capture_is_on(stream) ? capture_external(stream, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event)
					     : CUDA_ERROR_ILLEGAL_STATE;
	if (flags != CU_EVENT_WAIT_DEFAULT)
		return CUDA_ERROR_INVALID_VALUE;
	r = event_wait(event, stream);
	return r == CUDA_ERROR_INVALID_HANDLE && capture_is_on(stream) ? capture_fail(stream, r) : r;
}

ENTRY_PAIR(cuStreamWaitEvent, _ptsz, wait_event, (CUstream stream, CUevent event, unsigned int flags), stream,
	event, flags)

static CUresult get_flags(CUstream handle, unsigned int *flags, bool per_thread)
{
	struct client_stream *stream;
	CUresult r = enter_facts(handle, per_thread, &stream);

	if (r == CUDA_SUCCESS && !flags)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*flags = stream->flags;
	return r;
}

ENTRY_PAIR(cuStreamGetFlags, _ptsz, get_flags, (CUstream stream, unsigned int *flags), stream, flags)

static CUresult get_priority(CUstream handle, int *priority, bool per_thread)
{
	struct client_stream *stream;
	CUresult r = enter_facts(handle, per_thread, &stream);

	if (r == CUDA_SUCCESS && !priority)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*priority = stream->priority;
	return r;
}

ENTRY_PAIR(cuStreamGetPriority, _ptsz, get_priority, (CUstream stream, int *priority), stream, priority)

static CUresult get_id(CUstream handle, unsigned long long *id, bool per_thread)
{
	struct client_stream *stream;
	CUresult r = enter_facts(handle, per_thread, &stream);

	if (r == CUDA_SUCCESS && !id)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*id = stream->id;
	return r;
}

ENTRY_PAIR(cuStreamGetId, _ptsz, get_id, (CUstream stream, unsigned long long *id), stream, id)

/* Default streams belong to the current context. */
static CUresult get_contexts(CUstream handle, CUcontext *context, CUgreenCtx *green, bool per_thread)
{
	struct client_stream *stream;
	CUresult r = enter_facts(handle, per_thread, &stream);

	if (r == CUDA_SUCCESS && !context)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	*context = stream->context ? stream->context : context_current();
	if (green)
		*green = green_handle(stream->green);
	return CUDA_SUCCESS;
}

/* A green context in the place of its primary context. */
static CUresult get_context(CUstream handle, CUcontext *context, bool per_thread)
{
	CUgreenCtx green;
	CUresult r = get_contexts(handle, context, &green, per_thread);

	if (r == CUDA_SUCCESS && green)
		*context = green_context(green);
	return r;
}

ENTRY_PAIR(cuStreamGetCtx, _ptsz, get_context, (CUstream stream, CUcontext *context), stream, context)
ENTRY_PAIR(cuStreamGetCtx_v2, _ptsz, get_contexts, (CUstream stream, CUcontext *context, CUgreenCtx *green),
	stream, context, green)

CUDA_EXPORT CUresult cuStreamGetGreenCtx(CUstream handle, CUgreenCtx *green)
{
	struct client_stream *stream;
	CUresult r = enter_stream(handle, false, &stream);

	if (r == CUDA_SUCCESS && !green)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*green = green_handle(stream->green);
	return r;
}

static CUresult get_device(CUstream handle, CUdevice *device, bool per_thread)
{
	CUcontext context;
	CUresult r = get_context(handle, &context, per_thread);

	if (r == CUDA_SUCCESS && !device)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		*device = context_device(context);
	return r;
}

ENTRY_PAIR(cuStreamGetDevice, _ptsz, get_device, (CUstream stream, CUdevice *device), stream, device)

static CUresult host_function(CUstream handle, CUhostFn fn, void *user, bool per_thread)
{
	struct client_stream *stream;
	CUresult r = enter_stream(handle, per_thread, &stream);

	if (r != CUDA_SUCCESS)
		return r;
	if (!fn)
		return CUDA_ERROR_INVALID_VALUE;
	return capture_is_on(stream) ? capture_host(stream, fn, user)
				     : callback_host_function(stream, fn, user);
}

ENTRY_PAIR(
	cuLaunchHostFunc, _ptsz, host_function, (CUstream stream, CUhostFn fn, void *user), stream, fn, user)

static CUresult add_callback(
	CUstream handle, CUstreamCallback fn, void *user, unsigned int flags, bool per_thread)
{
	struct client_stream *stream;
	CUresult r = enter_stream(handle, per_thread, &stream);

	if (r != CUDA_SUCCESS)
		return r;
	if (capture_is_on(stream))
		return capture_refuse(stream);
	return fn && flags == 0 ? callback_stream(stream, handle, fn, user) : CUDA_ERROR_INVALID_VALUE;
}

ENTRY_PAIR(cuStreamAddCallback, _ptsz, add_callback,
	(CUstream stream, CUstreamCallback fn, void *user, unsigned int flags), stream, fn, user, flags)
