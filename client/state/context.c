// The table of contexts. Runs on the program's threads. The table's lock guards slots, counts and flags; it
// is never held while work is waited for or the program's destructors run.
//
//   created:  FREE ──create──► LIVE ──destroy──► ENDING ──► DEAD ──(slot taken again, oldest first)──► LIVE
//   primary:  DEAD ──retain──► LIVE ──last release, reset──► ENDING ──► DEAD
//
// Who retains a primary context that is ending waits for its end, and begins the next life. Only a destructor
// of the program's, on the thread that ends it, cannot wait: that thread begins the next life when it is
// done.

#include "client/state/context.h"

#include <pthread.h>
#include <string.h>

#include "client/graph/memory.h"
#include "client/state/array.h"
#include "client/state/cls.h"
#include "client/state/device.h"
#include "client/state/event.h"
#include "client/state/host.h"
#include "client/state/instance.h"
#include "client/state/limit.h"
#include "client/state/managed.h"
#include "client/state/memory.h"
#include "client/state/mempool.h"
#include "client/state/module.h"
#include "client/state/process.h"
#include "client/state/object.h"
#include "client/state/registered.h"
#include "client/state/stream.h"
#include "client/state/thread.h"
#include "client/submit/wait.h"
#include "client/text/text.h"
#include "shm/order.h"
#include "shm/text.h"

#define CONTEXTS 256
#define PRIMARY	 0 /* slot of device 0's primary context */
/* Less than the local memory that a thread can have on any device. */
#define STACK_BYTES_MAX ((512u << 10) - 1)

enum life { FREE, LIVE, ENDING, DEAD };

struct context {
	word32 life; /* enum life */
	int device;
	unsigned int flags;
	unsigned int uses; /* retains of a primary context, attaches of another */
	bool wanted;	   /* a primary context was retained by the thread that ends it */
	const struct thread *ender;
	word64 id;
	uint64_t ended; /* tells the oldest dead slot */
	CUfunc_cache cache_config;
	CUsharedconfig shared_config;
	bool limit_set[DEVICE_LIMITS_MAX];
	uint64_t limits[DEVICE_LIMITS_MAX];
	struct cls_map cls;
};

static struct context table[CONTEXTS] = {[0 ... CONTEXTS - 1] = {.cls = CLS_MAP_INIT}};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER; /* the primary context */
static uint64_t latest_id, latest_end;			/* guarded by lock */

static CUcontext handle_of(struct context *context)
{
	return (CUcontext)context;
}

/* The slot behind a handle, used at least once; NULL for anything else. */
static struct context *resolve(CUcontext handle)
{
	uintptr_t offset = (uintptr_t)handle - (uintptr_t)table;
	struct context *context;

	if (offset >= sizeof(table) || offset % sizeof(*table) != 0)
		return NULL;
	context = &table[offset / sizeof(*table)];
	return context == &table[PRIMARY] || word_acquire(&context->life) != FREE ? context : NULL;
}

static struct context *primary_of(int device)
{
	return device_get(device) ? &table[PRIMARY] : NULL;
}

CUcontext context_primary(int device)
{
	struct context *context = primary_of(device);

	return context ? handle_of(context) : NULL;
}

bool context_is_live(CUcontext handle)
{
	struct context *context = resolve(handle);

	return context && word_acquire(&context->life) == LIVE;
}

bool context_is_known(CUcontext handle)
{
	return resolve(handle) != NULL;
}

uint64_t context_id(CUcontext handle)
{
	struct context *context = resolve(handle);

	return context ? word_acquire(&context->id) : 0;
}

int context_device(CUcontext handle)
{
	struct context *context = resolve(handle);

	return context ? context->device : -1;
}

struct cls_map *context_cls(CUcontext handle)
{
	struct context *context = resolve(handle);

	/* Not in a forked child: a writer may have been at work. */
	return context && process_enter() != CUDA_ERROR_NOT_INITIALIZED ? &context->cls : NULL;
}

unsigned int context_flags(CUcontext handle)
{
	struct context *context = resolve(handle);

	return context ? context->flags : 0;
}

void context_set_flags(CUcontext handle, unsigned int flags)
{
	struct context *context = resolve(handle);

	if (context)
		context->flags = flags;
}

