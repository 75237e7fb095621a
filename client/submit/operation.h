// Words written and waited for in stream order. Addresses are checked here, so that a wrong one is
// an error of the call and not of the session. Any thread.

#ifndef FRMPS_CLIENT_SUBMIT_OPERATION_H
#define FRMPS_CLIENT_SUBMIT_OPERATION_H

#include "protocol/cuda_abi.h"

struct client_stream;

/* Operations of one call at most. */
#define OPERATION_MOST 256u

/**
 * Checks operations. CUDA_ERROR_INVALID_VALUE; CUDA_ERROR_NOT_SUPPORTED for flushes of remote
 * writes.
 */
CUresult operation_check(unsigned int count, const CUstreamBatchMemOpParams *operations);

/** Checks all operations, then submits them: in order, on one stream. */
CUresult operation_batch(
	struct client_stream *stream, unsigned int count, const CUstreamBatchMemOpParams *operations);

#endif
