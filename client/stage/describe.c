// Copies in the driver's general form as boxes, and back. No state.

#include "client/stage/copy.h"
#include "client/state/array.h"

/* A side in the program's description. */
struct side {
	CUmemorytype type;
	const void *host;
	CUdeviceptr device;
	CUarray array;
	size_t x, y, z, pitch, rows;
};

/* The box must lie in the array. */
static CUresult make_array_side(const struct side *s, const struct box *box, struct box_side *ret_side)
{
	const struct client_array *array = array_find(s->array);
	struct texel_level level;

	if (!array)
		return CUDA_ERROR_INVALID_VALUE;
	array_geometry(array, &level);
	if (s->x > level.row_bytes || box->width > level.row_bytes - s->x || s->y > level.rows ||
		box->height > level.rows - s->y || s->z > level.planes || box->depth > level.planes - s->z)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_side = (struct box_side){
		.address = (s->z * level.rows + s->y) * level.row_bytes + s->x,
		.pitch = level.row_bytes,
		.rows = level.rows,
		.array = array,
		.serial = array->serial,
	};
	return CUDA_SUCCESS;
}

/* Offsets into a side: address + x + (y + z · rows) · pitch. */
static CUresult make_side(const struct side *s, const struct box *box, struct box_side *ret_side)
{
	uint64_t base = s->type == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)s->host : s->device;
	uint64_t lines, bytes;

	if (s->type == CU_MEMORYTYPE_ARRAY)
		return make_array_side(s, box, ret_side);
	if (s->type != CU_MEMORYTYPE_HOST && s->type != CU_MEMORYTYPE_DEVICE &&
		s->type != CU_MEMORYTYPE_UNIFIED)
		return CUDA_ERROR_INVALID_VALUE;
	/* Nothing lies behind NULL, whatever the offsets, and rows do not overlap. */
	if (!box_is_empty(box) && (!base || s->pitch < box->width || s->pitch - box->width < s->x))
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
	struct side dst = {c->dstMemoryType, c->dstHost, c->dstDevice, c->dstArray, c->dstXInBytes, c->dstY,
		c->dstZ, c->dstPitch, c->dstHeight};
	struct side src = {c->srcMemoryType, c->srcHost, c->srcDevice, c->srcArray, c->srcXInBytes, c->srcY,
		c->srcZ, c->srcPitch, c->srcHeight};
	CUresult r;

	if (c->srcLOD != 0 || c->dstLOD != 0)
		return CUDA_ERROR_INVALID_VALUE;
	/* A pitch of 0 means that rows follow each other; so do planes. */
	dst.pitch = dst.pitch ? dst.pitch : box.width;
	src.pitch = src.pitch ? src.pitch : box.width;
	dst.rows = dst.rows ? dst.rows : box.height;
	src.rows = src.rows ? src.rows : box.height;
	r = make_side(&dst, &box, &box.dst);
	if (r == CUDA_SUCCESS)
		r = make_side(&src, &box, &box.src);
	if (r != CUDA_SUCCESS)
		return r;
	*ret_box = box;
	*ret_how = (dst.type == CU_MEMORYTYPE_DEVICE ? COPY_DST_DEVICE : 0) |
		   (src.type == CU_MEMORYTYPE_DEVICE ? COPY_SRC_DEVICE : 0);
	return CUDA_SUCCESS;
}

/* The position in an array from the linear address. */
static void split(const struct box_side *side, size_t *ret_x, size_t *ret_y, size_t *ret_z)
{
	*ret_x = side->address % side->pitch;
	*ret_y = side->address / side->pitch % side->rows;
	*ret_z = side->address / side->pitch / side->rows;
}

void copy_name_arrays(const struct box *box, CUDA_MEMCPY3D *copy)
{
	if (box->dst.array) {
		copy->dstMemoryType = CU_MEMORYTYPE_ARRAY;
		copy->dstArray = array_handle(box->dst.array);
		copy->dstDevice = 0;
		copy->dstHost = NULL;
		split(&box->dst, &copy->dstXInBytes, &copy->dstY, &copy->dstZ);
	}
	if (box->src.array) {
		copy->srcMemoryType = CU_MEMORYTYPE_ARRAY;
		copy->srcArray = array_handle(box->src.array);
		copy->srcDevice = 0;
		copy->srcHost = NULL;
		split(&box->src, &copy->srcXInBytes, &copy->srcY, &copy->srcZ);
	}
}
