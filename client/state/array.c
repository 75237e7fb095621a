// See array.h. The lock guards the list of arrays, and the handles of levels; no thread asks the
// service under it.

#include "client/state/array.h"

#include <pthread.h>
#include <stdlib.h>

#include "client/link/control.h"
#include "client/state/heap.h"
#include "client/state/ids.h"
#include "client/state/log.h"
#include "client/state/memory.h"
#include "client/state/object.h"
#include "client/state/process.h"
#include "client/state/session.h"
#include "client/submit/wait.h"

#define ARRAY_MAGIC  UINT32_C(0x41525259)
#define MIPMAP_MAGIC UINT32_C(0x4d49504d)
#define ARRAY_SHIFT  9

_Static_assert(sizeof(struct client_array) <= 1 << ARRAY_SHIFT, "an array fits its place");

static struct slab slab = SLAB_INIT(ARRAY_SHIFT, 65536);
static uint64_t id_words[FRMPS_ARRAY_IDS / 64];
static struct ids ids = IDS_INIT(id_words);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct client_array *arrays;
static _Atomic uint64_t latest_serial;

struct client_array *array_find(CUarray handle)
{
	return slab_find(&slab, handle, ARRAY_MAGIC);
}

struct client_array *array_find_mipmapped(CUmipmappedArray handle)
{
	return slab_find(&slab, handle, MIPMAP_MAGIC);
}

bool array_is(const struct client_array *array, uint64_t serial)
{
	return array_find(array_handle(array)) && array->serial == serial;
}

/* ---- making ---- */

/* The most levels that halve the largest extent down to 1. */
static uint32_t most_levels(const CUDA_ARRAY3D_DESCRIPTOR *form)
{
	uint64_t layers = form->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
	uint64_t extent = form->Width | form->Height | (layers ? 0 : form->Depth);
	uint32_t count = 64 - (uint32_t)__builtin_clzll(extent | 1);

	return count < FRMPS_ARRAY_LEVELS ? count : FRMPS_ARRAY_LEVELS;
}

