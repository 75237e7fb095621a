// Arrays: a description, and the part of a mapping that is the array's memory.

#include "server/resource/resource.h"

#include <string.h>

#include "protocol/command.h"
#include "protocol/texel.h"
#include "server/resource/check.h"
#include "server/session/chunk.h"
#include "server/session/holding.h"
#include "server/session/holdings.h"
#include "server/session/request.h"
#include "server/session/session.h"

static int check_make(struct check *check, const struct wire_message *message)
{
	const struct wire_array *array = &message->array;
	struct texel_level level;

	if (!array->array || array->array >= FRMPS_ARRAY_IDS ||
		holdings_has_array(check->holdings, array->array))
		return check_broken(check, "id of an array is out of range or in use");
	if (array->flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
		return check_answer(check, CUDA_ERROR_NOT_SUPPORTED);
	if (array->levels > FRMPS_ARRAY_LEVELS || !texel_level(array, 0, &level))
		return check_answer(check, CUDA_ERROR_INVALID_VALUE);
	return 0;
}

/* The range must be a part of one mapping. */
static int check_back(struct check *check, const struct wire_message *message)
{
	const struct wire_back_array *back = &message->back_array;
	const struct holding *entry = holdings_find_address(check->holdings, back->address);
	const struct wire_range range = {.address = back->address, .bytes = back->bytes};

	if (!holdings_has_array(check->holdings, back->array) ||
		holdings_has_backed(check->holdings, back->array))
		return check_broken(check, "there is no such array, or it has memory");
	if (!entry || entry->type != WIRE_MAP_MEMORY || !back->bytes ||
		!check_inside(&range, entry->range.address, entry->range.bytes))
		return check_broken(check, "memory of an array is not a part of a mapped range");
	return 0;
}

static bool has(const struct holdings *holdings, const struct wire_message *message)
{
	return holdings_has_array(holdings, message->array.array);
}

static bool has_memory(const struct holdings *holdings, const struct wire_message *message)
{
	return holdings_has_backed(holdings, message->back_array.array);
}

/* The check has found that the array's memory is a part of one mapping. */
static CUresult find_backing(struct request *request)
{
	struct wire_back_array *wish = &request->message.back_array;
	const struct holding *mapping = holdings_find_address(&request->session->holdings, wish->address);

	wish->offset = wish->address - mapping->range.address;
	wish->span = mapping->range.bytes;
	if (!request->chunk)
		request->chunk = chunk_ref(mapping->chunk);
	return CUDA_SUCCESS;
}

static int fill(struct holding *entry, const struct wire_message *message, const struct wire_u64s *values)
{
	(void)values;
	return holding_fill_form(entry, message->array.array, &message->array, sizeof(message->array));
}

static void again(const struct holding *entry, struct wire_message *message)
{
	memcpy(&message->array, entry->form, sizeof(message->array));
}

static int fill_memory(
	struct holding *entry, const struct wire_message *message, const struct wire_u64s *values)
{
	const struct wire_back_array *back = &message->back_array;

	(void)values;
	entry->attribute = back->array;
	entry->range = (struct wire_range){.address = back->address, .bytes = back->bytes};
	entry->global[0] = back->offset;
	entry->global[1] = back->span;
	return 0;
}

static void memory_again(const struct holding *entry, struct wire_message *message)
{
	message->back_array = (struct wire_back_array){entry->attribute, entry->range.address,
		entry->range.bytes, entry->global[0], entry->global[1]};
}

static bool is_over(const struct holding *entry, uint32_t array)
{
	const struct wire_object *object = entry->form;

	return entry->type == WIRE_MAKE_OBJECT && object->resource <= CU_RESOURCE_TYPE_MIPMAPPED_ARRAY &&
	       object->array == array;
}

static void drop(struct holdings *holdings, const struct wire_message *message)
{
	uint32_t array = message->array.array;
	struct holding *entry = TAILQ_LAST(&holdings->entries, holding_list), *previous;

	/* The array itself goes last: while the array is there, this can be repeated. */
	for (; entry; entry = previous) {
		previous = TAILQ_PREV(entry, holding_list, link);
		if (is_over(entry, array) || (entry->type == WIRE_BACK_ARRAY && entry->attribute == array))
			holdings_remove(holdings, entry);
	}
	holdings_remove_id(holdings, WIRE_MAKE_ARRAY, array);
}

const struct resource resource_array_make = {.check = check_make,
	.fill = fill,
	.again = again,
	.has = has,
	.ids = FRMPS_ARRAY_IDS,
	.form_bytes = sizeof(struct wire_array)};
const struct resource resource_array_back = {.check = check_back,
	.prepare = find_backing,
	.fill = fill_memory,
	.again = memory_again,
	.has = has_memory,
	.ids = FRMPS_ARRAY_IDS};
const struct resource resource_array_drop = {.has = has, .drop = drop};
