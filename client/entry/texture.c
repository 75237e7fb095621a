// Entry points: texture and surface objects.

#include "client/entry/entry.h"

#include "client/state/context.h"
#include "client/state/device.h"
#include "client/state/object.h"
#include "protocol/texel.h"

CUDA_EXPORT CUresult cuTexObjectCreate(CUtexObject *ret_object, const CUDA_RESOURCE_DESC *resource,
	const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *view)
{
	struct object_form form = {.kind = OBJECT_TEXTURE};
	uint64_t value = 0;
	CUresult r = process_enter_context();

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_object || !resource || !texture)
		return CUDA_ERROR_INVALID_VALUE;
	form.resource = *resource;
	form.texture = *texture;
	form.has_view = view;
	if (view)
		form.view = *view;
	r = object_create(context_current(), &form, &value);
	if (r == CUDA_SUCCESS)
		*ret_object = value;
	return r;
}

CUDA_EXPORT CUresult cuSurfObjectCreate(CUsurfObject *ret_object, const CUDA_RESOURCE_DESC *resource)
{
	struct object_form form = {.kind = OBJECT_SURFACE};
	uint64_t value = 0;
	CUresult r = process_enter_context();

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_object || !resource || resource->resType != CU_RESOURCE_TYPE_ARRAY)
		return CUDA_ERROR_INVALID_VALUE;
	form.resource = *resource;
	r = object_create(context_current(), &form, &value);
	if (r == CUDA_SUCCESS)
		*ret_object = value;
	return r;
}

static CUresult destroy(enum object_kind kind, uint64_t value)
{
	CUresult r = process_enter_context();

	if (r == CUDA_SUCCESS)
		object_destroy(kind, value);
	return r;
}

CUDA_EXPORT CUresult cuTexObjectDestroy(CUtexObject object)
{
	return destroy(OBJECT_TEXTURE, object);
}

CUDA_EXPORT CUresult cuSurfObjectDestroy(CUsurfObject object)
{
	return destroy(OBJECT_SURFACE, object);
}

static CUresult describe(
	enum object_kind kind, uint64_t value, const void *wanted, struct object_form *ret_form)
{
	CUresult r = process_enter_context();

	if (r != CUDA_SUCCESS)
		return r;
	return wanted ? object_describe(kind, value, ret_form) : CUDA_ERROR_INVALID_VALUE;
}

CUDA_EXPORT CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *ret_resource, CUtexObject object)
{
	struct object_form form;
	CUresult r = describe(OBJECT_TEXTURE, object, ret_resource, &form);

	if (r == CUDA_SUCCESS)
		*ret_resource = form.resource;
	return r;
}

CUDA_EXPORT CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *ret_texture, CUtexObject object)
{
	struct object_form form;
	CUresult r = describe(OBJECT_TEXTURE, object, ret_texture, &form);

	if (r == CUDA_SUCCESS)
		*ret_texture = form.texture;
	return r;
}

/* Without a view the driver returns a view that is all zero. */
CUDA_EXPORT CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *ret_view, CUtexObject object)
{
	struct object_form form;
	CUresult r = describe(OBJECT_TEXTURE, object, ret_view, &form);

	if (r == CUDA_SUCCESS)
		*ret_view = form.view;
	return r;
}

CUDA_EXPORT CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *ret_resource, CUsurfObject object)
{
	struct object_form form;
	CUresult r = describe(OBJECT_SURFACE, object, ret_resource, &form);

	if (r == CUDA_SUCCESS)
		*ret_resource = form.resource;
	return r;
}

/* The attribute counts elements of 16 bytes; smaller elements may be more, at most four times as
 * many (H200, driver 580). */
CUDA_EXPORT CUresult cuDeviceGetTexture1DLinearMaxWidth(
	size_t *ret_width, CUarray_format format, unsigned channels, CUdevice device)
{
	const struct client_device *d = device_get(device);
	uint32_t bytes = texel_bytes((uint32_t)format, channels);
	CUresult r = process_enter_early();
	int width = 0;

	if (r != CUDA_SUCCESS)
		return r;
	if (!ret_width || !bytes || bytes > 16)
		return CUDA_ERROR_INVALID_VALUE;
	if (!d)
		return CUDA_ERROR_INVALID_DEVICE;
	r = device_attribute(d, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH, &width);
	if (r == CUDA_SUCCESS)
		*ret_width = (size_t)width * (bytes < 4 ? 4 : 16 / bytes);
	return r;
}
