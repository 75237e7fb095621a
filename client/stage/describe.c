// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Copies in the driver's general form as boxes. No state.

#include "client/stage/copy.h"

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
	uint64_t base = s->type == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)s->host : s->device;
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

CUresult copy_describe(const CUDA_MEMCPY3D *c, struct box *ret_box, unsigned int *ret_how)
{
	struct box box = {.width = c->WidthInBytes, .height = c->Height, .depth = c->Depth};
	struct side dst = {c->dstMemoryType, c->dstHost, c->dstDevice, c->dstXInBytes, c->dstY, c->dstZ,
		c->dstPitch, c->dstHeight};
	struct side src = {c->srcMemoryType, c->srcHost, c->srcDevice, c->srcXInBytes, c->srcY, c->srcZ,
		c->srcPitch, c->srcHeight};
	CUresult r;

	if (c->srcLOD != 0 || c->dstLOD != 0)
		return CUDA_ERROR_INVALID_VALUE;
	/* A pitch of 0 means that rows follow each other; so do planes. */
	dst.pitch = dst.pitch ? dst.pitch : box.width;
	src.pitch = src.pitch ? src.pitch : box.width;
	dst.rows = dst.rows ? dst.rows : box.height;
	src.rows = src.rows ? src.rows : box.height;
	r = make_side(&dst, &box.dst);
	if (r == CUDA_SUCCESS)
		r = make_side(&src, &box.src);
	if (r != CUDA_SUCCESS)
		return r;
	*ret_box = box;
	*ret_how = (dst.type == CU_MEMORYTYPE_DEVICE ? COPY_DST_DEVICE : 0) |
		   (src.type == CU_MEMORYTYPE_DEVICE ? COPY_SRC_DEVICE : 0);
	return CUDA_SUCCESS;
}
