// Texture and surface objects. Standbys give an object the handle that the active executor gave.

#include "server/resource/resource.h"

#include <string.h>

#include "protocol/command.h"
#include "server/resource/check.h"
#include "server/session/holding.h"
#include "server/session/holdings.h"

static int check_make(struct check *check, const struct wire_message *message)
{
	const struct wire_object *object = &message->object;

	if (!object->object || object->object >= FRMPS_OBJECT_IDS ||
		holdings_has_object(check->holdings, object->object))
		return check_broken(check, "id of an object is out of range or in use");
	if (object->kind > 1 || object->resource > CU_RESOURCE_TYPE_PITCH2D || object->value)
		return check_broken(check, "kind of object or resource is unknown, or its handle is chosen");
	if (object->has_texture != !object->kind ||
		(object->kind && (object->has_view || object->resource != CU_RESOURCE_TYPE_ARRAY)))
		return check_broken(check, "description of an object does not fit its kind");
	if (object->resource <= CU_RESOURCE_TYPE_MIPMAPPED_ARRAY &&
		!holdings_has_backed(check->holdings, object->array))
		return check_answer(check, CUDA_ERROR_INVALID_HANDLE);
	return 0;
}

static bool has(const struct holdings *holdings, const struct wire_message *message)
{
	return holdings_has_object(holdings, message->object.object);
}

/* With the handle in the reply. */
static int fill(struct holding *entry, const struct wire_message *message, const struct wire_u64s *values)
{
	struct wire_object form = message->object;

	form.value = values->count ? values->at[0] : 0;
	return holding_fill_form(entry, form.object, &form, sizeof(form));
}

static void again(const struct holding *entry, struct wire_message *message)
{
	memcpy(&message->object, entry->form, sizeof(message->object));
}

static void drop(struct holdings *holdings, const struct wire_message *message)
{
	holdings_remove_id(holdings, WIRE_MAKE_OBJECT, message->object.object);
}

const struct resource resource_object_make = {.check = check_make,
	.fill = fill,
	.again = again,
	.has = has,
	.ids = FRMPS_OBJECT_IDS,
	.form_bytes = sizeof(struct wire_object)};
const struct resource resource_object_drop = {.has = has, .drop = drop};
