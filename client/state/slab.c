// The places of handle objects. Runs on the program's threads; owns the reserved addresses, which
// are kept until the process ends because programs may come with old handles at any time.

#include "client/state/slab.h"

#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

/* The leak checker scans only memory that is registered as holding pointers. */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#define LOOK_HERE(at, bytes) __lsan_register_root_region(at, bytes)
#else
#define LOOK_HERE(at, bytes)
#endif

/* Memory is made accessible in steps of this many objects. */
#define SLAB_STEP 256u
/* So many places stay free before the first is reused, so that old handles are noticed. */
#define SLAB_REST 4096u

static struct slab_object *object_at(const struct slab *slab, uint32_t index)
{
	uint8_t *base = atomic_load_explicit(&slab->base, memory_order_relaxed);

	return (struct slab_object *)(base + ((size_t)index << slab->shift));
}

static bool reserve(struct slab *slab)
{
	void *base;

	if (atomic_load_explicit(&slab->base, memory_order_relaxed))
		return true;
	base = mmap(NULL, (size_t)slab->capacity << slab->shift, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (base == MAP_FAILED)
		return false;
	atomic_store_explicit(&slab->base, base, memory_order_relaxed);
	return true;
}

static bool grow(struct slab *slab)
{
	uint32_t more = slab->capacity - slab->accessible;

	if (more > SLAB_STEP)
		more = SLAB_STEP;
	if (more == 0 || !reserve(slab))
		return false;
	if (mprotect(object_at(slab, slab->accessible), (size_t)more << slab->shift, PROT_READ | PROT_WRITE) <
		0)
		return false;
	LOOK_HERE(object_at(slab, slab->accessible), (size_t)more << slab->shift);
	slab->accessible += more;
	return true;
}

static struct slab_object *take_fresh(struct slab *slab)
{
	uint32_t used = atomic_load_explicit(&slab->used, memory_order_relaxed);

	if (used == slab->accessible && !grow(slab))
		return NULL;
	atomic_store_explicit(&slab->used, used + 1, memory_order_release);
	return object_at(slab, used);
}

static struct slab_object *take_oldest(struct slab *slab)
{
	struct slab_object *object;

	if (slab->first == 0)
		return NULL;
	object = object_at(slab, slab->first - 1);
	slab->first = object->next;
	slab->resting--;
	if (slab->first == 0)
		slab->last = 0;
	memset(object, 0, (size_t)1 << slab->shift);
	return object;
}

void *slab_take(struct slab *slab)
{
	struct slab_object *object;

	pthread_mutex_lock(&slab->lock);
	object = slab->resting < SLAB_REST ? take_fresh(slab) : NULL;
	if (!object)
		object = take_oldest(slab);
	pthread_mutex_unlock(&slab->lock);
	return object;
}

void slab_give(struct slab *slab, void *place)
{
	struct slab_object *object = place;
	uint32_t number = slab_index(slab, object) + 1;

	pthread_mutex_lock(&slab->lock);
	object->next = 0;
	if (slab->last != 0)
		object_at(slab, slab->last - 1)->next = number;
	else
		slab->first = number;
	slab->last = number;
	slab->resting++;
	pthread_mutex_unlock(&slab->lock);
}
