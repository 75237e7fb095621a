// Copies and fills. The executor has checked all addresses and all host memory is registered, so
// every call here is asynchronous. The only exception is a copy from host to host, in any form of
// the call: the driver performs such a copy in the calling thread, after waiting for the stream.
// Such a copy is refused: clients copy themselves.
//
// Executor threads; several at once for different streams.

#include "server/backend/cuda/cuda.h"

static CUresult copy_line(CUstream stream, const struct backend_copy *copy)
{
	void *dst = (void *)(uintptr_t)copy->dst;
	const void *src = (const void *)(uintptr_t)copy->src;

	if (!copy->dst_is_host && !copy->src_is_host)
		return driver.copy_on_device(copy->dst, copy->src, copy->width, stream);
	if (copy->dst_is_host)
		return driver.copy_to_host(dst, copy->src, copy->width, stream);
	return driver.copy_to_device(copy->dst, src, copy->width, stream);
}

/* For an array, the driver knows the layout of rows. */
static void place_in_arrays(const struct backend_copy *copy, CUDA_MEMCPY3D *form)
{
	if (copy->dst_at.array) {
		form->dstMemoryType = CU_MEMORYTYPE_ARRAY;
		form->dstArray = cuda_array_level(copy->dst_at.array, copy->dst_at.level);
		form->dstXInBytes = copy->dst_at.x;
		form->dstY = copy->dst_at.y;
		form->dstZ = copy->dst_at.z;
	}
	if (copy->src_at.array) {
		form->srcMemoryType = CU_MEMORYTYPE_ARRAY;
		form->srcArray = cuda_array_level(copy->src_at.array, copy->src_at.level);
		form->srcXInBytes = copy->src_at.x;
		form->srcY = copy->src_at.y;
		form->srcZ = copy->src_at.z;
	}
}

CUresult cuda_copy_form(const struct backend_copy *copy, CUDA_MEMCPY3D *ret_form)
{
	bool dst_overlaps = !copy->dst_at.array && copy->dst_rows < copy->height;
	bool src_overlaps = !copy->src_at.array && copy->src_rows < copy->height;

	/* The driver cannot express overlapping planes; a single plane never uses the distance. */
	if (copy->depth > 1 && (dst_overlaps || src_overlaps))
		return CUDA_ERROR_INVALID_VALUE;
	*ret_form = (CUDA_MEMCPY3D){
		.srcMemoryType = copy->src_is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
		.srcHost = (const void *)(uintptr_t)copy->src,
		.srcDevice = copy->src,
		.srcPitch = copy->src_pitch,
		.srcHeight = copy->src_rows > copy->height ? copy->src_rows : copy->height,
		.dstMemoryType = copy->dst_is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
		.dstHost = (void *)(uintptr_t)copy->dst,
		.dstDevice = copy->dst,
		.dstPitch = copy->dst_pitch,
		.dstHeight = copy->dst_rows > copy->height ? copy->dst_rows : copy->height,
		.WidthInBytes = copy->width,
		.Height = copy->height,
		.Depth = copy->depth,
	};
	place_in_arrays(copy, ret_form);
	return CUDA_SUCCESS;
}

static CUresult copy_box(CUstream stream, const struct backend_copy *copy)
{
	CUDA_MEMCPY3D box;
	CUresult code = cuda_copy_form(copy, &box);

	return code ? code : driver.copy_box(&box, stream);
}

CUresult cuda_copy(struct backend_stream *stream, const struct backend_copy *copy)
{
	if (copy->dst_is_host && copy->src_is_host)
		return CUDA_ERROR_INVALID_VALUE;
	if (copy->height <= 1 && copy->depth <= 1 && !copy->dst_at.array && !copy->src_at.array)
		return copy_line(cuda_stream(stream), copy);
	return copy_box(cuda_stream(stream), copy);
}

static CUresult set_rows(CUstream stream, const struct frmps_set *set)
{
	switch (set->element_bytes) {
	case 1:
		return driver.set8_rows(
			set->dst, set->pitch, (unsigned char)set->value, set->width, set->height, stream);
	case 2:
		return driver.set16_rows(
			set->dst, set->pitch, (unsigned short)set->value, set->width, set->height, stream);
	case 4:
		return driver.set32_rows(set->dst, set->pitch, set->value, set->width, set->height, stream);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult cuda_set(struct backend_stream *stream, const struct frmps_set *set)
{
	CUstream on = cuda_stream(stream);

	if (set->height > 1)
		return set_rows(on, set);
	switch (set->element_bytes) {
	case 1:
		return driver.set8(set->dst, (unsigned char)set->value, set->width, on);
	case 2:
		return driver.set16(set->dst, (unsigned short)set->value, set->width, on);
	case 4:
		return driver.set32(set->dst, set->value, set->width, on);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}
