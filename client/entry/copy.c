// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Entry points: copies. Every form becomes a box with two sides (stage/box.h).

#include "client/entry/entry.h"

#include "client/stage/copy.h"
#include "client/state/context.h"
#include "client/state/stream.h"

static CUresult start(const struct box *box, CUstream handle, unsigned int how, bool per_thread)
{
	struct client_stream *stream;
	CUresult r = stream_resolve(handle, per_thread, &stream);

	return r == CUDA_SUCCESS ? copy_box(*box, stream, how) : r;
}

static CUresult line(
	uint64_t dst, uint64_t src, size_t bytes, CUstream handle, unsigned int how, bool per_thread)
{
	struct box box = box_line(dst, src, bytes);
	CUresult r = process_enter_context();

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

/* All contexts are on the one device. */
static CUresult peer(CUdeviceptr dst, CUcontext dst_context, CUdeviceptr src, CUcontext src_context, size_t n,
	CUstream stream, unsigned int how, bool per_thread)
{
	CUresult r = process_enter_context();

	if (r != CUDA_SUCCESS)
		return r;
	if (!context_is_live(dst_context) || !context_is_live(src_context))
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

/* One side as the program describes it. */
struct side {
	CUmemorytype type;
	const void *host;
	CUdeviceptr device;
	size_t x, y, z, pitch, rows;
};

/* Offsets into a side: address + x + (y + z · rows) · pitch. */
static CUresult make_side(const struct side *s, struct box_side *ret_side)
{
	uint64_t base = s->type == CU_MEMORYTYPE_HOST ? H(s->host) : s->device;
	uint64_t lines, bytes;

	if (s->type == CU_MEMORYTYPE_ARRAY)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (s->type != CU_MEMORYTYPE_HOST && s->type != CU_MEMORYTYPE_DEVICE &&
		s->type != CU_MEMORYTYPE_UNIFIED)
		return CUDA_ERROR_INVALID_VALUE;
	if (__builtin_mul_overflow(s->z, s->rows, &lines) || __builtin_add_overflow(lines, s->y, &lines) ||
		__builtin_mul_overflow(lines, s->pitch, &bytes) ||
		__builtin_add_overflow(bytes, s->x, &bytes) || __builtin_add_overflow(base, bytes, &base))
		return CUDA_ERROR_INVALID_VALUE;
	*ret_side = (struct box_side){.address = base, .pitch = s->pitch, .rows = s->rows};
	return CUDA_SUCCESS;
}

static CUresult copy_sides(struct side dst, struct side src, size_t width, size_t height, size_t depth,
	CUstream handle, unsigned int how, bool per_thread)
{
	struct box box = {.width = width, .height = height, .depth = depth};
	CUresult r;

	/* A pitch of 0 means that rows follow each other; so do planes. */
	dst.pitch = dst.pitch ? dst.pitch : width;
	src.pitch = src.pitch ? src.pitch : width;
	dst.rows = dst.rows ? dst.rows : height;
	src.rows = src.rows ? src.rows : height;
	if (dst.type == CU_MEMORYTYPE_DEVICE)
		how |= COPY_DST_DEVICE;
	if (src.type == CU_MEMORYTYPE_DEVICE)
		how |= COPY_SRC_DEVICE;
	r = make_side(&dst, &box.dst);
	if (r == CUDA_SUCCESS)
		r = make_side(&src, &box.src);
	return r == CUDA_SUCCESS ? start(&box, handle, how, per_thread) : r;
}

static CUresult rectangle(const CUDA_MEMCPY2D *c, CUstream handle, unsigned int how, bool per_thread)
{
	struct side dst, src;
	CUresult r = process_enter_context();

	if (r != CUDA_SUCCESS)
		return r;
	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	dst = (struct side){.type = c->dstMemoryType, .host = c->dstHost, .device = c->dstDevice};
	dst.x = c->dstXInBytes;
	dst.y = c->dstY;
	dst.pitch = c->dstPitch;
	src = (struct side){.type = c->srcMemoryType, .host = c->srcHost, .device = c->srcDevice};
	src.x = c->srcXInBytes;
	src.y = c->srcY;
	src.pitch = c->srcPitch;
	return copy_sides(dst, src, c->WidthInBytes, c->Height, 1, handle, how, per_thread);
}

ENTRY_PAIR(cuMemcpy2D_v2, _ptds, rectangle, (const CUDA_MEMCPY2D *copy), copy, NULL, 0)
ENTRY_PAIR(cuMemcpy2DUnaligned_v2, _ptds, rectangle, (const CUDA_MEMCPY2D *copy), copy, NULL, 0)
ENTRY_PAIR(cuMemcpy2DAsync_v2, _ptsz, rectangle, (const CUDA_MEMCPY2D *copy, CUstream stream), copy, stream,
	COPY_ASYNC)

static CUresult cuboid(const CUDA_MEMCPY3D *c, CUstream handle, unsigned int how, bool per_thread)
{
	struct side dst, src;
	CUresult r = process_enter_context();

	if (r != CUDA_SUCCESS)
		return r;
	if (!c || c->srcLOD != 0 || c->dstLOD != 0)
		return CUDA_ERROR_INVALID_VALUE;
	dst = (struct side){.type = c->dstMemoryType, .host = c->dstHost, .device = c->dstDevice};
	dst.x = c->dstXInBytes;
	dst.y = c->dstY;
	dst.z = c->dstZ;
	dst.pitch = c->dstPitch;
	dst.rows = c->dstHeight;
	src = (struct side){.type = c->srcMemoryType, .host = c->srcHost, .device = c->srcDevice};
	src.x = c->srcXInBytes;
	src.y = c->srcY;
	src.z = c->srcZ;
	src.pitch = c->srcPitch;
	src.rows = c->srcHeight;
	return copy_sides(dst, src, c->WidthInBytes, c->Height, c->Depth, handle, how, per_thread);
}

ENTRY_PAIR(cuMemcpy3D_v2, _ptds, cuboid, (const CUDA_MEMCPY3D *copy), copy, NULL, 0)
ENTRY_PAIR(cuMemcpy3DAsync_v2, _ptsz, cuboid, (const CUDA_MEMCPY3D *copy, CUstream stream), copy, stream,
	COPY_ASYNC)
