// See object.h. The lock guards the map of values; no thread asks the service under it.

#include "client/state/object.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/link/control.h"
#include "client/stage/copy.h"
#include "client/state/array.h"
#include "client/state/reclaim.h"
#include "client/state/ids.h"
#include "client/state/process.h"
#include "client/state/ranges.h"
#include "client/state/session.h"
#include "client/state/stream.h"
#include "client/submit/submit.h"
#include "client/submit/wait.h"

struct object {
	uint32_t id;
	CUcontext context;
	struct object_form form;
};

/* Work that may use an object that was destroyed: the last command of a stream. */
struct use {
	struct client_stream *stream;
	uint64_t seq;
};

struct retired {
	struct reclaim reclaim;
	struct session *session;
	uint32_t id, count;
	struct use uses[];
};

static uint64_t id_words[FRMPS_OBJECT_IDS / 64];
static struct ids ids = IDS_INIT(id_words);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct range_map *own(void)
{
	return &session_self()->objects.map;
}

/* ---- the service's objects ---- */

static CUresult ask(struct wire_message *request, uint64_t *ret_value)
{
	struct control_answer *answer = control_answer_new();
	CUresult r = answer ? control_call(request, answer) : CUDA_ERROR_OUT_OF_MEMORY;

	if (r == CUDA_SUCCESS && ret_value) {
		const struct wire_u64s *values = &answer->message.reply.values;

		r = values->count == 1 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
		*ret_value = values->count == 1 ? values->at[0] : 0;
	}
	control_answer_free(answer);
	return r;
}

/* The object may have been freed with its array. */
static void drop(uint32_t id)
{
	struct wire_message request = {.type = WIRE_DROP_OBJECT};
	CUresult r;

	request.object.object = id;
	r = ask(&request, NULL);
	if (r == CUDA_SUCCESS || r == CUDA_ERROR_INVALID_HANDLE)
		ids_give(&ids, id);
}

/* ---- making ---- */

static CUresult take_array(const struct client_array *array, struct wire_object *wish)
{
	if (!array)
		return CUDA_ERROR_INVALID_VALUE;
	if (array->session != session_self())
		return CUDA_ERROR_INVALID_VALUE;
	/* A level is part of the array that the service knows. */
	wish->array = array->form.array;
	wish->level = array->level;
	return CUDA_SUCCESS;
}

/* Where the device finds some of the program's memory. */
static CUresult take_memory(CUdeviceptr address, uint64_t bytes, struct wire_object *wish)
{
	struct copy_side side;
	CUresult r = copy_classify(address, bytes, &side);

	if (r == CUDA_SUCCESS && !copy_reaches(&side))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		wish->address = address + side.shift;
	return r;
}

static CUresult take_rows(const CUDA_RESOURCE_DESC *d, struct wire_object *wish)
{
	uint64_t bytes, last = d->res.pitch2D.width * (uint64_t)texel_bytes(wish->format, wish->channels);

	wish->width = d->res.pitch2D.width;
	wish->height = d->res.pitch2D.height;
	wish->pitch = d->res.pitch2D.pitchInBytes;
	if (!last || wish->width > UINT32_MAX || !wish->height ||
		__builtin_mul_overflow(wish->height - 1, wish->pitch, &bytes) ||
		__builtin_add_overflow(bytes, last, &bytes))
		return CUDA_ERROR_INVALID_VALUE;
	return take_memory(d->res.pitch2D.devPtr, bytes, wish);
}

