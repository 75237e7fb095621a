// See object.h. Module thread, or the end of the process.
//
//            made             dropped              found again: same form, same session
//   FREE ───────────► USED ─────────────► HELD ─────────────────────────────────────────► USED
//     ▲                 └─ its array goes ─► HELD without a form: a filler, never found
//     └────────────────── too many are held, or the value is wanted for another form

#include "server/executor/object.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/texel.h"
#include "server/executor/tenant.h"

/* Tries to get a freed value again before it counts as lost. */
#define TRIES 3u

/* An object of a session; in the session's table and, by value, in the pool. */
struct object {
	uint64_t value; /* 0: another object has the value now */
	uint32_t array; /* 0: over memory */
};

enum place_state { PLACE_FREE, PLACE_USED, PLACE_HELD };

struct object_place {
	enum place_state state;
	uint32_t kind;
	struct object *owner;	  /* PLACE_USED */
	struct wire_object *form; /* NULL: a filler; in a form, object and value are 0 */
	uint64_t session;	  /* owner of the form */
	uint64_t dropped;	  /* PLACE_HELD: number of the drop */
};

/* ---- the pool ---- */

/* NULL: beyond the limit, or no memory. */
static struct object_place *place_of(struct object_pool *pool, uint64_t value)
{
	uint64_t room = pool->room ? pool->room : 64;
	struct object_place *places;

	if (value >= OBJECT_VALUES)
		return NULL;
	while (room <= value)
		room *= 2;
	if (room > pool->room) {
		places = reallocarray(pool->places, room, sizeof(*places));
		if (!places)
			return NULL;
		for (uint64_t i = pool->room; i < room; i++)
			places[i] = (struct object_place){.state = PLACE_FREE};
		pool->places = places;
		pool->room = room;
	}
	return &pool->places[value];
}

void object_pool_deinit(struct object_pool *pool)
{
	for (uint64_t value = 0; value < pool->room; value++)
		free(pool->places[value].form);
	free(pool->places);
	*pool = (struct object_pool){0};
}

static void set_state(struct object_pool *pool, struct object_place *place, enum place_state state)
{
	pool->held += (uint64_t)(state == PLACE_HELD) - (place->state == PLACE_HELD);
	place->state = state;
	place->owner = NULL;
	place->dropped = ++pool->drops;
}

/* After this no session finds the object. */
static void forget_form(struct object_place *place)
{
	free(place->form);
	place->form = NULL;
}

static CUresult free_value(struct executor *executor, uint64_t value)
{
	struct object_pool *pool = &executor->modules.objects;
	struct object_place *place = &pool->places[value];
	CUresult code = executor_code(executor, executor->ops->object_free(place->kind, value));

	if (!code) {
		forget_form(place);
		set_state(pool, place, PLACE_FREE);
	}
	return code;
}

/* An object that is to be made. */
struct wish {
	struct wire_object form; /* object and value are 0 */
	uint64_t session;
	struct backend_array *array;
};

