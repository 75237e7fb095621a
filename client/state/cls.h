// Context-local storage: values that libraries inside the program attach to a context, each under a
// key of its own (an address inside the library). Every copy of the CUDA runtime in a process keeps
// its state for a context here and asks for it at nearly every call, so cls_map_get takes no lock
// and writes nothing that is shared.
//
// A forked child must not read a map of its parent: a writer may have been in the middle of a
// change. So the lookup of a context's map (context_cls) returns NULL there.
//
// Each context has a map. The context's owner calls cls_map_clear at a reset or destruction of the
// context, but not at process exit: destructors of an exiting program would run after their
// libraries.

#ifndef FRMPS_CLIENT_STATE_CLS_H
#define FRMPS_CLIENT_STATE_CLS_H

#include "protocol/cuda_abi.h"

#include <pthread.h>
#include <stdatomic.h>

/* Runs at the end of the context; takes the context, the key and the value. May make driver
 * calls. */
typedef void cls_destructor(CUcontext context, void *key, void *value);

struct cls_entry {
	_Atomic(void *) key; /* NULL: free */
	_Atomic(void *) value;
	cls_destructor *destructor; /* guarded by the map's lock */
};

/* A process has a handful of such libraries; a second block is rare. */
#define CLS_BLOCK_ENTRIES 8

struct cls_block {
	struct cls_entry entries[CLS_BLOCK_ENTRIES];
	_Atomic(struct cls_block *) next; /* only ever set until cls_map_deinit */
};

/*
 * Invariants: writers hold `lock`; `sequence` is odd while a writer changes entries, so a reader
 * that saw the same even number before and after its search saw the map at a single instant. A key
 * stands in at most one entry.
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

/* Frees the memory. Runs no destructor (see cls_map_clear); no thread may use the map any more. */
void cls_map_deinit(struct cls_map *map);

/*
 * Stores a value under a key; replaces an earlier value without its destructor. destructor may be
 * NULL. Any thread. Returns CUDA_ERROR_INVALID_VALUE for a NULL key, CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult cls_map_put(struct cls_map *map, void *key, void *value, cls_destructor *destructor);

/* Removes a key without running its destructor. An absent key is no error: a library may remove its
 * key after a reset. */
void cls_map_delete(struct cls_map *map, void *key);

/* The value under the key. Any thread, no lock. CUDA_ERROR_INVALID_HANDLE for an absent key. */
CUresult cls_map_get(struct cls_map *map, void *key, void **ret_value);

/*
 * Removes every entry and runs its destructor on the calling thread, with no lock held. Values that
 * other threads or the destructors put meanwhile may stay.
 */
void cls_map_clear(struct cls_map *map, CUcontext context);

#endif
