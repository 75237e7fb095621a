// Entry points: writes of words, and waits for words, in stream order. A single operation is a
// batch of one.

#include "client/entry/entry.h"

#include "client/state/stream.h"
#include "client/submit/operation.h"

static CUresult batch(CUstream handle, unsigned int count, const CUstreamBatchMemOpParams *operations,
	unsigned int flags, bool per_thread)
{
	struct client_stream *stream;
	CUresult r = enter_stream(handle, per_thread, &stream);

	if (r == CUDA_SUCCESS && flags != 0)
		r = CUDA_ERROR_INVALID_VALUE;
	return r == CUDA_SUCCESS ? operation_batch(stream, count, operations) : r;
}

static CUresult wait_value(CUstreamBatchMemOpType type, CUstream stream, CUdeviceptr address, uint64_t value,
	unsigned int flags, bool per_thread)
{
	CUstreamBatchMemOpParams operation = {
		.waitValue = {.operation = type, .address = address, .value64 = value, .flags = flags}};

	return batch(stream, 1, &operation, 0, per_thread);
}

static CUresult write_value(CUstreamBatchMemOpType type, CUstream stream, CUdeviceptr address, uint64_t value,
	unsigned int flags, bool per_thread)
{
	CUstreamBatchMemOpParams operation = {
		.writeValue = {.operation = type, .address = address, .value64 = value, .flags = flags}};

	return batch(stream, 1, &operation, 0, per_thread);
}

#define VALUE_ENTRY(name, body, type, bits)                                                                  \
	ENTRY_PAIR(name, _ptsz, body,                                                                        \
		(CUstream stream, CUdeviceptr address, uint##bits##_t value, unsigned int flags), type,      \
		stream, address, value, flags)

VALUE_ENTRY(cuStreamWaitValue32_v2, wait_value, CU_STREAM_MEM_OP_WAIT_VALUE_32, 32)
VALUE_ENTRY(cuStreamWaitValue64_v2, wait_value, CU_STREAM_MEM_OP_WAIT_VALUE_64, 64)
VALUE_ENTRY(cuStreamWriteValue32_v2, write_value, CU_STREAM_MEM_OP_WRITE_VALUE_32, 32)
VALUE_ENTRY(cuStreamWriteValue64_v2, write_value, CU_STREAM_MEM_OP_WRITE_VALUE_64, 64)

ENTRY_PAIR(cuStreamBatchMemOp_v2, _ptsz, batch,
	(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *parameters, unsigned int flags),
	stream, count, parameters, flags)