/* Limits as the device has them, until the program says otherwise. */
static CUresult find_limit(CUcontext handle, CUlimit limit, struct context **ret_context,
	const struct client_device **ret_device)
{
	struct context *context = resolve(handle);
	const struct client_device *device = context ? device_get(context->device) : NULL;

	if (!device)
		return CUDA_ERROR_INVALID_CONTEXT;
	if ((unsigned int)limit >= CU_LIMIT_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	if ((unsigned int)limit >= device->limit_count || device->limits[limit] == LIMIT_NONE)
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	*ret_context = context;
	*ret_device = device;
	return CUDA_SUCCESS;
}

CUresult context_limit(CUcontext handle, CUlimit limit, size_t *ret_value)
{
	const struct client_device *device;
	struct context *context;
	CUresult r = find_limit(handle, limit, &context, &device);

	if (r == CUDA_SUCCESS)
		*ret_value = context->limit_set[limit] ? context->limits[limit] : device->limits[limit];
	return r;
}

/* As the driver rounds it, and no more than there can be. Not any more when a kernel has printed. */
static CUresult set_text_limit(size_t *value)
{
	CUresult r = CUDA_SUCCESS;

	if (*value < SHM_TEXT_BYTES_MIN)
		*value = SHM_TEXT_BYTES_MIN;
	*value = *value < SHM_TEXT_BYTES_MAX ? (*value + 255) & ~(size_t)255 : SHM_TEXT_BYTES_MAX;
	if (text_is_used())
		return CUDA_ERROR_INVALID_VALUE;
	if (text_is_open())
		r = wait_all();
	return r == CUDA_SUCCESS && text_is_open() ? text_open(*value) : r;
}

CUresult context_set_limit(CUcontext handle, CUlimit limit, size_t value)
{
	const struct client_device *device;
	struct context *context;
	CUresult r = find_limit(handle, limit, &context, &device);

	if (r != CUDA_SUCCESS)
		return r;
	/* These can only be asked for. */
	if (limit >= CU_LIMIT_SHMEM_SIZE)
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	if (limit == CU_LIMIT_STACK_SIZE && value > STACK_BYTES_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	if (limit == CU_LIMIT_PRINTF_FIFO_SIZE)
		r = set_text_limit(&value);
	else
		r = limit_raise(limit, device->limits[limit], &value);
	if (r != CUDA_SUCCESS)
		return r;
	context->limits[limit] = value;
	context->limit_set[limit] = true;
	return CUDA_SUCCESS;
}

CUfunc_cache context_cache_config(CUcontext handle)
{
	struct context *context = resolve(handle);

	return context ? context->cache_config : CU_FUNC_CACHE_PREFER_NONE;
}

void context_set_cache_config(CUcontext handle, CUfunc_cache config)
{
	struct context *context = resolve(handle);

	if (context)
		context->cache_config = config;
}

CUsharedconfig context_shared_config(CUcontext handle)
{
	struct context *context = resolve(handle);

	return context ? context->shared_config : CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
}

void context_set_shared_config(CUcontext handle, CUsharedconfig config)
{
	struct context *context = resolve(handle);

	if (context)
		context->shared_config = config;
}

/* Id of a context that lives, 0 if none does. */
static uint64_t any_live(void)
{
	for (int i = PRIMARY; i < CONTEXTS; ++i)
		if (word_acquire(&table[i].life) == LIVE)
			return word_acquire(&table[i].id);
	return 0;
}

/* Under the lock. */
static void begin_life(struct context *context, int device)
{
	uint64_t other = any_live();

	if (other)
		instance_divide(other);

	context->device = device;
	context->cache_config = CU_FUNC_CACHE_PREFER_NONE;
	context->shared_config = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
	memset(context->limit_set, 0, sizeof(context->limit_set));
	word_release(&context->id, ++latest_id);
	word_release(&context->life, LIVE);
}

/* Under the lock: a slot that was never used, or the one that is dead for the longest time. */
static struct context *take_slot(void)
{
	struct context *best = NULL;

	for (int i = PRIMARY + 1; i < CONTEXTS; ++i) {
		struct context *context = &table[i];
		uint32_t life = word_relaxed(&context->life);

		if (life == FREE)
			return context;
		if (life == DEAD && (!best || context->ended < best->ended))
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
		context->flags = flags;
		context->uses = 1;
		begin_life(context, device);
	}
	pthread_mutex_unlock(&lock);
	if (!context)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret_context = handle_of(context);
	return CUDA_SUCCESS;
}

/* Frees what belongs to a context that nobody can use any more. After a fault only what is known here is
 * forgotten. */
static CUresult release_all(struct context *context)
{
	CUcontext handle = handle_of(context);
	CUresult r = CUDA_SUCCESS;

	cls_map_clear(&context->cls, handle);
	wait_all();
	module_release_context(handle);
	r = module_sleep_libraries(any_live() ? word_acquire(&context->id) : 0);
	event_release_context(handle);
	stream_release_context(handle);
	registered_release_context(handle);
	managed_release_context(handle);
	object_release_context(handle);
	array_release_context(handle);
	host_release_context(handle);
	graph_memory_release_context(handle);
	memory_release_context(handle);
	/* A fault is told elsewhere. */
	return process_error() == CUDA_SUCCESS ? r : CUDA_SUCCESS;
}

static CUresult end_life(struct context *context)
{
	CUresult r = release_all(context);

	pthread_mutex_lock(&lock);
	context->ended = ++latest_end;
	context->uses = 0;
	word_release(&context->life, DEAD);
	pthread_mutex_unlock(&lock);
	return r;
}

CUresult context_destroy(CUcontext handle)
{
	struct context *context = resolve(handle);
	uint32_t live = LIVE;

	if (!context || context == &table[PRIMARY])
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!atomic_compare_exchange_strong(&context->life, &live, ENDING))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	return end_life(context);
}

CUresult context_attach(CUcontext handle)
{
	struct context *context = resolve(handle);

	if (!context_is_live(handle))
		return CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&lock);
	++context->uses;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

CUresult context_detach(CUcontext handle)
{
	struct context *context = resolve(handle);
	bool last;

	if (!context_is_live(handle) || context == &table[PRIMARY])
		return CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&lock);
	last = context->uses <= 1;
	context->uses -= !last;
	pthread_mutex_unlock(&lock);
	return last ? context_destroy(handle) : CUDA_SUCCESS;
}

