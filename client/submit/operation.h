// Words written and waited for in stream order. The library checks addresses, so that an invalid
// address is an error of the call and not of the session. Any thread.

#ifndef FRMPS_CLIENT_SUBMIT_OPERATION_H
#define FRMPS_CLIENT_SUBMIT_OPERATION_H

#include "protocol/cuda_abi.h"

struct client_stream;

/* Most operations of a call. */
#define OPERATION_MOST 256u

/**
 * Checks operations. CUDA_ERROR_INVALID_VALUE; CUDA_ERROR_NOT_SUPPORTED for flushes of remote
 * writes.
 */
CUresult operation_check(unsigned int count, const CUstreamBatchMemOpParams *operations);

/** Checks all operations, then submits these: in order, on a single stream. */
CUresult operation_batch(
	struct client_stream *stream, unsigned int count, const CUstreamBatchMemOpParams *operations);

#endif