/* Makes the object at the next value of the driver, and holds it there as a filler. */
static CUresult make_filler(struct executor *executor, const struct wish *wish, uint64_t *ret_value)
{
	struct object_pool *pool = &executor->modules.objects;
	struct object_place *place;
	uint64_t value;
	CUresult code = executor_code(executor, executor->ops->object_make(&wish->form, wish->array, &value));

	if (code)
		return code;
	place = place_of(pool, value);
	if (!place) {
		executor_code(executor, executor->ops->object_free(wish->form.kind, value));
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	set_state(pool, place, PLACE_HELD);
	place->kind = wish->form.kind;
	*ret_value = value;
	return CUDA_SUCCESS;
}

static bool is_same(const struct object_place *place, const struct wish *wish)
{
	return place->state == PLACE_HELD && place->form && place->session == wish->session &&
	       !memcmp(place->form, &wish->form, sizeof(wish->form));
}

/* The active executor has given the value anew: the object that has the value here is about to be
 * dropped. */
static void dispossess(struct object_pool *pool, struct object_place *place)
{
	if (place->state != PLACE_USED)
		return;
	place->owner->value = 0;
	forget_form(place);
	set_state(pool, place, PLACE_HELD);
}

/* Makes the object at a value that another object has here. */
static CUresult make_instead(struct executor *executor, const struct wish *wish, uint64_t value)
{
	CUresult code = free_value(executor, value);
	uint64_t got = 0;

	for (unsigned i = 0; !code && got != value && i < TRIES; i++) {
		/* A served session's work on the device must not be waited for. */
		if (!tenant_is_any_served(executor))
			code = executor_code(executor, executor->ops->object_settle());
		if (!code)
			code = make_filler(executor, wish, &got);
	}
	if (!code && got != value)
		code = CUDA_ERROR_NOT_SUPPORTED;
	return code;
}

/* Makes or finds the object at exactly this value. */
static CUresult make_at(struct executor *executor, const struct wish *wish, uint64_t value)
{
	struct object_pool *pool = &executor->modules.objects;
	struct object_place *place = place_of(pool, value);
	CUresult code = CUDA_SUCCESS;
	uint64_t got = 0;

	if (!place)
		return CUDA_ERROR_NOT_SUPPORTED;
	dispossess(pool, place);
	if (is_same(place, wish))
		return CUDA_SUCCESS;
	if (place->state == PLACE_HELD)
		return make_instead(executor, wish, value);
	while (!code && got < value)
		code = make_filler(executor, wish, &got);
	return !code && got != value ? CUDA_ERROR_NOT_SUPPORTED : code;
}

static uint64_t find_same(const struct object_pool *pool, const struct wish *wish)
{
	for (uint64_t value = 1; pool->held && value < pool->room; value++)
		if (is_same(&pool->places[value], wish))
			return value;
	return 0;
}

static void free_oldest(struct executor *executor)
{
	struct object_pool *pool = &executor->modules.objects;
	uint64_t oldest = 0;

	for (uint64_t value = 1; value < pool->room; value++)
		if (pool->places[value].state == PLACE_HELD &&
			(!oldest || pool->places[value].dropped < pool->places[oldest].dropped))
			oldest = value;
	if (oldest)
		free_value(executor, oldest);
}

/* Makes or finds the object at any value. */
static CUresult make_anywhere(struct executor *executor, const struct wish *wish, uint64_t *ret_value)
{
	struct object_pool *pool = &executor->modules.objects;

	*ret_value = find_same(pool, wish);
	if (*ret_value)
		return CUDA_SUCCESS;
	if (pool->held > OBJECT_HELD_MAX)
		free_oldest(executor);
	return make_filler(executor, wish, ret_value);
}

/* ---- requests ---- */

static struct object **slot_of(struct tenant *tenant, uint32_t id)
{
	struct object_table *table = &tenant->objects;

	if (!table->objects)
		table->objects = calloc(FRMPS_OBJECT_IDS, sizeof(struct object *));
	return table->objects && id && id < FRMPS_OBJECT_IDS ? &table->objects[id] : NULL;
}

static bool is_over_array(const struct wire_object *form)
{
	return form->resource <= CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
}

/* Bytes from the first to the last of an object's memory. */
static bool span_of(const struct wire_object *form, uint64_t *ret_bytes)
{
	uint64_t last;

	if (form->resource == CU_RESOURCE_TYPE_LINEAR) {
		*ret_bytes = form->bytes;
		return form->bytes > 0;
	}
	if (!form->height || !form->width || form->width > UINT32_MAX)
		return false;
	last = form->width * texel_bytes(form->format, form->channels);
	return last && !__builtin_mul_overflow(form->height - 1, form->pitch, ret_bytes) &&
	       !__builtin_add_overflow(*ret_bytes, last, ret_bytes);
}

/* In a standby the memory may come a moment later, but the active executor has checked it. */
static bool is_own_memory(struct tenant *tenant, const struct wire_object *form)
{
	uint64_t bytes;

	return span_of(form, &bytes) &&
	       (!word_relaxed(&tenant->generation) || tenant_admits_anywhere(tenant, form->address, bytes));
}

/* Finds the object's array or memory. CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE. */
static CUresult find_resource(struct tenant *tenant, struct wish *wish)
{
	const struct array *array;

	if (!is_over_array(&wish->form))
		return is_own_memory(tenant, &wish->form) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	array = array_find(tenant, wish->form.array);
	if (!array || !array->is_backed)
		return CUDA_ERROR_INVALID_HANDLE;
	wish->array = array->backend;
	return CUDA_SUCCESS;
}

static CUresult take_value(
	struct tenant *tenant, const struct wire_object *form, struct wish *wish, uint64_t *ret_value)
{
	struct object_pool *pool = &tenant->executor->modules.objects;
	CUresult code = find_resource(tenant, wish);

	*ret_value = form->value;
	if (!code)
		code = form->value ? make_at(tenant->executor, wish, form->value)
				   : make_anywhere(tenant->executor, wish, ret_value);
	if (!code && !pool->places[*ret_value].form) {
		pool->places[*ret_value].form = malloc(sizeof(wish->form));
		pool->places[*ret_value].session = wish->session;
		if (pool->places[*ret_value].form)
			memcpy(pool->places[*ret_value].form, &wish->form, sizeof(wish->form));
	}
	return code;
}

static CUresult make(struct tenant *tenant, const struct wire_object *form, uint64_t *ret_value)
{
	struct object_pool *pool = &tenant->executor->modules.objects;
	struct object **slot = slot_of(tenant, form->object), *object;
	struct wish wish = {.session = tenant->id};
	CUresult code;

	if (!slot || *slot)
		return CUDA_ERROR_INVALID_VALUE;
	/* Forms are compared byte by byte, padding included: the decoder has zeroed the padding. */
	memcpy(&wish.form, form, sizeof(*form));
	wish.form.object = 0;
	wish.form.value = 0;
	object = calloc(1, sizeof(*object));
	code = object ? take_value(tenant, form, &wish, ret_value) : CUDA_ERROR_OUT_OF_MEMORY;
	if (code) {
		free(object);
		return code;
	}
	*object = (struct object){.value = *ret_value, .array = is_over_array(form) ? form->array : 0};
	set_state(pool, &pool->places[*ret_value], PLACE_USED);
	pool->places[*ret_value].owner = *slot = object;
	return CUDA_SUCCESS;
}

void object_make(struct job *job)
{
	uint64_t value = 0;
	CUresult code = make(job->tenant, &job->message.object, &value);

	job_reply(job, code, &value, code ? 0 : 1,
		code == CUDA_ERROR_NOT_SUPPORTED ? "a texture or surface object has another handle there"
						 : NULL);
}

static void end(struct tenant *tenant, struct object **slot)
{
	struct object_pool *pool = &tenant->executor->modules.objects;

	if ((*slot)->value)
		set_state(pool, &pool->places[(*slot)->value], PLACE_HELD);
	free(*slot);
	*slot = NULL;
}

void object_drop(struct job *job)
{
	struct object **slot = slot_of(job->tenant, job->message.object.object);

	/* Unless the object was ended with its array. */
	if (slot && *slot)
		end(job->tenant, slot);
	job_reply(job, CUDA_SUCCESS, NULL, 0, NULL);
}

/* Forgets the forms of a session's held objects over an array; 0: of all held objects of the
 * session. */
static void forget_held(struct tenant *tenant, uint32_t array)
{
	struct object_pool *pool = &tenant->executor->modules.objects;

	for (uint64_t value = 1; value < pool->room; value++) {
		struct object_place *place = &pool->places[value];

		if (place->form && place->state == PLACE_HELD && place->session == tenant->id &&
			(!array || (is_over_array(place->form) && place->form->array == array)))
			forget_form(place);
	}
}

void object_forget_array(struct tenant *tenant, uint32_t array)
{
	struct object **objects = tenant->objects.objects;

	for (uint32_t id = 1; objects && id < FRMPS_OBJECT_IDS; id++)
		if (objects[id] && objects[id]->array == array)
			end(tenant, &objects[id]);
	forget_held(tenant, array);
}

void object_table_deinit(struct tenant *tenant)
{
	struct object **objects = tenant->objects.objects;

	for (uint32_t id = 1; objects && id < FRMPS_OBJECT_IDS; id++)
		if (objects[id])
			end(tenant, &objects[id]);
	if (objects)
		forget_held(tenant, 0);
	free(objects);
	tenant->objects.objects = NULL;
}