static CUresult take_resource(const CUDA_RESOURCE_DESC *d, struct wire_object *wish)
{
	wish->resource = (uint32_t)d->resType;
	switch (d->resType) {
	case CU_RESOURCE_TYPE_ARRAY:
		return take_array(array_find(d->res.array.hArray), wish);
	case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
		return take_array(array_find_mipmapped(d->res.mipmap.hMipmappedArray), wish);
	case CU_RESOURCE_TYPE_LINEAR:
		wish->format = (uint32_t)d->res.linear.format;
		wish->channels = d->res.linear.numChannels;
		wish->bytes = d->res.linear.sizeInBytes;
		if (!wish->bytes || !texel_bytes(wish->format, wish->channels))
			return CUDA_ERROR_INVALID_VALUE;
		return take_memory(d->res.linear.devPtr, wish->bytes, wish);
	case CU_RESOURCE_TYPE_PITCH2D:
		wish->format = (uint32_t)d->res.pitch2D.format;
		wish->channels = d->res.pitch2D.numChannels;
		return take_rows(d, wish);
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

/* Fetches from linear memory use the element's number: the rest of the description is ignored. */
static void take_texture(const struct object_form *form, struct wire_object *wish)
{
	CUDA_TEXTURE_DESC texture = form->texture;

	if (form->resource.resType == CU_RESOURCE_TYPE_LINEAR) {
		memset(texture.addressMode, 0, sizeof(texture.addressMode));
		texture.filterMode = CU_TR_FILTER_MODE_POINT;
		texture.flags &= ~(unsigned int)CU_TRSF_NORMALIZED_COORDINATES;
	}
	_Static_assert(sizeof(texture) == WIRE_TEXTURE_BYTES, "as the protocol says");
	memcpy(wish->texture, &texture, sizeof(texture));
	wish->has_texture = true;
}

static CUresult encode(const struct object_form *form, struct wire_object *wish)
{
	wish->kind = form->kind == OBJECT_SURFACE;
	wish->has_view = form->has_view;
	_Static_assert(sizeof(form->view) == WIRE_VIEW_BYTES, "as the protocol says");
	if (form->kind == OBJECT_TEXTURE)
		take_texture(form, wish);
	if (wish->has_view)
		memcpy(wish->view, &form->view, sizeof(form->view));
	if (form->resource.flags)
		return CUDA_ERROR_INVALID_VALUE;
	return take_resource(&form->resource, wish);
}

/* An object with the same value was freed with its array: the driver has reused the value. */
static CUresult enlist(uint64_t value, struct object *object)
{
	const struct range entry = {.address = value, .bytes = 1, .room = 1, .block = object};
	struct range former = {0};
	int e;

	pthread_mutex_lock(&lock);
	range_map_remove(own(), value, &former);
	e = range_map_add(own(), &entry);
	pthread_mutex_unlock(&lock);
	if (former.block) {
		drop(((struct object *)former.block)->id);
		free(former.block);
	}
	return e ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static uint32_t take_id(void)
{
	uint32_t id = ids_take(&ids);

	/* All ids wait for the end of work. */
	if (!id && wait_all() == CUDA_SUCCESS) {
		object_reap();
		id = ids_take(&ids);
	}
	return id;
}

static CUresult make(struct object *object, uint64_t *ret_value)
{
	struct wire_message request = {.type = WIRE_MAKE_OBJECT};
	CUresult r = encode(&object->form, &request.object);

	if (r != CUDA_SUCCESS)
		return r;
	object->id = request.object.object = take_id();
	if (!object->id)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = ask(&request, ret_value);
	if (r != CUDA_SUCCESS) {
		ids_give(&ids, object->id);
		return r;
	}
	r = enlist(*ret_value, object);
	if (r != CUDA_SUCCESS)
		drop(object->id);
	return r;
}

CUresult object_create(CUcontext context, const struct object_form *form, uint64_t *ret_value)
{
	struct object *object = malloc(sizeof(*object));
	CUresult r;

	if (!object)
		return CUDA_ERROR_OUT_OF_MEMORY;
	object_reap();
	*object = (struct object){.context = context, .form = *form};
	r = make(object, ret_value);
	if (r != CUDA_SUCCESS)
		free(object);
	return r;
}

CUresult object_describe(enum object_kind kind, uint64_t value, struct object_form *ret_form)
{
	const struct range *entry;
	const struct object *object;
	bool found;

	pthread_mutex_lock(&lock);
	entry = range_map_find(own(), value);
	object = entry ? entry->block : NULL;
	found = object && object->form.kind == kind;
	if (found)
		*ret_form = object->form;
	pthread_mutex_unlock(&lock);
	return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- the end ---- */

static bool is_over(const struct reclaim *reclaim)
{
	const struct retired *retired = (const struct retired *)reclaim;

	for (uint32_t i = 0; i < retired->count; ++i)
		if (!wait_is_done(retired->uses[i].stream, retired->uses[i].seq))
			return false;
	return true;
}

static struct reclaim_list pending = RECLAIM_LIST_INIT(is_over);

void object_reap(void)
{
	struct retired *retired;

	while ((retired = (struct retired *)reclaim_take(&pending))) {
		SESSION_SCOPE(retired->session);
		if (process_error() == CUDA_SUCCESS)
			drop(retired->id);
		free(retired);
	}
}

/* The work that may use the object: everything submitted to any stream so far. */
static struct retired *retired_new(uint32_t id)
{
	uint32_t used = stream_slots_used();
	struct retired *retired = malloc(sizeof(*retired) + used * sizeof(retired->uses[0]));

	if (!retired)
		return NULL;
	*retired = (struct retired){.session = session_self(), .id = id};
	for (uint32_t slot = 0; slot < used; ++slot) {
		struct client_stream *stream = stream_slot(slot);
		uint64_t seq = word_acquire(&stream->last);

		if (stream->session != session_self() || seq == 0 || wait_is_done(stream, seq))
			continue;
		/* A mark makes the end visible. */
		submit_mark(stream, seq);
		retired->uses[retired->count++] = (struct use){stream, seq};
	}
	return retired;
}

static void retire(uint32_t id)
{
	struct retired *retired = retired_new(id);

	if (!retired) {
		if (wait_all() == CUDA_SUCCESS)
			drop(id);
		return;
	}
	reclaim_add(&pending, &retired->reclaim);
	object_reap();
}

void object_destroy(enum object_kind kind, uint64_t value)
{
	struct range taken = {0};
	const struct range *entry;
	struct object *object = NULL;

	pthread_mutex_lock(&lock);
	entry = range_map_find(own(), value);
	if (entry && ((struct object *)entry->block)->form.kind == kind &&
		range_map_remove(own(), value, &taken) == 0)
		object = taken.block;
	pthread_mutex_unlock(&lock);
	if (object)
		retire(object->id);
	free(object);
}

/* An object of a context; returns its value, or 0. */
static uint64_t find_of(CUcontext context)
{
	uint64_t value = 0;

	pthread_mutex_lock(&lock);
	for (unsigned int i = 0; !value && i < own()->count; ++i)
		for (unsigned int j = 0; !value && j < own()->leaves[i]->count; ++j) {
			const struct range *entry = &own()->leaves[i]->entries[j];

			if (((const struct object *)entry->block)->context == context)
				value = entry->address;
		}
	pthread_mutex_unlock(&lock);
	return value;
}

void object_release_context(CUcontext context)
{
	uint64_t value;

	while ((value = find_of(context))) {
		object_destroy(OBJECT_TEXTURE, value);
		object_destroy(OBJECT_SURFACE, value);
	}
}
