// Objects behind handles. All objects of a kind lie in a single reserved stretch of addresses, so
// that any handle value, also garbage and handles of dead objects, can be checked without an access
// to unmapped memory. A dead object stays in place, inert; its place is reused only after every
// other place, oldest first.
//
// slab_find() is lock-free and may run beside everything else. slab_take() and slab_give() take the
// slab's lock.

#ifndef FRMPS_CLIENT_STATE_SLAB_H
#define FRMPS_CLIENT_STATE_SLAB_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* First member of every object. */
struct slab_object {
	_Atomic uint32_t live; /* the owner's magic number while the object may be used, else 0 */
	uint32_t next;	       /* in the queue of free places: index + 1 of the next, 0 at the end */
};

/*
 * Invariants: objects 0 … used-1 lie in accessible memory and were taken at least once; base is set
 * before the first object, and never changes.
 */
struct slab {
	_Atomic(uint8_t *) base;
	_Atomic uint32_t used;
	const uint32_t shift;	 /* an object takes 1 << shift bytes */
	const uint32_t capacity; /* most objects: a power of two or 1 less */
	uint32_t accessible;	 /* number of accessible objects; guarded by lock, as the fields below */
	uint32_t first, last;	 /* queue of free places, index + 1 */
	uint32_t resting;	 /* length of the queue */
	pthread_mutex_t lock;
};

#define SLAB_INIT(object_shift, objects)                                                                     \
	{                                                                                                    \
		.shift = (object_shift), .capacity = (objects), .lock = PTHREAD_MUTEX_INITIALIZER            \
	}

/**
 * A zeroed object that is not live yet (the caller sets `live`, last), or NULL when there is no
 * room.
 */
void *slab_take(struct slab *slab);

/** Returns a place; the object must be dead. */
void slab_give(struct slab *slab, void *object);

static inline uint32_t slab_index(const struct slab *slab, const void *object)
{
	const uint8_t *base = atomic_load_explicit(&slab->base, memory_order_relaxed);

	return (uint32_t)((uintptr_t)((const uint8_t *)object - base) >> slab->shift);
}

/** The object of a handle if that is valid and live with this magic number, else NULL. */
static inline void *slab_find(const struct slab *slab, const void *handle, uint32_t magic)
{
	uint32_t used = atomic_load_explicit(&slab->used, memory_order_acquire);
	uintptr_t base = (uintptr_t)atomic_load_explicit(&slab->base, memory_order_relaxed);
	uintptr_t offset = (uintptr_t)handle - base;
	const struct slab_object *object = handle;

	if (offset >= ((uintptr_t)used << slab->shift) || (offset & (((uintptr_t)1 << slab->shift) - 1)) != 0)
		return NULL;
	if (atomic_load_explicit(&object->live, memory_order_acquire) != magic)
		return NULL;
	return (void *)(uintptr_t)handle;
}

#endif
