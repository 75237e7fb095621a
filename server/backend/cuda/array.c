// Arrays, textures and surfaces. Module thread.
//
// An array must have its texels in a chunk, so that all processes share the texels. The driver's
// arrays of deferred mapping do not accept memory that was made for sharing (H200, driver 580:
// cuMemMapArrayAsync refuses such memory, and cuMemCreate refuses to make a tile pool that can be
// exported). But a chunk's descriptor is also external memory, in which the driver lays out an
// array at any multiple of the alignment that the driver requires. Such an array is always
// mipmapped; a plain array is its first level. Its size in memory is that of a deferred array of
// the same form, which never gets any memory.
//
// Freeing an array waits for everything in the context (measured), so all freeing is in array_free.

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/backend/cuda/cuda.h"

_Static_assert(sizeof(CUDA_TEXTURE_DESC) == WIRE_TEXTURE_BYTES, "descriptions of textures are copied");
_Static_assert(sizeof(CUDA_RESOURCE_VIEW_DESC) == WIRE_VIEW_BYTES, "descriptions of views are copied");

struct backend_array {
	CUDA_ARRAY3D_DESCRIPTOR form;
	uint32_t count; /* of levels */
	bool is_mipmapped;
	CUarray measured; /* one of the two: the deferred array for measuring the size */
	CUmipmappedArray measured_mipmap;
	CUexternalMemory memory;
	CUmipmappedArray mipmap;
	CUarray levels[FRMPS_ARRAY_LEVELS];
};

static CUresult measure(struct backend_array *array, CUDA_ARRAY_MEMORY_REQUIREMENTS *ret_need)
{
	CUDA_ARRAY3D_DESCRIPTOR form = array->form;
	CUresult code;

	form.Flags |= CUDA_ARRAY3D_DEFERRED_MAPPING;
	if (array->is_mipmapped) {
		code = driver.mipmap_create(&array->measured_mipmap, &form, array->count);
		return code ? code
			    : driver.mipmap_requirements(ret_need, array->measured_mipmap, cuda.device);
	}
	code = driver.array_create(&array->measured, &form);
	return code ? code : driver.array_requirements(ret_need, array->measured, cuda.device);
}

CUresult cuda_array_make(const struct wire_array *form, struct backend_array **ret_array, uint64_t *ret_bytes,
	uint64_t *ret_alignment)
{
	struct backend_array *array = calloc(1, sizeof(*array));
	CUDA_ARRAY_MEMORY_REQUIREMENTS need = {0};
	CUresult code;

	if (!array)
		return CUDA_ERROR_OUT_OF_MEMORY;
	array->form = (CUDA_ARRAY3D_DESCRIPTOR){.Width = form->width,
		.Height = form->height,
		.Depth = form->depth,
		.Format = (CUarray_format)form->format,
		.NumChannels = form->channels,
		.Flags = form->flags};
	array->is_mipmapped = form->levels > 0;
	array->count = form->levels ? form->levels : 1;
	code = measure(array, &need);
	if (code) {
		/* Nothing, or an array that nobody can have used. */
		cuda_array_free(array);
		return code;
	}
	*ret_array = array;
	*ret_bytes = need.size;
	*ret_alignment = need.alignment;
	return CUDA_SUCCESS;
}

/* The driver owns the descriptor from now on, on success. */
static CUresult import(struct backend_array *array, uint64_t bytes, int fd)
{
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC handle = {
		.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .handle.fd = dup(fd), .size = bytes};
	CUresult code;

	if (handle.handle.fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	code = driver.external_import(&array->memory, &handle);
	if (code) {
		array->memory = NULL;
		close(handle.handle.fd);
	}
	return code;
}

CUresult cuda_array_back(struct backend_array *array, const struct wire_back_array *memory, int fd)
{
	CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC form = {
		.offset = memory->offset, .arrayDesc = array->form, .numLevels = array->count};
	CUresult code;

	/* Also after a failed try: its memory is freed with the array. */
	if (array->memory)
		return CUDA_ERROR_INVALID_VALUE;
	code = import(array, memory->span, fd);
	if (!code)
		code = driver.external_array(&array->mipmap, array->memory, &form);
	for (uint32_t i = 0; !code && i < array->count; i++)
		code = driver.mipmap_level(&array->levels[i], array->mipmap, i);
	return code;
}

CUresult cuda_array_free(struct backend_array *array)
{
	CUresult code = array->mipmap ? driver.mipmap_destroy(array->mipmap) : CUDA_SUCCESS;

	if (!code && array->memory)
		code = driver.external_destroy(array->memory);
	if (!code && array->measured)
		code = driver.array_destroy(array->measured);
	if (!code && array->measured_mipmap)
		code = driver.mipmap_destroy(array->measured_mipmap);
	free(array);
	return code;
}

CUarray cuda_array_level(const struct backend_array *array, uint32_t level)
{
	return level < array->count ? array->levels[level] : NULL;
}

/* ---- objects ---- */

static CUDA_RESOURCE_DESC resource_of(const struct wire_object *form, const struct backend_array *array)
{
	CUDA_RESOURCE_DESC resource = {.resType = (CUresourcetype)form->resource};

	switch (resource.resType) {
	case CU_RESOURCE_TYPE_ARRAY:
		resource.res.array.hArray = cuda_array_level(array, form->level);
		break;
	case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
		resource.res.mipmap.hMipmappedArray = array->mipmap;
		break;
	case CU_RESOURCE_TYPE_LINEAR:
		resource.res.linear.devPtr = form->address;
		resource.res.linear.format = (CUarray_format)form->format;
		resource.res.linear.numChannels = form->channels;
		resource.res.linear.sizeInBytes = form->bytes;
		break;
	default:
		resource.res.pitch2D.devPtr = form->address;
		resource.res.pitch2D.format = (CUarray_format)form->format;
		resource.res.pitch2D.numChannels = form->channels;
		resource.res.pitch2D.width = form->width;
		resource.res.pitch2D.height = form->height;
		resource.res.pitch2D.pitchInBytes = form->pitch;
		break;
	}
	return resource;
}

CUresult cuda_object_make(const struct wire_object *form, struct backend_array *array, uint64_t *ret_value)
{
	CUDA_RESOURCE_DESC resource = resource_of(form, array);
	CUDA_TEXTURE_DESC texture;
	CUDA_RESOURCE_VIEW_DESC view;
	unsigned long long value = 0;
	CUresult code;

	memcpy(&texture, form->texture, sizeof(texture));
	memcpy(&view, form->view, sizeof(view));
	code = form->kind ? driver.surface_create(&value, &resource)
			  : driver.texture_create(&value, &resource, &texture, form->has_view ? &view : NULL);
	if (!code)
		*ret_value = value;
	return code;
}

CUresult cuda_object_free(uint32_t kind, uint64_t value)
{
	return kind ? driver.surface_destroy(value) : driver.texture_destroy(value);
}

CUresult cuda_object_settle(void)
{
	return driver.context_synchronize();
}
