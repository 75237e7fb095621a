// Entry points: copies. Every form becomes a box with two sides (stage/box.h).

#include "client/entry/entry.h"

#include "client/graph/capture.h"
#include "client/stage/copy.h"
#include "client/state/context.h"
#include "client/state/stream.h"

static CUresult start(const struct box *box, CUstream handle, unsigned int how, bool per_thread)
{
	struct client_stream *stream;
	CUresult r = stream_resolve(handle, per_thread, &stream);

	if (r == CUDA_SUCCESS && capture_is_on(stream))
		return box_is_empty(box) ? CUDA_SUCCESS : capture_copy(box, stream, how);
	return r == CUDA_SUCCESS ? copy_box(*box, stream, how) : r;
}

static CUresult line(
	uint64_t dst, uint64_t src, size_t bytes, CUstream handle, unsigned int how, bool per_thread)
{
	struct box box = box_line(dst, src, bytes);
	CUresult r = enter_of_stream(handle);

	return r == CUDA_SUCCESS ? start(&box, handle, how, per_thread) : r;
}

#define H(pointer) ((uint64_t)(uintptr_t)(pointer))

#define TO	COPY_DST_DEVICE
#define FROM	COPY_SRC_DEVICE
#define BETWEEN (COPY_DST_DEVICE | COPY_SRC_DEVICE)

ENTRY_PAIR(cuMemcpy, _ptds, line, (CUdeviceptr dst, CUdeviceptr src, size_t n), dst, src, n, NULL, 0)
ENTRY_PAIR(cuMemcpyAsync, _ptsz, line, (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream), dst,
	src, n, stream, COPY_ASYNC)
ENTRY_PAIR(cuMemcpyDtoD_v2, _ptds, line, (CUdeviceptr dst, CUdeviceptr src, size_t n), dst, src, n, NULL,
	BETWEEN)
ENTRY_PAIR(cuMemcpyDtoDAsync_v2, _ptsz, line, (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream),
	dst, src, n, stream, BETWEEN | COPY_ASYNC)
ENTRY_PAIR(cuMemcpyDtoH_v2, _ptds, line, (void *dst, CUdeviceptr src, size_t n), H(dst), src, n, NULL, FROM)
ENTRY_PAIR(cuMemcpyDtoHAsync_v2, _ptsz, line, (void *dst, CUdeviceptr src, size_t n, CUstream stream), H(dst),
	src, n, stream, FROM | COPY_ASYNC)
ENTRY_PAIR(
	cuMemcpyHtoD_v2, _ptds, line, (CUdeviceptr dst, const void *src, size_t n), dst, H(src), n, NULL, TO)
ENTRY_PAIR(cuMemcpyHtoDAsync_v2, _ptsz, line, (CUdeviceptr dst, const void *src, size_t n, CUstream stream),
	dst, H(src), n, stream, TO | COPY_ASYNC)

/* NULL stands for the current context. */
static bool is_context(CUcontext context)
{
	return !context || context_is_live(context);
}

/* All contexts are on the same device. */
static CUresult peer(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t n,
	CUstream stream, unsigned int how, bool per_thread)
{
	CUresult r = enter_of_stream(stream);

	if (r != CUDA_SUCCESS)
		return r;
	if (!is_context(dst_context) || !is_context(src_context))
		return CUDA_ERROR_INVALID_CONTEXT;
	return line(dst, src, n, stream, how, per_thread);
}

ENTRY_PAIR(cuMemcpyPeer, _ptds, peer,
	(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t n), dst,
	dst_context, src, src_context, n, NULL, BETWEEN)
ENTRY_PAIR(cuMemcpyPeerAsync, _ptsz, peer,
	(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t n,
		CUstream stream),
	dst, dst_context, src, src_context, n, stream, BETWEEN | COPY_ASYNC)

static CUresult cuboid(const CUDA_MEMCPY3D *c, CUstream handle, unsigned int how, bool per_thread)
{
	CUresult r = enter_of_stream(handle);
	unsigned int sides;
	struct box box;

	if (r != CUDA_SUCCESS)
		return r;
	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	r = copy_describe(c, &box, &sides);
	return r == CUDA_SUCCESS ? start(&box, handle, how | sides, per_thread) : r;
}

/* Bytes of the first row of arrays: a side is an array, or memory where that is NULL. */
struct end {
	CUarray array;
	size_t offset;
	uint64_t address;
	CUmemorytype type;
};

