// User objects: an object of the program with a count of references, some of which graphs hold. The
// call that releases the last reference calls the program's destructor itself, as the driver's
// calls do (cuGraphDestroy and cuUserObjectRelease, driver 580). A thread of the library destroys
// objects that launches held until their end: any call may notice that end, even under a lock that
// the destructor takes. The library makes the thread for the first such object. Entry points:
// entry/user_object.c.

#include "client/graph/objects.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "client/graph/graph.h"
#include "client/state/helper.h"
#include "client/state/thread.h"

#define OBJECT_MAGIC UINT32_C(0x55534f42)
#define OBJECT_SHIFT 6

struct object {
	struct slab_object object;
	uint64_t references;
	CUhostFn destroy;
	void *user;
	STAILQ_ENTRY(object) link; /* in `due` */
};

_Static_assert(sizeof(struct object) <= 1u << OBJECT_SHIFT, "a user object fits its place");

/* References of a graph to an object. */
struct graph_object {
	struct graph_object *next;
	struct object *object;
	unsigned int count;
};

static struct slab slab = SLAB_INIT(OBJECT_SHIFT, 1u << 20);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;	 /* guards counts and what follows */
static STAILQ_HEAD(, object) due = STAILQ_HEAD_INITIALIZER(due); /* to be destroyed */
static pthread_cond_t arrival = PTHREAD_COND_INITIALIZER;
static bool serving;

static struct object *find(CUuserObject handle)
{
	return slab_find(&slab, handle, OBJECT_MAGIC);
}

CUresult object_new(void *user, CUhostFn destroy, unsigned int references, CUuserObject *ret_object)
{
	struct object *object = slab_take(&slab);

	if (!object)
		return CUDA_ERROR_OUT_OF_MEMORY;
	object->references = references;
	object->destroy = destroy;
	object->user = user;
	atomic_store_explicit(&object->object.live, OBJECT_MAGIC, memory_order_release);
	*ret_object = (CUuserObject)(void *)object;
	return CUDA_SUCCESS;
}

static CUresult retain(struct object *object, unsigned int count)
{
	pthread_mutex_lock(&lock);
	object->references += count;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

CUresult object_retain(CUuserObject handle, unsigned int count)
{
	struct object *object = find(handle);

	return object && count ? retain(object, count) : CUDA_ERROR_INVALID_VALUE;
}

/* Destructors must not call the driver, so the thread has no context meanwhile. A destructor may
 * end the thread. */
static void finish(struct object *object)
{
	CUhostFn destroy = object->destroy;
	struct thread *self = thread_self();
	bool before = self->is_callbacks;
	CUcontext current = self->current;
	void *user = object->user;

	slab_give(&slab, object);
	self->is_callbacks = true;
	self->current = NULL;
	destroy(user);
	self->current = current;
	self->is_callbacks = before;
}

static void *serve(void *unused)
{
	struct object *object;

	(void)unused;
	for (;;) {
		pthread_mutex_lock(&lock);
		while (!(object = STAILQ_FIRST(&due)))
			pthread_cond_wait(&arrival, &lock);
		STAILQ_REMOVE_HEAD(&due, link);
		pthread_mutex_unlock(&lock);
		finish(object);
	}
	return NULL;
}

/* Passes an object to the thread. Under the lock. Return: false if there is no thread and none can
 * be made. */
static bool hand_over(struct object *object)
{
	serving = serving || helper_start(serve, NULL) == CUDA_SUCCESS;
	if (serving) {
		STAILQ_INSERT_TAIL(&due, object, link);
		pthread_cond_signal(&arrival);
	}
	return serving;
}

static CUresult release(struct object *object, unsigned int count, bool at_once)
{
	bool last, too_many, handed = false;

	pthread_mutex_lock(&lock);
	too_many = object->references < count;
	if (!too_many)
		object->references -= count;
	last = !too_many && object->references == 0;
	if (last) {
		atomic_store_explicit(&object->object.live, 0, memory_order_release);
		handed = !at_once && hand_over(object);
	}
	pthread_mutex_unlock(&lock);
	if (last && !handed)
		finish(object);
	return too_many ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult object_release(CUuserObject handle, unsigned int count)
{
	struct object *object = find(handle);

	return object && count ? release(object, count, true) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult hold(struct client_graph *graph, struct object *object, unsigned int count)
{
	struct graph_object *held = graph->objects;

	while (held && held->object != object)
		held = held->next;
	if (!held) {
		held = calloc(1, sizeof(*held));
		if (!held)
			return CUDA_ERROR_OUT_OF_MEMORY;
		held->object = object;
		held->next = graph->objects;
		graph->objects = held;
	}
	held->count += count;
	return CUDA_SUCCESS;
}

CUresult graph_retain_object(struct client_graph *graph, CUuserObject handle, unsigned int count, bool moves)
{
	struct object *object = find(handle);
	CUresult r;

	if (!object || !count)
		return CUDA_ERROR_INVALID_VALUE;
	r = hold(graph, object, count);
	return r == CUDA_SUCCESS && !moves ? retain(object, count) : r;
}

CUresult graph_release_object(
	struct client_graph *graph, CUuserObject handle, unsigned int count, struct graph_object **dropped)
{
	const struct object *object = find(handle);
	struct graph_object **at = &graph->objects, *part;

	while (*at && (*at)->object != object)
		at = &(*at)->next;
	if (!*at || !count || (*at)->count < count)
		return CUDA_ERROR_INVALID_VALUE;
	part = calloc(1, sizeof(*part));
	if (!part)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*part = (struct graph_object){.next = *dropped, .object = (*at)->object, .count = count};
	*dropped = part;
	(*at)->count -= count;
	if ((*at)->count == 0) {
		struct graph_object *empty = *at;

		*at = empty->next;
		free(empty);
	}
	return CUDA_SUCCESS;
}

CUresult graph_objects_clone(const struct client_graph *graph, struct client_graph *clone)
{
	CUresult r = CUDA_SUCCESS;

	for (const struct graph_object *held = graph->objects; held && r == CUDA_SUCCESS; held = held->next) {
		r = hold(clone, held->object, held->count);
		if (r == CUDA_SUCCESS)
			r = retain(held->object, held->count);
	}
	return r;
}

void graph_objects_join(struct graph_object *objects, struct graph_object *behind)
{
	while (objects->next)
		objects = objects->next;
	objects->next = behind;
}

void graph_objects_drop(struct graph_object *objects, bool at_once)
{
	while (objects) {
		struct graph_object *next = objects->next;

		release(objects->object, objects->count, at_once);
		free(objects);
		objects = next;
	}
}
