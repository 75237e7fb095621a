// Arrays, textures and surfaces of the pretended device: levels and rows follow each other, in the
// session's mapped memory. A handle is an index of the table that kernels are given (kernel.h).
// Like the driver's, values are the lowest that are free, and a freed value rests for a while: how
// long depends on other events.
//
// Module thread; kernels read entries of objects that are there.

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/texel.h"
#include "tests/host/host.h"

#define LEVEL_ALIGNMENT UINT64_C(512)
/* So many values rest. */
#define RESTING_MAX 16u

struct backend_array {
	struct wire_array form;
	uint64_t address; /* 0: no memory yet */
};

enum value_state { VALUE_FREE, VALUE_USED, VALUE_RESTING };

static struct host_object objects[HOST_OBJECTS_MAX];
const struct host_object *const host_objects = objects;
/* Value 0 is none. */
static enum value_state states[HOST_OBJECTS_MAX] = {VALUE_USED};
static uint32_t resting;

/* Bytes before a level; for a level after the last: of the whole array. False if there is no such
 * array. */
static bool offset_of(const struct wire_array *form, uint32_t level, uint64_t *ret_offset)
{
	struct texel_level each;

	*ret_offset = 0;
	for (uint32_t i = 0; i < level; i++) {
		if (!texel_level(form, i, &each))
			return false;
		*ret_offset += (each.row_bytes * each.rows * each.planes + LEVEL_ALIGNMENT - 1) /
			       LEVEL_ALIGNMENT * LEVEL_ALIGNMENT;
	}
	return true;
}

CUresult host_array_make(const struct wire_array *form, struct backend_array **ret_array, uint64_t *ret_bytes,
	uint64_t *ret_alignment)
{
	struct backend_array *array;

	if (!offset_of(form, form->levels ? form->levels : 1, ret_bytes))
		return CUDA_ERROR_INVALID_VALUE;
	array = calloc(1, sizeof(*array));
	if (!array)
		return CUDA_ERROR_OUT_OF_MEMORY;
	array->form = *form;
	*ret_array = array;
	*ret_alignment = LEVEL_ALIGNMENT;
	return CUDA_SUCCESS;
}

CUresult host_array_back(struct backend_array *array, const struct wire_back_array *memory, int fd)
{
	uint64_t bytes;

	(void)fd; /* already mapped */
	if (!offset_of(&array->form, array->form.levels ? array->form.levels : 1, &bytes) ||
		memory->bytes < bytes || memory->address % LEVEL_ALIGNMENT)
		return CUDA_ERROR_INVALID_VALUE;
	array->address = memory->address;
	return CUDA_SUCCESS;
}

/* Stops the device, as the driver does. */
CUresult host_array_free(struct backend_array *array)
{
	host_pool_stop();
	free(array);
	host_pool_go_on();
	return CUDA_SUCCESS;
}

static uint64_t resolve(const struct backend_place *place, uint64_t *ret_pitch, uint64_t *ret_rows)
{
	struct texel_level level = {0};
	uint64_t offset;

	texel_level(&place->array->form, place->level, &level);
	offset_of(&place->array->form, place->level, &offset);
	*ret_pitch = level.row_bytes;
	*ret_rows = level.rows;
	return place->array->address + offset + (place->z * level.rows + place->y) * level.row_bytes +
	       place->x;
}

void host_array_resolve(struct backend_copy *copy)
{
	if (copy->dst_at.array)
		copy->dst = resolve(&copy->dst_at, &copy->dst_pitch, &copy->dst_rows);
	if (copy->src_at.array)
		copy->src = resolve(&copy->src_at, &copy->src_pitch, &copy->src_rows);
}

/* ---- objects ---- */

static uint64_t take_value(void)
{
	for (uint64_t value = 1; value < HOST_OBJECTS_MAX; value++)
		if (states[value] == VALUE_FREE) {
			states[value] = VALUE_USED;
			return value;
		}
	return 0;
}

static bool over_array(
	const struct wire_object *form, const struct backend_array *array, struct host_object *ret_object)
{
	uint32_t number = form->resource == CU_RESOURCE_TYPE_ARRAY ? form->level : 0;
	struct texel_level level;
	uint64_t offset;

	if (!array->address || !texel_level(&array->form, number, &level) ||
		!offset_of(&array->form, number, &offset))
		return false;
	*ret_object = (struct host_object){
		.texels = (uint8_t *)(uintptr_t)(array->address + offset),
		.width = level.row_bytes / level.element_bytes,
		.height = level.rows,
		.depth = level.planes,
		.pitch = level.row_bytes,
		.plane = level.row_bytes * level.rows,
		.element_bytes = level.element_bytes,
	};
	return true;
}

static bool over_memory(const struct wire_object *form, struct host_object *ret_object)
{
	bool is_linear = form->resource == CU_RESOURCE_TYPE_LINEAR;
	uint32_t element = texel_bytes(form->format, form->channels);

	if (!element || !form->address)
		return false;
	*ret_object = (struct host_object){
		.texels = (uint8_t *)(uintptr_t)form->address,
		.width = is_linear ? form->bytes / element : form->width,
		.height = is_linear ? 1 : form->height,
		.depth = 1,
		.pitch = form->pitch,
		.element_bytes = element,
	};
	return ret_object->width > 0;
}

/* Kernels here read single texels. A texture with more features is refused. */
static bool is_plain(const struct wire_object *form)
{
	CUDA_TEXTURE_DESC texture;

	memcpy(&texture, form->texture, sizeof(texture));
	return texture.filterMode == CU_TR_FILTER_MODE_POINT &&
	       !(texture.flags & CU_TRSF_NORMALIZED_COORDINATES);
}

CUresult host_object_make(const struct wire_object *form, struct backend_array *array, uint64_t *ret_value)
{
	struct host_object object;
	uint64_t value;

	if ((form->has_texture && !is_plain(form)) ||
		!(array ? over_array(form, array, &object) : over_memory(form, &object)))
		return CUDA_ERROR_INVALID_VALUE;
	value = take_value();
	if (!value)
		return CUDA_ERROR_OUT_OF_MEMORY;
	objects[value] = object;
	*ret_value = value;
	return CUDA_SUCCESS;
}

CUresult host_object_settle(void)
{
	for (uint64_t value = 0; value < HOST_OBJECTS_MAX; value++)
		if (states[value] == VALUE_RESTING)
			states[value] = VALUE_FREE;
	resting = 0;
	return CUDA_SUCCESS;
}

CUresult host_object_free(uint32_t kind, uint64_t value)
{
	(void)kind;
	if (!value || value >= HOST_OBJECTS_MAX || states[value] != VALUE_USED)
		return CUDA_ERROR_INVALID_VALUE;
	objects[value] = (struct host_object){0};
	states[value] = VALUE_RESTING;
	if (++resting > RESTING_MAX)
		host_object_settle();
	return CUDA_SUCCESS;
}
