// Beginning and end of contexts. Runs on the program's threads. The table's lock guards slots,
// counts and flags; no thread waits for work or runs the program's destructors under it.
//
//   created:  FREE ──create──► LIVE ──destroy──► ENDING ──► DEAD ──(slot taken again, oldest first)──► LIVE
//   primary:  DEAD ──retain──► LIVE ──last release, reset──► ENDING ──► DEAD
//   green:    as created; it keeps its primary context alive, but a reset leaves it useless
//
// A thread that retains a primary context that is ending waits for its end, and begins the next
// life. Only a destructor of the program, on the thread that ends the context, cannot wait: that
// thread begins the next life after the end.

#include "client/state/context.h"

#include <pthread.h>
#include <string.h>

#include "client/graph/memory.h"
#include "client/state/array.h"
#include "client/state/context_table.h"
#include "client/state/event.h"
#include "client/state/host.h"
#include "client/state/instance.h"
#include "client/state/ipc.h"
#include "client/state/managed.h"
#include "client/state/memory.h"
#include "client/state/mempool.h"
#include "client/state/module.h"
#include "client/state/object.h"
#include "client/state/process.h"
#include "client/state/registered.h"
#include "client/state/session.h"
#include "client/state/stream.h"
#include "client/state/thread.h"
#include "client/submit/wait.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER; /* of the primary context */
static uint64_t latest_id, latest_end;			/* guarded by lock */

struct cls_map *context_cls(CUcontext handle)
{
	struct context *context = context_resolve(context_owner(handle));

	/* Not in a forked child: a writer may have been in the middle of a change. */
	return context && process_enter_early() != CUDA_ERROR_NOT_INITIALIZED ? &context->cls : NULL;
}

/* Green contexts live within others. */
static bool lives(const struct context *context)
{
	return word_acquire((word32 *)&context->life) == CONTEXT_LIVE && !context_is_green(context);
}

/* A live context, NULL without one. */
static struct context *any_live(void)
{
	for (int i = 0; i < CONTEXT_SLOTS; ++i)
		if (lives(&context_table[i]))
			return &context_table[i];
	return NULL;
}

static bool any_live_on(int device)
{
	for (int i = 0; i < CONTEXT_SLOTS; ++i)
		if (lives(&context_table[i]) && context_device(context_handle(&context_table[i])) == device)
			return true;
	return false;
}

/* Under the lock. */
static void begin_any_life(struct context *context, int device)
{
	context->session = &sessions[device];
	context->device = device;
	context->cache_config = CU_FUNC_CACHE_PREFER_NONE;
	context->shared_config = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
	memset(context->limit_set, 0, sizeof(context->limit_set));
	context->recorder = NULL;
	word_set(&context->awaited, 0);
	word_release(&context->id, ++latest_id);
	word_release(&context->life, CONTEXT_LIVE);
}

/* Under the lock. */
static void begin_life(struct context *context, int device)
{
	struct context *other = any_live();

	if (other)
		instance_divide(&sessions[context_device(context_handle(other))], word_acquire(&other->id));
	begin_any_life(context, device);
}

/* Under the lock: an unused slot, else the slot that is dead for the longest time. */
static struct context *take_slot(void)
{
	struct context *best = NULL;

	for (int i = CONTEXT_PRIMARIES; i < CONTEXT_SLOTS; ++i) {
		struct context *context = &context_table[i];
		uint32_t life = word_relaxed(&context->life);

		if (life == CONTEXT_FREE)
			return context;
		if (life == CONTEXT_DEAD && (!best || context->ended < best->ended))
			best = context;
	}
	return best;
}

CUresult context_create(int device, unsigned int flags, CUcontext *ret_context)
{
	struct context *context;

	pthread_mutex_lock(&lock);
	context = take_slot();
	if (context) {
		context->part = (struct part){.mask = 0};
		context->flags = flags;
		context->uses = 1;
		begin_life(context, device);
	}
	pthread_mutex_unlock(&lock);
	if (!context)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret_context = context_handle(context);
	return CUDA_SUCCESS;
}

/* Frees the resources of a context that no thread can use any more. After a fault only the
 * library's own records are freed. */
static CUresult release_all(struct context *context)
{
	CUcontext handle = context_handle(context);
	SESSION_SCOPE(&sessions[context_device(handle)]);
	CUresult r = CUDA_SUCCESS;

	cls_map_clear(&context->cls, handle);
	wait_all();
	module_release_context(handle);
	r = module_sleep_libraries(any_live() ? word_acquire(&context->id) : 0);
	event_release_context(handle);
	stream_release_context(handle);
	ipc_release_context(handle);
	registered_release_context(handle);
	managed_release_context(handle);
	object_release_context(handle);
	array_release_context(handle);
	host_release_context(handle);
	graph_memory_release_context(handle);
	memory_release_context(handle);
	/* Other calls report a fault. */
	return process_error() == CUDA_SUCCESS ? r : CUDA_SUCCESS;
}

