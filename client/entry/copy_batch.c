// Entry points: several copies in a call. The driver may reorder the copies; the library makes each
// as if it were a call of its own, in the batch's order. So every access order of sources holds
// that a program can ask for, except the order for sources that may change as soon as the call
// returns: pinned memory is read later, so such a call waits for its copies.
//
// The library checks the whole list before the stream gets any of the copies.

#include "client/entry/entry.h"

#include "client/state/device.h"
#include "client/state/stream.h"
#include "client/submit/wait.h"

/* A batch needs a stream that is not the legacy stream and does not capture. */
static CUresult enter(CUstream handle, bool per_thread, struct client_stream **ret_stream)
{
	CUresult r = enter_of_stream(handle);

	if (r != CUDA_SUCCESS)
		return r;
	if (handle == CU_STREAM_LEGACY || (!handle && !per_thread))
		return CUDA_ERROR_INVALID_VALUE;
	r = stream_resolve(handle, per_thread, ret_stream);
	if (r == CUDA_SUCCESS && capture_is_on(*ret_stream))
		r = capture_refuse(*ret_stream);
	return r;
}

/* The library knows where memory lies; a hint is only checked to be a place. */
static bool is_hint(const CUmemLocation *hint)
{
	switch (hint->type) {
	case CU_MEM_LOCATION_TYPE_INVALID:
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		return true;
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return device_get(hint->id) != NULL;
	default:
		return false;
	}
}

static bool is_order(CUmemcpySrcAccessOrder order, unsigned int flags)
{
	return (int)order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY &&
	       !(flags & ~(unsigned int)CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE);
}

/* Attributes apply to the copies from their index to the next attribute's index. */
static bool are_attributes(
	const CUmemcpyAttributes *attributes, const size_t *first, size_t number, size_t count)
{
	if (!attributes || !first || number == 0 || number > count || first[0] != 0)
		return false;
	for (size_t i = 0; i < number; ++i)
		if (!is_order(attributes[i].srcAccessOrder, attributes[i].flags) ||
			!is_hint(&attributes[i].srcLocHint) || !is_hint(&attributes[i].dstLocHint) ||
			first[i] >= count || (i > 0 && first[i] <= first[i - 1]))
			return false;
	return true;
}

/* True if a source may change once the call has returned. */
static bool any_is_read_at_once(const CUmemcpyAttributes *attributes, size_t number)
{
	for (size_t i = 0; i < number; ++i)
		if (attributes[i].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL)
			return true;
	return false;
}

static CUresult lines(CUdeviceptr *dst, CUdeviceptr *src, size_t *bytes, size_t count,
	CUmemcpyAttributes *attributes, size_t *first, size_t number, CUstream handle, bool per_thread)
{
	struct client_stream *stream;
	CUresult r = enter(handle, per_thread, &stream);

	if (r != CUDA_SUCCESS)
		return r;
	if (!dst || !src || !bytes || count == 0 || !are_attributes(attributes, first, number, count))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; ++i)
		if (!dst[i] || !src[i] || bytes[i] == 0)
			return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count && r == CUDA_SUCCESS; ++i)
		r = per_thread ? cuMemcpyAsync_ptsz(dst[i], src[i], bytes[i], handle)
			       : cuMemcpyAsync(dst[i], src[i], bytes[i], handle);
	if (r == CUDA_SUCCESS && any_is_read_at_once(attributes, number))
		r = wait_stream(stream);
	return r;
}

ENTRY_PAIR(cuMemcpyBatchAsync_v2, _ptsz, lines,
	(CUdeviceptr * dst, CUdeviceptr *src, size_t *bytes, size_t count, CUmemcpyAttributes *attributes,
		size_t *first, size_t number, CUstream stream),
	dst, src, bytes, count, attributes, first, number, stream)

/* The form of 12.8 has an output for the index of the failed copy; SIZE_MAX: not known. */
static CUresult lines_failing(CUdeviceptr *dst, CUdeviceptr *src, size_t *bytes, size_t count,
	CUmemcpyAttributes *attributes, size_t *first, size_t number, size_t *fail, CUstream stream,
	bool per_thread)
{
	CUresult r = lines(dst, src, bytes, count, attributes, first, number, stream, per_thread);

	if (r != CUDA_SUCCESS && fail)
		*fail = SIZE_MAX;
	return r;
}

ENTRY_PAIR(cuMemcpyBatchAsync, _ptsz, lines_failing,
	(CUdeviceptr * dst, CUdeviceptr *src, size_t *bytes, size_t count, CUmemcpyAttributes *attributes,
		size_t *first, size_t number, size_t *fail, CUstream stream),
	dst, src, bytes, count, attributes, first, number, fail, stream)