static CUresult check(const struct array_wish *wish, struct wire_array *ret_form)
{
	const CUDA_ARRAY3D_DESCRIPTOR *d = &wish->form;
	uint32_t levels = wish->levels ? most_levels(d) : 0;
	struct texel_level level;

	if (d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) {
		client_log(
			CLIENT_LOG_ERROR, "sparse arrays and arrays of deferred mapping are not supported");
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	if (texel_is_video((uint32_t)d->Format)) {
		client_log(CLIENT_LOG_ERROR, "arrays of format %#x (video) are not supported", d->Format);
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	*ret_form = (struct wire_array){
		.levels = wish->levels < levels ? wish->levels : levels,
		.width = d->Width,
		.height = d->Height,
		.depth = d->Depth,
		.format = (uint32_t)d->Format,
		.channels = d->NumChannels,
		.flags = d->Flags,
	};
	return d->Width && texel_level(ret_form, 0, &level) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Sends a request; ret_values: two values of a reply that has these. */
static CUresult ask(struct wire_message *request, uint64_t *ret_values)
{
	struct control_answer *answer = control_answer_new();
	CUresult r = answer ? control_call(request, answer) : CUDA_ERROR_OUT_OF_MEMORY;
	const struct wire_u64s *values = answer ? &answer->message.reply.values : NULL;

	if (r == CUDA_SUCCESS && ret_values) {
		if (values->count != 2)
			r = CUDA_ERROR_UNKNOWN;
		for (uint32_t i = 0; r == CUDA_SUCCESS && i < 2; ++i)
			ret_values[i] = values->at[i];
	}
	control_answer_free(answer);
	return r;
}

static void drop(uint32_t id)
{
	struct wire_message request = {.type = WIRE_DROP_ARRAY};

	request.array.array = id;
	if (ask(&request, NULL) == CUDA_SUCCESS)
		ids_give(&ids, id);
}

static void free_memory(struct range *memory)
{
	struct range taken;

	if (memory->block && ranges_take(memory->address, RANGE_ARRAY, &taken) == 0)
		memory_free_block(taken.block);
	memory->block = NULL;
}

/* Large blocks begin at chunks, whose alignment is more than any array needs. */
static CUresult take_memory(struct client_array *array, const uint64_t need[2])
{
	struct wire_message request = {.type = WIRE_BACK_ARRAY};
	uint64_t slack = need[0] > HEAP_SMALL_MAX ? 0 : need[1];
	uint64_t at;
	CUresult r;

	if (!need[0] || !need[1] || need[1] & (need[1] - 1) || need[1] > HEAP_GRAIN)
		return CUDA_ERROR_UNKNOWN;
	array->memory =
		(struct range){.bytes = need[0] + slack, .kind = RANGE_ARRAY, .owner = array->context};
	r = memory_alloc_range(&array->memory);
	if (r != CUDA_SUCCESS)
		return r;
	at = (array->memory.address + need[1] - 1) & ~(need[1] - 1);
	request.back_array = (struct wire_back_array){array->form.array, at, need[0], 0, 0};
	r = ask(&request, NULL);
	if (r != CUDA_SUCCESS)
		free_memory(&array->memory);
	return r;
}

static CUresult make(struct client_array *array)
{
	struct wire_message request = {.type = WIRE_MAKE_ARRAY};
	uint64_t need[2];
	CUresult r;

	array->form.array = ids_take(&ids);
	if (!array->form.array)
		return CUDA_ERROR_OUT_OF_MEMORY;
	request.array = array->form;
	r = ask(&request, need);
	if (r != CUDA_SUCCESS) {
		ids_give(&ids, array->form.array);
		return r;
	}
	r = take_memory(array, need);
	if (r != CUDA_SUCCESS)
		drop(array->form.array);
	return r;
}

static void publish(struct client_array *array, uint32_t magic)
{
	array->serial = atomic_fetch_add(&latest_serial, 1) + 1;
	atomic_store_explicit(&array->object.live, magic, memory_order_release);
}

static void retire(struct client_array *array)
{
	atomic_store_explicit(&array->object.live, 0, memory_order_release);
	free(array->levels);
	array->levels = NULL;
	slab_give(&slab, array);
}

static void enlist(struct client_array *array)
{
	pthread_mutex_lock(&lock);
	array->next = arrays;
	arrays = array;
	pthread_mutex_unlock(&lock);
}

CUresult array_create(CUcontext context, const struct array_wish *wish, struct client_array **ret_array)
{
	struct client_array *array;
	struct wire_array form;
	CUresult r = check(wish, &form);

	if (r != CUDA_SUCCESS)
		return r;
	array = slab_take(&slab);
	if (!array)
		return CUDA_ERROR_OUT_OF_MEMORY;
	array->form = form;
	array->session = session_self();
	array->context = context;
	if (form.levels)
		array->levels = calloc(FRMPS_ARRAY_LEVELS, sizeof(struct client_array *));
	r = form.levels && !array->levels ? CUDA_ERROR_OUT_OF_MEMORY : make(array);
	if (r != CUDA_SUCCESS) {
		retire(array);
		return r;
	}
	enlist(array);
	publish(array, form.levels ? MIPMAP_MAGIC : ARRAY_MAGIC);
	*ret_array = array;
	return CUDA_SUCCESS;
}

/* Under the lock. */
static CUresult find_level(struct client_array *mipmapped, uint32_t number, struct client_array **ret_array)
{
	struct client_array *level = mipmapped->levels[number];

	if (!level) {
		level = slab_take(&slab);
		if (!level)
			return CUDA_ERROR_OUT_OF_MEMORY;
		level->form = mipmapped->form;
		level->level = number;
		level->whole = mipmapped;
		level->session = mipmapped->session;
		level->context = mipmapped->context;
		mipmapped->levels[number] = level;
		publish(level, ARRAY_MAGIC);
	}
	*ret_array = level;
	return CUDA_SUCCESS;
}

CUresult array_level(struct client_array *mipmapped, uint32_t number, struct client_array **ret_array)
{
	CUresult r = CUDA_ERROR_INVALID_HANDLE;

	if (number >= mipmapped->form.levels)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	/* Another thread may be ending the array. */
	if (mipmapped->levels)
		r = find_level(mipmapped, number, ret_array);
	pthread_mutex_unlock(&lock);
	return r;
}

/* ---- looking ---- */

void array_geometry(const struct client_array *array, struct texel_level *ret_level)
{
	/* The geometry was checked at the creation, and no level is larger than the first. */
	if (!texel_level(&array->form, array->level, ret_level))
		*ret_level = (struct texel_level){1, 1, 1, 1};
}

static size_t shrunk(uint64_t extent, uint32_t level)
{
	return extent ? (extent >> level ? extent >> level : 1) : 0;
}

void array_describe(const struct client_array *array, CUDA_ARRAY3D_DESCRIPTOR *ret_form)
{
	const struct wire_array *form = &array->form;
	bool has_layers = form->flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);

	*ret_form = (CUDA_ARRAY3D_DESCRIPTOR){
		.Width = shrunk(form->width, array->level),
		.Height = shrunk(form->height, array->level),
		.Depth = has_layers ? form->depth : shrunk(form->depth, array->level),
		.Format = (CUarray_format)form->format,
		.NumChannels = form->channels,
		.Flags = form->flags,
	};
}

/* ---- the end ---- */

/* Removes an array from the list; false if another thread does. */
static bool delist(struct client_array *array)
{
	struct client_array **at = &arrays;
	bool found;

	pthread_mutex_lock(&lock);
	while (*at && *at != array)
		at = &(*at)->next;
	found = *at;
	if (found)
		*at = array->next;
	pthread_mutex_unlock(&lock);
	return found;
}

/* The array is out of the list, and its work is done. */
static void finish(struct client_array *array)
{
	struct client_array **levels = array->levels;

	atomic_store_explicit(&array->object.live, 0, memory_order_release);
	pthread_mutex_lock(&lock);
	array->levels = NULL;
	pthread_mutex_unlock(&lock);
	for (uint32_t i = 0; levels && i < FRMPS_ARRAY_LEVELS; ++i)
		if (levels[i])
			retire(levels[i]);
	free(levels);
	/* After a fault the work may never end; memory that it still writes is never reused. */
	if (process_error() == CUDA_SUCCESS) {
		object_reap();
		drop(array->form.array);
		free_memory(&array->memory);
	}
	retire(array);
}

CUresult array_destroy(struct client_array *array)
{
	SESSION_SCOPE(array->session);
	CUresult r;

	if (array->whole || !delist(array))
		return CUDA_ERROR_INVALID_VALUE;
	r = wait_all();
	finish(array);
	return r;
}

void array_release_context(CUcontext context)
{
	struct client_array **at, *array;

	do {
		pthread_mutex_lock(&lock);
		for (at = &arrays; *at && (*at)->context != context;)
			at = &(*at)->next;
		array = *at;
		if (array)
			*at = array->next;
		pthread_mutex_unlock(&lock);
		if (array)
			finish(array);
	} while (array);
}
