// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Entry points: words written and waited for in stream order. Addresses are checked here, so that a wrong one
// is an error of the call and not of the session.

#include "client/entry/entry.h"

#include "client/stage/copy.h"
#include "client/state/stream.h"
#include "client/submit/submit.h"

#define WAIT_FLAGS (CU_STREAM_WAIT_VALUE_NOR | CU_STREAM_WAIT_VALUE_FLUSH)
#define BATCH_MOST 256

/* One operation, checked. */
struct operation {
	enum frmps_op op; /* WAIT_VALUE, WRITE_VALUE, or PAD for nothing to do */
	uint64_t address, value;
	uint32_t bytes, flags;
};

static CUresult check(const struct operation *o)
{
	unsigned int known = o->op == FRMPS_OP_WAIT_VALUE ? (unsigned int)WAIT_FLAGS
							  : CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
	struct copy_side side;
	CUresult r;

	if (o->address == 0 || o->address % o->bytes != 0 || (o->flags & ~known))
		return CUDA_ERROR_INVALID_VALUE;
	r = copy_classify(o->address, o->bytes, &side);
	return r == CUDA_SUCCESS && side.place == COPY_ORDINARY ? CUDA_ERROR_INVALID_VALUE : r;
}

/* Both bodies have the same fields in the same places. */
_Static_assert(sizeof(struct frmps_wait_value) == sizeof(struct frmps_write_value), "written as one");

static CUresult send(const struct operation *o, struct client_stream *stream)
{
	struct submit submit;
	CUresult r = submit_begin(stream, o->op, sizeof(struct frmps_wait_value), &submit);

	if (r != CUDA_SUCCESS)
		return r;
	if (o->op == FRMPS_OP_WAIT_VALUE)
		*(struct frmps_wait_value *)submit.body = (struct frmps_wait_value){
			.address = o->address, .value = o->value, .bytes = o->bytes, .flags = o->flags};
	else
		*(struct frmps_write_value *)submit.body = (struct frmps_write_value){
			.address = o->address, .value = o->value, .bytes = o->bytes, .flags = o->flags};
	submit_commit(&submit);
	return CUDA_SUCCESS;
}

static CUresult one(enum frmps_op op, uint32_t bytes, CUstream handle, CUdeviceptr address, uint64_t value,
	unsigned int flags, bool per_thread)
{
	struct operation o = {.op = op, .address = address, .value = value, .bytes = bytes, .flags = flags};
	struct client_stream *stream;
	CUresult r = process_enter_context();

	if (r == CUDA_SUCCESS)
		r = stream_resolve(handle, per_thread, &stream);
	if (r == CUDA_SUCCESS)
		r = check(&o);
	return r == CUDA_SUCCESS ? send(&o, stream) : r;
}

#define VALUE_ENTRY(name, op, bits)                                                                          \
	ENTRY_PAIR(name, _ptsz, one,                                                                         \
		(CUstream stream, CUdeviceptr address, uint##bits##_t value, unsigned int flags), op,        \
		bits / 8, stream, address, value, flags)

VALUE_ENTRY(cuStreamWaitValue32, FRMPS_OP_WAIT_VALUE, 32)
VALUE_ENTRY(cuStreamWaitValue32_v2, FRMPS_OP_WAIT_VALUE, 32)
VALUE_ENTRY(cuStreamWaitValue64, FRMPS_OP_WAIT_VALUE, 64)
VALUE_ENTRY(cuStreamWaitValue64_v2, FRMPS_OP_WAIT_VALUE, 64)
VALUE_ENTRY(cuStreamWriteValue32, FRMPS_OP_WRITE_VALUE, 32)
VALUE_ENTRY(cuStreamWriteValue32_v2, FRMPS_OP_WRITE_VALUE, 32)
VALUE_ENTRY(cuStreamWriteValue64, FRMPS_OP_WRITE_VALUE, 64)
VALUE_ENTRY(cuStreamWriteValue64_v2, FRMPS_OP_WRITE_VALUE, 64)

static CUresult parse(const CUstreamBatchMemOpParams *p, struct operation *ret_operation)
{
	struct operation o = {.op = FRMPS_OP_PAD, .bytes = 4};

	switch (p->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_64:
		o.bytes = 8;
		/* fallthrough */
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
		o.op = FRMPS_OP_WAIT_VALUE;
		o.address = p->waitValue.address;
		o.value = o.bytes == 8 ? p->waitValue.value64 : p->waitValue.value;
		o.flags = p->waitValue.flags;
		break;
	case CU_STREAM_MEM_OP_WRITE_VALUE_64:
		o.bytes = 8;
		/* fallthrough */
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
		o.op = FRMPS_OP_WRITE_VALUE;
		o.address = p->writeValue.address;
		o.value = o.bytes == 8 ? p->writeValue.value64 : p->writeValue.value;
		o.flags = p->writeValue.flags;
		break;
	case CU_STREAM_MEM_OP_BARRIER:
		/* The operations of a stream are ordered and visible to each other anyway. */
		break;
	case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret_operation = o;
	return o.op == FRMPS_OP_PAD ? CUDA_SUCCESS : check(&o);
}

/* All operations are checked before the first is sent. */
static CUresult batch(CUstream handle, unsigned int count, CUstreamBatchMemOpParams *parameters,
	unsigned int flags, bool per_thread)
{
	struct operation operations[BATCH_MOST];
	struct client_stream *stream;
	CUresult r = process_enter_context();

	if (r == CUDA_SUCCESS)
		r = stream_resolve(handle, per_thread, &stream);
	if (r == CUDA_SUCCESS && (count > BATCH_MOST || flags != 0 || (count > 0 && !parameters)))
		r = CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; r == CUDA_SUCCESS && i < count; ++i)
		r = parse(&parameters[i], &operations[i]);
	for (unsigned int i = 0; r == CUDA_SUCCESS && i < count; ++i)
		if (operations[i].op != FRMPS_OP_PAD)
			r = send(&operations[i], stream);
	return r;
}

#define BATCH_ENTRY(name)                                                                                    \
	ENTRY_PAIR(name, _ptsz, batch,                                                                       \
		(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *parameters,                  \
			unsigned int flags),                                                                 \
		stream, count, parameters, flags)

BATCH_ENTRY(cuStreamBatchMemOp)
BATCH_ENTRY(cuStreamBatchMemOp_v2)
