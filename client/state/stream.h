// Streams of this program: each has a slot of its session's stream table (stream_slot.h). A handle
// is a number made of the slot and a count of its uses, so the handle of a destroyed stream is
// refused, not followed.
//
// The first slot of a session is the legacy default stream of its contexts. A slot is reused, by
// the same session, once its last command is done.

#ifndef FRMPS_CLIENT_STATE_STREAM_H
#define FRMPS_CLIENT_STATE_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "client/state/stream_slot.h"
#include "protocol/cuda_abi.h"

/* Of a session; guarded by the table's lock, but for `legacy`, which is constant. */
struct streams {
	struct client_stream *legacy; /* the default stream of its contexts */
	struct client_stream *free;
	struct client_stream *closed; /* maybe with work in flight */
};

/** Makes the legacy default stream. Called by session start. Return: false: no slot is left. */
bool stream_start(void);

/**
 * The stream of a handle. The calling thread works in its session: the default streams are those of
 * the session.
 * @per_thread: handle 0 is the calling thread's default stream; else the legacy stream
 * Return: CUDA_SUCCESS, CUDA_ERROR_INVALID_HANDLE (no stream, or the thread's default stream in a
 * green context), CUDA_ERROR_CONTEXT_IS_DESTROYED (its green
 * context), CUDA_ERROR_OUT_OF_MEMORY (the call makes a thread's default stream)
 */
CUresult stream_resolve(CUstream handle, bool per_thread, struct client_stream **ret_stream);

/* Place of the slot in a handle: handles look like aligned pointers. */
#define STREAM_HANDLE_SHIFT 4

/* The slot of a handle, or of any other value. */
static inline struct client_stream *stream_at(CUstream handle)
{
	return stream_slot(((uint64_t)(uintptr_t)handle >> STREAM_HANDLE_SHIFT) % SHM_STREAMS);
}

/** The stream that the program made; NULL for any value but its handle. */
static inline struct client_stream *stream_find(CUstream handle)
{
	uint64_t value = (uint64_t)(uintptr_t)handle;
	struct client_stream *stream = stream_at(handle);

	return word_acquire(&stream->handle) == value ? stream : NULL;
}

/** The session of a stream's handle; NULL for any other value. */
static inline struct session *stream_session(CUstream handle)
{
	const struct client_stream *stream = stream_find(handle);

	return stream ? stream->session : NULL;
}

/**
 * A new stream of the calling thread's session. Priority is clamped. CUDA_ERROR_OUT_OF_MEMORY when
 * all slots are in use.
 * @context: as the program sees it
 */
CUresult stream_create(
	CUcontext context, uint32_t flags, int32_t priority, struct client_stream **ret_stream);

/** Commands from now on have this priority, clamped as above. */
void stream_set_priority(struct client_stream *stream, int32_t priority);

/** The default stream of a green context that begins: as stream_create(), but the stream's
 * multiprocessors are ready at the return. */
CUresult stream_create_default(CUcontext green, struct client_stream **ret_stream);

/** Ends the streams of a green context. Their handles are told apart from others that are not valid
 * (stream_resolve()). */
void stream_release_green(CUcontext green);

/**
 * Destroys the stream with this handle; its work continues. CUDA_ERROR_INVALID_HANDLE for default
 * streams and the second time: another stream may have its slot by then.
 */
CUresult stream_destroy(struct client_stream *stream, CUstream handle);

/** Destroys all streams of a context, which is not green. */
void stream_release_context(CUcontext context);

#endif
