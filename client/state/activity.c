// See activity.h. Runs on the program's threads.

#include "client/state/activity.h"

#include <pthread.h>

#include "client/graph/capture.h"
#include "client/state/context.h"
#include "client/state/context_table.h"
#include "client/state/event.h"
#include "client/state/session.h"
#include "client/state/stream.h"
#include "client/submit/crossing.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the contexts' recorders */

static CUresult recorder_of(struct context *context, struct client_stream **ret_recorder)
{
	CUresult r = CUDA_SUCCESS;

	pthread_mutex_lock(&lock);
	if (!context->recorder)
		r = stream_create(context_handle(context), CU_STREAM_NON_BLOCKING, 0, &context->recorder);
	*ret_recorder = context->recorder;
	pthread_mutex_unlock(&lock);
	return r;
}

/* Ends the captures of a context's own streams. */
static CUresult refuse_captures(CUcontext context)
{
	uint32_t used = stream_slots_used();
	CUresult r = CUDA_SUCCESS;

	for (uint32_t slot = 0; slot < used; ++slot) {
		struct client_stream *stream = stream_slot(slot);
		CUcontext green = stream->green;

		if (stream->session == session_self() && capture_is_on(stream) &&
			(green ? green == context : stream_is_in(stream, context)))
			r = capture_refuse(stream);
	}
	return r;
}

/* @visit: for each stream of the context. A stream that was destroyed just now counts as done. */
static CUresult each_stream(
	CUcontext context, void *with, CUresult (*visit)(struct client_stream *stream, void *with))
{
	uint32_t used = stream_slots_used();
	CUresult r = CUDA_SUCCESS;

	for (uint32_t slot = 0; r == CUDA_SUCCESS && slot < used; ++slot) {
		struct client_stream *stream = stream_slot(slot);

		if (stream->session != session_self() || !stream_is_in(stream, context))
			continue;
		r = visit(stream, with);
		if (r != CUDA_SUCCESS && !stream_handle(stream))
			r = CUDA_SUCCESS;
	}
	return r;
}

static CUresult visit_record(struct client_stream *stream, void *recorder)
{
	return crossing_await(recorder, stream, word_acquire(&stream->last));
}

static CUresult visit_wait(struct client_stream *stream, void *event)
{
	return stream_handle(stream) ? event_wait(event, stream) : CUDA_SUCCESS;
}

CUresult activity_record(CUcontext handle, CUevent event)
{
	struct client_stream *recorder;
	CUresult r;

	if (event_context(event) != context_owner(handle))
		return CUDA_ERROR_INVALID_HANDLE;
	r = refuse_captures(handle);
	if (r == CUDA_SUCCESS)
		r = recorder_of(context_resolve(handle), &recorder);
	if (r == CUDA_SUCCESS)
		r = each_stream(handle, recorder, visit_record);
	return r == CUDA_SUCCESS ? event_record(event, recorder) : r;
}

CUresult activity_wait(CUcontext handle, CUevent event)
{
	struct context *context = context_resolve(handle);
	struct client_stream *recorder;
	CUresult r = event_refuse_captured(event);

	if (r == CUDA_SUCCESS)
		r = refuse_captures(handle);
	if (r == CUDA_SUCCESS)
		r = recorder_of(context, &recorder);
	if (r == CUDA_SUCCESS)
		r = each_stream(handle, event, visit_wait);
	if (r == CUDA_SUCCESS)
		word_set(&context->awaited, word_acquire(&recorder->last));
	return r;
}

CUresult activity_join(struct client_stream *stream, CUcontext handle)
{
	struct context *context = context_resolve(handle), *owner = context_resolve(context_owner(handle));
	CUresult r = crossing_await(stream, context->recorder, word_relaxed(&context->awaited));

	return r == CUDA_SUCCESS && owner != context
		       ? crossing_await(stream, owner->recorder, word_relaxed(&owner->awaited))
		       : r;
}
