// Entry points: CUDA arrays and mipmapped arrays. Sparse arrays, deferred mapping and several
// planes are not supported: questions about those return the driver's errors for other arrays.

#include "client/entry/entry.h"

#include "client/state/array.h"
#include "client/state/context.h"

static CUresult create(const void *must_be, const CUDA_ARRAY3D_DESCRIPTOR *form, unsigned int levels,
	struct client_array **ret_array)
{
	CUresult r = enter_unsafe();

	if (r != CUDA_SUCCESS)
		return r;
	if (!must_be || !form)
		return CUDA_ERROR_INVALID_VALUE;
	return array_create(
		context_current(), &(struct array_wish){.form = *form, .levels = levels}, ret_array);
}

CUDA_EXPORT CUresult cuArray3DCreate_v2(CUarray *ret_array, const CUDA_ARRAY3D_DESCRIPTOR *form)
{
	TRACE_CALL();
	struct client_array *array;
	CUresult r = create(ret_array, form, 0, &array);

	if (r == CUDA_SUCCESS)
		*ret_array = array_handle(array);
	return r;
}

CUDA_EXPORT CUresult cuArrayCreate_v2(CUarray *ret_array, const CUDA_ARRAY_DESCRIPTOR *form)
{
	CUDA_ARRAY3D_DESCRIPTOR general = {0};

	if (form)
		general = (CUDA_ARRAY3D_DESCRIPTOR){.Width = form->Width,
			.Height = form->Height,
			.Format = form->Format,
			.NumChannels = form->NumChannels};
	return cuArray3DCreate_v2(ret_array, form ? &general : NULL);
}

CUDA_EXPORT CUresult cuMipmappedArrayCreate(
	CUmipmappedArray *ret_mipmap, const CUDA_ARRAY3D_DESCRIPTOR *form, unsigned int levels)
{
	TRACE_CALL();
	struct client_array *array;
	CUresult r = create(ret_mipmap, form, levels ? levels : 1, &array);

	if (r == CUDA_SUCCESS)
		*ret_mipmap = (CUmipmappedArray)(void *)array;
	return r;
}

static CUresult destroy(struct client_array *array)
{
	if (!array)
		return CUDA_ERROR_INVALID_HANDLE;
	/* A level ends with the whole array. */
	return array->whole ? CUDA_SUCCESS : array_destroy(array);
}

CUDA_EXPORT CUresult cuArrayDestroy(CUarray handle)
{
	TRACE_CALL();
	CUresult r = enter_unsafe();

	return r == CUDA_SUCCESS ? destroy(array_find(handle)) : r;
}

CUDA_EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray handle)
{
	TRACE_CALL();
	CUresult r = enter_unsafe();

	return r == CUDA_SUCCESS ? destroy(array_find_mipmapped(handle)) : r;
}

CUDA_EXPORT CUresult cuMipmappedArrayGetLevel(
	CUarray *ret_array, CUmipmappedArray handle, unsigned int number)
{
	struct client_array *mipmapped, *level;
	CUresult r = process_enter_context();

	if (r != CUDA_SUCCESS)
		return r;
	mipmapped = array_find_mipmapped(handle);
	if (!ret_array || !mipmapped)
		return mipmapped ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	r = array_level(mipmapped, number, &level);
	if (r == CUDA_SUCCESS)
		*ret_array = array_handle(level);
	return r;
}

CUDA_EXPORT CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *ret_form, CUarray handle)
{
	const struct client_array *array;
	CUresult r = process_enter_context();

	if (r != CUDA_SUCCESS)
		return r;
	array = array_find(handle);
	if (!ret_form || !array)
		return array ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
	array_describe(array, ret_form);
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *ret_form, CUarray handle)
{
	CUDA_ARRAY3D_DESCRIPTOR general;
	CUresult r = cuArray3DGetDescriptor_v2(&general, handle);

	if (r != CUDA_SUCCESS || !ret_form)
		return r == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : r;
	*ret_form = (CUDA_ARRAY_DESCRIPTOR){.Width = general.Width,
		.Height = general.Height,
		.Format = general.Format,
		.NumChannels = general.NumChannels};
	return CUDA_SUCCESS;
}

/* The answer to questions about sparse, deferred or planar arrays. */
static CUresult not_of_this_kind(const struct client_array *array)
{
	CUresult r = process_enter_context();

	if (r != CUDA_SUCCESS)
		return r;
	return array ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
}

CUDA_EXPORT CUresult cuArrayGetMemoryRequirements(
	CUDA_ARRAY_MEMORY_REQUIREMENTS *ret_need, CUarray handle, CUdevice device)
{
	(void)ret_need;
	(void)device;
	return not_of_this_kind(array_find(handle));
}

CUDA_EXPORT CUresult cuMipmappedArrayGetMemoryRequirements(
	CUDA_ARRAY_MEMORY_REQUIREMENTS *ret_need, CUmipmappedArray handle, CUdevice device)
{
	(void)ret_need;
	(void)device;
	return not_of_this_kind(array_find_mipmapped(handle));
}

CUDA_EXPORT CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *ret_sparse, CUarray handle)
{
	(void)ret_sparse;
	return not_of_this_kind(array_find(handle));
}

CUDA_EXPORT CUresult cuMipmappedArrayGetSparseProperties(
	CUDA_ARRAY_SPARSE_PROPERTIES *ret_sparse, CUmipmappedArray handle)
{
	(void)ret_sparse;
	return not_of_this_kind(array_find_mipmapped(handle));
}

CUDA_EXPORT CUresult cuArrayGetPlane(CUarray *ret_plane, CUarray handle, unsigned int plane)
{
	(void)ret_plane;
	(void)plane;
	return not_of_this_kind(array_find(handle));
}