/* Waits for the end of a primary context, unless the caller is in the middle of it. Under the lock. */
static void await_end(struct context *context)
{
	int cancelable;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable);
	while (word_relaxed(&context->life) == ENDING && context->ender != thread_self())
		pthread_cond_wait(&ended, &lock);
	pthread_setcancelstate(cancelable, NULL);
}

/* Under the lock. */
static CUresult retain(struct context *context, int device)
{
	uint32_t life = word_relaxed(&context->life);

	/* After a fault a process gets no second context. */
	if (process_error() != CUDA_SUCCESS && life == DEAD)
		return CUDA_ERROR_DEVICE_UNAVAILABLE;
	++context->uses;
	if (life == ENDING)
		context->wanted = true;
	else if (life != LIVE)
		begin_life(context, device);
	return CUDA_SUCCESS;
}

CUresult context_primary_retain(int device, CUcontext *ret_context)
{
	struct context *context = primary_of(device);
	CUresult r;

	if (!context)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&lock);
	await_end(context);
	r = retain(context, device);
	pthread_mutex_unlock(&lock);
	if (r == CUDA_SUCCESS)
		*ret_context = handle_of(context);
	return r;
}

/* Whether the caller ends the primary context. Under the lock, with what made it the last one to use it. */
static bool begin_end(struct context *context)
{
	if (word_relaxed(&context->life) != LIVE)
		return false;
	context->ender = thread_self();
	word_release(&context->life, ENDING);
	return true;
}

static CUresult end_primary(struct context *context, int device, bool resets)
{
	CUresult r = release_all(context);

	/* Memory of pools belongs to the device: contexts that live still use it. */
	if (resets && !any_live())
		mempool_reset();
	pthread_mutex_lock(&lock);
	word_release(&context->life, DEAD);
	if (context->wanted)
		begin_life(context, device);
	context->wanted = false;
	pthread_cond_broadcast(&ended);
	pthread_mutex_unlock(&lock);
	return r;
}

CUresult context_primary_release(int device)
{
	struct context *context = primary_of(device);
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
	struct context *context = primary_of(device);
	bool ends;

	if (!context)
		return CUDA_ERROR_INVALID_DEVICE;
	/* The retains count on: each still wants its release, and the next one begins a new life. */
	pthread_mutex_lock(&lock);
	ends = begin_end(context);
	pthread_mutex_unlock(&lock);
	return ends ? end_primary(context, device, true) : CUDA_SUCCESS;
}

void context_primary_state(int device, unsigned int *ret_flags, int *ret_active)
{
	struct context *context = primary_of(device);

	*ret_flags = context ? context->flags : 0;
	*ret_active = context && word_acquire(&context->life) == LIVE;
}