static CUresult end_life(struct context *context)
{
	CUresult r = release_all(context);

	pthread_mutex_lock(&lock);
	context->ended = ++latest_end;
	context->uses = 0;
	word_release(&context->life, CONTEXT_DEAD);
	pthread_mutex_unlock(&lock);
	return r;
}

CUresult context_destroy(CUcontext handle)
{
	struct context *context = context_resolve(handle);
	uint32_t live = CONTEXT_LIVE;

	if (!context || context_is_primary(context) || context_is_green(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!atomic_compare_exchange_strong(&context->life, &live, CONTEXT_ENDING))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	return end_life(context);
}

CUresult context_begin_green(int device, const struct part *part, struct context **ret_context)
{
	struct context *context;
	CUcontext primary;
	CUresult r = context_primary_retain(device, &primary);

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&lock);
	context = take_slot();
	if (context) {
		word_set(&context_greens, 1);
		context->part = *part;
		context->own = NULL;
		context->within = context_id(primary);
		begin_any_life(context, device);
	}
	pthread_mutex_unlock(&lock);
	if (!context) {
		context_primary_release(device);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret_context = context;
	return CUDA_SUCCESS;
}

CUresult context_ending_green(struct context *context)
{
	uint32_t live = CONTEXT_LIVE;

	return atomic_compare_exchange_strong(&context->life, &live, CONTEXT_ENDING)
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult context_end_green(struct context *context)
{
	int device = context->device;

	pthread_mutex_lock(&lock);
	context->ended = ++latest_end;
	word_release(&context->life, CONTEXT_DEAD);
	pthread_mutex_unlock(&lock);
	return context_primary_release(device);
}

CUresult context_attach(CUcontext handle)
{
	struct context *context = context_resolve(handle);

	if (!context_is_live(handle))
		return CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&lock);
	++context->uses;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

CUresult context_detach(CUcontext handle)
{
	struct context *context = context_resolve(handle);
	bool last;

	if (!context_is_live(handle) || context_is_primary(context) || context_is_green(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&lock);
	last = context->uses <= 1;
	context->uses -= !last;
	pthread_mutex_unlock(&lock);
	return last ? context_destroy(handle) : CUDA_SUCCESS;
}

/* Waits for the end of a primary context, unless the calling thread ends it. Under the lock. */
static void await_end(struct context *context)
{
	int cancelable;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable);
	while (word_relaxed(&context->life) == CONTEXT_ENDING && context->ender != thread_self())
		pthread_cond_wait(&ended, &lock);
	pthread_setcancelstate(cancelable, NULL);
}

/* Under the lock. */
static CUresult retain(struct context *context, int device)
{
	uint32_t life = word_relaxed(&context->life);

	/* After a fault a process gets no second context on the device. */
	if (process_session_error(&sessions[device]) != CUDA_SUCCESS && life == CONTEXT_DEAD)
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	++context->uses;
	if (life == CONTEXT_ENDING)
		context->wanted = true;
	else if (life != CONTEXT_LIVE)
		begin_life(context, device);
	return CUDA_SUCCESS;
}

CUresult context_primary_retain(int device, CUcontext *ret_context)
{
	struct context *context = context_primary_slot(device);
	CUresult r;

	if (!context)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&lock);
	await_end(context);
	r = retain(context, device);
	pthread_mutex_unlock(&lock);
	if (r == CUDA_SUCCESS)
		*ret_context = context_handle(context);
	return r;
}

/* True if the caller must end the primary context. Under the lock, in the same section as the last
 * use. */
static bool begin_end(struct context *context)
{
	if (word_relaxed(&context->life) != CONTEXT_LIVE)
		return false;
	context->ender = thread_self();
	word_release(&context->life, CONTEXT_ENDING);
	return true;
}

static CUresult end_primary(struct context *context, int device, bool resets)
{
	SESSION_SCOPE(&sessions[device]);
	CUresult r = release_all(context);

	/* Memory of pools belongs to the device: live contexts still use it. */
	if (resets && !any_live_on(device))
		mempool_reset();
	pthread_mutex_lock(&lock);
	word_release(&context->life, CONTEXT_DEAD);
	if (context->wanted)
		begin_life(context, device);
	context->wanted = false;
	pthread_cond_broadcast(&ended);
	pthread_mutex_unlock(&lock);
	return r;
}

CUresult context_primary_release(int device)
{
	struct context *context = context_primary_slot(device);
	bool any, ends;

	if (!context)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&lock);
	any = context->uses > 0;
	context->uses -= any;
	ends = any && context->uses == 0 && begin_end(context);
	pthread_mutex_unlock(&lock);
	if (ends)
		return end_primary(context, device, false);
	return any ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult context_primary_reset(int device)
{
	struct context *context = context_primary_slot(device);
	bool ends;

	if (!context)
		return CUDA_ERROR_INVALID_DEVICE;
	/* The count of retains stays: each retain still needs its release, and the next retain
	 * begins a new life. */
	pthread_mutex_lock(&lock);
	ends = begin_end(context);
	pthread_mutex_unlock(&lock);
	return ends ? end_primary(context, device, true) : CUDA_SUCCESS;
}
