// See operation.h. No state.

#include "client/submit/operation.h"

#include "client/graph/capture.h"
#include "client/stage/copy.h"
#include "client/submit/submit.h"

#define WAIT_FLAGS (CU_STREAM_WAIT_VALUE_NOR | CU_STREAM_WAIT_VALUE_FLUSH)

/* A checked operation. */
struct operation {
	enum frmps_op op; /* WAIT_VALUE, WRITE_VALUE, or PAD for nothing to do */
	uint64_t address, value;
	uint32_t bytes, flags;
};

/* Checks an operation, and converts the address to the device's. */
static CUresult check(struct operation *o)
{
	unsigned int known = o->op == FRMPS_OP_WAIT_VALUE ? (unsigned int)WAIT_FLAGS
							  : CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
	struct copy_side side;
	CUresult r;

	if (o->address == 0 || o->address % o->bytes != 0 || (o->flags & ~known))
		return CUDA_ERROR_INVALID_VALUE;
	r = copy_classify(o->address, o->bytes, &side);
	if (r != CUDA_SUCCESS)
		return r;
	if (!copy_reaches(&side))
		return CUDA_ERROR_INVALID_VALUE;
	o->address += side.shift;
	return CUDA_SUCCESS;
}

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
		if (p->memoryBarrier.flags > CU_STREAM_MEMORY_BARRIER_TYPE_GPU)
			return CUDA_ERROR_INVALID_VALUE;
		break;
	case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
		return CUDA_ERROR_NOT_SUPPORTED;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	*ret_operation = o;
	return o.op == FRMPS_OP_PAD ? CUDA_SUCCESS : check(ret_operation);
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

CUresult operation_check(unsigned int count, const CUstreamBatchMemOpParams *operations)
{
	struct operation operation;
	CUresult r = count > OPERATION_MOST || (count > 0 && !operations) ? CUDA_ERROR_INVALID_VALUE
									  : CUDA_SUCCESS;

	for (unsigned int i = 0; r == CUDA_SUCCESS && i < count; ++i)
		r = parse(&operations[i], &operation);
	return r;
}

CUresult operation_batch(
	struct client_stream *stream, unsigned int count, const CUstreamBatchMemOpParams *operations)
{
	struct operation operation;
	CUresult r = operation_check(count, operations);

	if (r == CUDA_SUCCESS && capture_is_on(stream))
		return capture_batch(stream, count, operations);
	for (unsigned int i = 0; r == CUDA_SUCCESS && i < count; ++i) {
		r = parse(&operations[i], &operation);
		if (r == CUDA_SUCCESS && operation.op != FRMPS_OP_PAD)
			r = send(&operation, stream);
	}
	return r;
}
