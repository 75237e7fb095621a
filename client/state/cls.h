// Context-local storage: values that libraries inside the program hang on a context, each under a
// key of its own (the address of something in the library). Every copy of the CUDA runtime in a
// process keeps its state for a context here and asks for it at nearly every call, so cls_map_get
// takes no lock and writes nothing that is shared.
//
// A forked child must not look into a map of its parent: a writer may have been at work in it.
// Whoever finds the map of a context (context_cls) answers NULL there.
//
// One map belongs to one context. The owner of the context runs cls_map_clear when the context is
// reset or destroyed, and not at process exit: destructors of a program that is leaving would run
// after their libraries.

#ifndef FRMPS_CLIENT_STATE_CLS_H
#define FRMPS_CLIENT_STATE_CLS_H

#include "protocol/cuda_abi.h"

#include <pthread.h>
#include <stdatomic.h>

/* Runs when the context goes away; takes the context, the key and the value. May call back into the
 * shim. */
typedef void cls_destructor(CUcontext context, void *key, void *value);

struct cls_entry {
	_Atomic(void *) key; /* NULL: free */
	_Atomic(void *) value;
	cls_destructor *destructor; /* guarded by the map's lock */
};

/* A handful of libraries is usual; more than one block is rare. */
#define CLS_BLOCK_ENTRIES 8

struct cls_block {
	struct cls_entry entries[CLS_BLOCK_ENTRIES];
	_Atomic(struct cls_block *) next; /* only ever set, never cut off, until cls_map_deinit */
};

/*
 * Invariants: writers hold `lock`; `sequence` is odd while one of them changes entries, so a reader
 * that saw the same even number before and after its search saw the map as it was at one instant. A
 * key stands in at most one entry.
 */
struct cls_map {
	pthread_mutex_t lock;
	atomic_uint sequence;
	struct cls_block first;
};

#define CLS_MAP_INIT                                                                                         \
	{                                                                                                    \
		.lock = PTHREAD_MUTEX_INITIALIZER                                                            \
	}

/* Frees the memory. Runs no destructor (see cls_map_clear); nobody may still use the map. */
void cls_map_deinit(struct cls_map *map);

/*
 * Stores a value under a key; a value that was there is replaced, its destructor is forgotten and
 * does not run. destructor may be NULL. Any thread. Returns CUDA_ERROR_INVALID_VALUE for a NULL
 * key, CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult cls_map_put(struct cls_map *map, void *key, void *value, cls_destructor *destructor);

/* Forgets a key without running its destructor. An absent key is no error: a library may say
 * goodbye after a reset. */
void cls_map_delete(struct cls_map *map, void *key);

/* The value under the key. Any thread, no lock. CUDA_ERROR_INVALID_HANDLE where there is none. */
CUresult cls_map_get(struct cls_map *map, void *key, void **ret_value);

/*
 * Takes out every entry and runs its destructor on the calling thread, with no lock held. What
 * other threads or the destructors themselves put meanwhile may stay.
 */
void cls_map_clear(struct cls_map *map, CUcontext context);

#endif
