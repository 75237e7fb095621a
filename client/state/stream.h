// Streams of this program: each has a slot of the session's stream table (stream_slot.h). A handle
// is a number made of the slot and a count of its uses, so a handle of a destroyed stream is
// refused, not followed.
//
// Slot 0 is the legacy default stream of the process. Slots are taken from the lowest free one and
// used again once their last command is done.

#ifndef FRMPS_CLIENT_STATE_STREAM_H
#define FRMPS_CLIENT_STATE_STREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "client/state/stream_slot.h"
#include "protocol/cuda_abi.h"

/**
 * The stream behind a handle of the program.
 * @per_thread: what handle 0 means: the calling thread's default stream, or the legacy one
 * Return: CUDA_SUCCESS, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_OUT_OF_MEMORY (a thread's default
 * stream is made here)
 */
CUresult stream_resolve(CUstream handle, bool per_thread, struct client_stream **ret_stream);

/** A new stream. Priority is clamped. CUDA_ERROR_OUT_OF_MEMORY when all slots are in use. */
CUresult stream_create(
	CUcontext context, uint32_t flags, int32_t priority, struct client_stream **ret_stream);

/** Ends the stream that has this handle; its work goes on. CUDA_ERROR_INVALID_HANDLE for default
 * streams and the second time: another stream may have its place by then. */
CUresult stream_destroy(struct client_stream *stream, CUstream handle);

/** Ends every stream of a context. */
void stream_release_context(CUcontext context);

#endif
