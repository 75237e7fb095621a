// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Copies and fills. All addresses were checked by the executor and all host memory is registered, so every
// call here is asynchronous; the one trap is a copy from host to host, which the driver does in the calling
// thread after waiting for the stream, however it is put. Such a copy is refused: clients do it themselves.
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

CUresult cuda_copy_form(const struct backend_copy *copy, CUDA_MEMCPY3D *ret_form)
{
	/* Planes that overlap are nothing the driver can express; one plane never uses the distance. */
	if (copy->depth > 1 && (copy->src_rows < copy->height || copy->dst_rows < copy->height))
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
	if (copy->height <= 1 && copy->depth <= 1)
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