static CUresult run(
	struct end dst, struct end src, size_t bytes, CUstream stream, unsigned int how, bool per_thread)
{
	const CUDA_MEMCPY3D copy = {
		.srcXInBytes = src.offset,
		.srcMemoryType = src.type,
		.srcHost = (const void *)(uintptr_t)src.address,
		.srcDevice = src.address,
		.srcArray = src.array,
		.dstXInBytes = dst.offset,
		.dstMemoryType = dst.type,
		.dstHost = (void *)(uintptr_t)dst.address,
		.dstDevice = dst.address,
		.dstArray = dst.array,
		.WidthInBytes = bytes,
		.Height = 1,
		.Depth = 1,
	};

	return cuboid(&copy, stream, how, per_thread);
}

#define A(array, offset) ((struct end){array, offset, 0, CU_MEMORYTYPE_ARRAY})
#define D(address)	 ((struct end){NULL, 0, address, CU_MEMORYTYPE_DEVICE})
#define P(pointer)	 ((struct end){NULL, 0, H(pointer), CU_MEMORYTYPE_HOST})

ENTRY_PAIR(cuMemcpyAtoA_v2, _ptds, run, (CUarray dst, size_t to, CUarray src, size_t from, size_t n),
	A(dst, to), A(src, from), n, NULL, 0)
ENTRY_PAIR(cuMemcpyAtoD_v2, _ptds, run, (CUdeviceptr dst, CUarray src, size_t from, size_t n), D(dst),
	A(src, from), n, NULL, 0)
ENTRY_PAIR(cuMemcpyAtoH_v2, _ptds, run, (void *dst, CUarray src, size_t from, size_t n), P(dst), A(src, from),
	n, NULL, 0)
ENTRY_PAIR(cuMemcpyAtoHAsync_v2, _ptsz, run, (void *dst, CUarray src, size_t from, size_t n, CUstream stream),
	P(dst), A(src, from), n, stream, COPY_ASYNC)
ENTRY_PAIR(cuMemcpyDtoA_v2, _ptds, run, (CUarray dst, size_t to, CUdeviceptr src, size_t n), A(dst, to),
	D(src), n, NULL, 0)
ENTRY_PAIR(cuMemcpyHtoA_v2, _ptds, run, (CUarray dst, size_t to, const void *src, size_t n), A(dst, to),
	P(src), n, NULL, 0)
ENTRY_PAIR(cuMemcpyHtoAAsync_v2, _ptsz, run,
	(CUarray dst, size_t to, const void *src, size_t n, CUstream stream), A(dst, to), P(src), n, stream,
	COPY_ASYNC)

static CUresult rectangle(const CUDA_MEMCPY2D *c, CUstream handle, unsigned int how, bool per_thread)
{
	CUDA_MEMCPY3D general;

	if (!c)
		return cuboid(NULL, handle, how, per_thread);
	general = (CUDA_MEMCPY3D){
		.srcXInBytes = c->srcXInBytes,
		.srcY = c->srcY,
		.srcMemoryType = c->srcMemoryType,
		.srcHost = c->srcHost,
		.srcDevice = c->srcDevice,
		.srcArray = c->srcArray,
		.srcPitch = c->srcPitch,
		.dstXInBytes = c->dstXInBytes,
		.dstY = c->dstY,
		.dstMemoryType = c->dstMemoryType,
		.dstHost = c->dstHost,
		.dstDevice = c->dstDevice,
		.dstArray = c->dstArray,
		.dstPitch = c->dstPitch,
		.WidthInBytes = c->WidthInBytes,
		.Height = c->Height,
		.Depth = 1,
	};
	return cuboid(&general, handle, how, per_thread);
}

ENTRY_PAIR(cuMemcpy2D_v2, _ptds, rectangle, (const CUDA_MEMCPY2D *copy), copy, NULL, 0)
ENTRY_PAIR(cuMemcpy2DUnaligned_v2, _ptds, rectangle, (const CUDA_MEMCPY2D *copy), copy, NULL, 0)
ENTRY_PAIR(cuMemcpy2DAsync_v2, _ptsz, rectangle, (const CUDA_MEMCPY2D *copy, CUstream stream), copy, stream,
	COPY_ASYNC)

ENTRY_PAIR(cuMemcpy3D_v2, _ptds, cuboid, (const CUDA_MEMCPY3D *copy), copy, NULL, 0)
ENTRY_PAIR(cuMemcpy3DAsync_v2, _ptsz, cuboid, (const CUDA_MEMCPY3D *copy, CUstream stream), copy, stream,
	COPY_ASYNC)
