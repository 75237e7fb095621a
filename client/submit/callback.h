// Host functions: functions of the program that run in stream order. One service thread, made at
// the first use, runs them all; a program that uses none has no thread of the shim. The library's
// own, which do its part of copies, have another one: they do not wait for the program's in other
// streams.

#ifndef FRMPS_CLIENT_SUBMIT_CALLBACK_H
#define FRMPS_CLIENT_SUBMIT_CALLBACK_H

#include <stdbool.h>

#include "protocol/cuda_abi.h"

struct client_stream;

/** Runs fn(user) in stream order; not at all after a fault. */
CUresult callback_host_function(struct client_stream *stream, CUhostFn fn, void *user);

/** The same for a function of the library's, which waits for nothing. */
CUresult callback_own_function(struct client_stream *stream, CUhostFn fn, void *user);

/**
 * Runs fn(handle, status, user) in stream order; after a fault as soon as possible, with the error.
 * @handle: the stream as the program named it
 */
CUresult callback_stream(struct client_stream *stream, CUstream handle, CUstreamCallback fn, void *user);

/** Whether none of all these runs or will. Soon so after a fault, unless one of them does not
 * end. */
bool callback_is_idle(void);

#endif
