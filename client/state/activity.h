// Events of all work in a context at once: an event that is recorded behind all of it, and an event
// that all later work waits for. Both go through a stream of the context that the program does not
// see. Any thread; the calling thread works in the context's session.

#ifndef FRMPS_CLIENT_STATE_ACTIVITY_H
#define FRMPS_CLIENT_STATE_ACTIVITY_H

#include "protocol/cuda_abi.h"

struct client_stream;

/**
 * Records an event behind all work of a context so far; of a primary context: with that of its
 * green contexts.
 * Return: CUDA_ERROR_INVALID_HANDLE: no event of this context;
 * CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: streams of the context capture, which ends; errors of
 * stream_create()
 */
CUresult activity_record(CUcontext context, CUevent event);

/** Lets all later work of a context wait for an event. Return: as activity_record();
 * CUDA_ERROR_CAPTURED_EVENT */
CUresult activity_wait(CUcontext context, CUevent event);

/** Lets a new stream wait as its context does. @context: as the program sees it */
CUresult activity_join(struct client_stream *stream, CUcontext context);

#endif