/* ---- boxes ---- */

struct side {
	CUmemorytype type;
	CUdeviceptr address;
	CUarray array;
	size_t x, y, z, pitch, height;
};

/* A row or layer without a length is as long as the part that the copy reads or writes. */
static bool read_side(const CUmemcpy3DOperand *operand, const CUextent3D *extent, struct side *ret_side)
{
	size_t row = operand->op.ptr.rowLength, layer = operand->op.ptr.layerHeight;

	if (operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
		*ret_side = (struct side){.type = CU_MEMORYTYPE_ARRAY,
			.array = operand->op.array.array,
			.x = operand->op.array.offset.x,
			.y = operand->op.array.offset.y,
			.z = operand->op.array.offset.z};
		return true;
	}
	*ret_side = (struct side){.type = CU_MEMORYTYPE_UNIFIED,
		.address = operand->op.ptr.ptr,
		.pitch = row ? row : extent->width,
		.height = layer ? layer : extent->height};
	return operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER && operand->op.ptr.ptr &&
	       is_hint(&operand->op.ptr.locHint) && ret_side->pitch >= extent->width &&
	       ret_side->height >= extent->height;
}

/* Lengths of a batch are in elements of the array that takes part, in bytes without an array. */
static bool read_box(const CUDA_MEMCPY3D_BATCH_OP *op, CUDA_MEMCPY3D *ret_copy)
{
	struct side src, dst;

	if (!op->extent.width || !op->extent.height || !op->extent.depth ||
		!is_order(op->srcAccessOrder, op->flags) || !read_side(&op->src, &op->extent, &src) ||
		!read_side(&op->dst, &op->extent, &dst))
		return false;
	*ret_copy = (CUDA_MEMCPY3D){
		.srcMemoryType = src.type,
		.srcDevice = src.address,
		.srcArray = src.array,
		.srcXInBytes = src.x,
		.srcY = src.y,
		.srcZ = src.z,
		.srcPitch = src.pitch,
		.srcHeight = src.height,
		.dstMemoryType = dst.type,
		.dstDevice = dst.address,
		.dstArray = dst.array,
		.dstXInBytes = dst.x,
		.dstY = dst.y,
		.dstZ = dst.z,
		.dstPitch = dst.pitch,
		.dstHeight = dst.height,
		.WidthInBytes = op->extent.width,
		.Height = op->extent.height,
		.Depth = op->extent.depth,
	};
	return true;
}

static bool has_array(const CUDA_MEMCPY3D_BATCH_OP *op)
{
	return op->src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY || op->dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY;
}

static CUresult check_boxes(const CUDA_MEMCPY3D_BATCH_OP *ops, size_t count)
{
	CUDA_MEMCPY3D copy;

	for (size_t i = 0; i < count; ++i)
		if (!read_box(&ops[i], &copy))
			return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; ++i)
		if (has_array(&ops[i]))
			return CUDA_ERROR_NOT_SUPPORTED;
	return CUDA_SUCCESS;
}

static CUresult boxes(
	size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, unsigned long long flags, CUstream handle, bool per_thread)
{
	struct client_stream *stream;
	CUresult r = enter(handle, per_thread, &stream);
	bool at_once = false;

	if (r == CUDA_SUCCESS && (!ops || count == 0 || flags))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = check_boxes(ops, count);
	for (size_t i = 0; i < count && r == CUDA_SUCCESS; ++i) {
		CUDA_MEMCPY3D copy;

		if (!read_box(&ops[i], &copy))
			return CUDA_ERROR_INVALID_VALUE;
		at_once |= ops[i].srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
		r = per_thread ? cuMemcpy3DAsync_v2_ptsz(&copy, handle) : cuMemcpy3DAsync_v2(&copy, handle);
	}
	return r == CUDA_SUCCESS && at_once ? wait_stream(stream) : r;
}

ENTRY_PAIR(cuMemcpy3DBatchAsync_v2, _ptsz, boxes,
	(size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, unsigned long long flags, CUstream stream), count, ops,
	flags, stream)

static CUresult boxes_failing(size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, size_t *fail,
	unsigned long long flags, CUstream stream, bool per_thread)
{
	CUresult r = boxes(count, ops, flags, stream, per_thread);

	if (r != CUDA_SUCCESS && fail)
		*fail = SIZE_MAX;
	return r;
}

ENTRY_PAIR(cuMemcpy3DBatchAsync, _ptsz, boxes_failing,
	(size_t count, CUDA_MEMCPY3D_BATCH_OP *ops, size_t *fail, unsigned long long flags, CUstream stream),
	count, ops, fail, flags, stream)
