// Host functions: functions of the program that run in stream order. A single service thread, made
// at the first use, runs all of these; a program without such functions has no thread of the
// library. The library's own functions, which do its part of copies, have a second thread: they do
// not wait for the program's functions in other streams.

#ifndef FRMPS_CLIENT_SUBMIT_CALLBACK_H
#define FRMPS_CLIENT_SUBMIT_CALLBACK_H

#include <stdbool.h>

#include "protocol/cuda_abi.h"

struct client_stream;

/** Runs fn(user) in stream order; never after a fault. */
CUresult callback_host_function(struct client_stream *stream, CUhostFn fn, void *user);

/** As callback_host_function(), for a function of the library, which waits for nothing. */
CUresult callback_own_function(struct client_stream *stream, CUhostFn fn, void *user);

/**
 * Runs fn(handle, status, user) in stream order; after a fault as soon as possible, with the error.
 * @handle: the program's handle of the stream
 */
CUresult callback_stream(struct client_stream *stream, CUstream handle, CUstreamCallback fn, void *user);

/**
 * True if no function runs or is going to. After a fault this is true soon, unless a function does
 * not end.
 */
bool callback_is_idle(void);

#endif
