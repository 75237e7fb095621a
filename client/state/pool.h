// A heap with memory behind it: asks its session's service to map and unmap chunks, shares these
// with other sessions (peer.h), and keeps some spare chunks. The device memory of a session has a
// pool, and its pinned host memory another. Any thread; no thread asks the service under the pool's
// lock.

#ifndef FRMPS_CLIENT_STATE_POOL_H
#define FRMPS_CLIENT_STATE_POOL_H

#include <pthread.h>

#include "client/state/heap.h"
#include "client/state/peer.h"
#include "client/state/ranges.h"

struct session;

struct pool {
	struct session *session;
	pthread_mutex_t lock;
	struct heap heap; /* guarded by lock */
	uint64_t keep;	  /* spare bytes kept */
	/* Set by the owner before pool_init(). */
	CUresult (*map)(uint64_t address, uint64_t bytes);
	/* CUDA_ERROR_OUT_OF_MEMORY: nothing has changed */
	CUresult (*unmap)(uint64_t address, uint64_t bytes);
	struct peer_window window;
	enum peer_audience audience;
};

/** Of the calling thread's session. */
void pool_init(struct pool *pool, uint64_t base, uint64_t bytes, uint64_t unit, uint64_t keep);

/** Allocates. CUDA_ERROR_OUT_OF_MEMORY after the spare memory was returned. */
CUresult pool_alloc(struct pool *pool, uint64_t bytes, struct heap_block **ret_block);

/** Frees: the block may be used again at once. */
void pool_free(struct pool *pool, struct heap_block *block);

/**
 * The allocation of a kind, which only this pool has, that holds an address. Other programs are
 * about to get a handle of it: its chunk returns to the service with its last block, so that the
 * handle ends with the memory. Return: 0 or RANGES_E_NONE
 */
int pool_export(struct pool *pool, uint64_t address, enum range_kind kind, struct range *ret_range);

/** Takes addresses alone. @bytes: a multiple of HEAP_GRAIN. Return: NULL: none are free */
struct heap_chunk *pool_reserve(struct pool *pool, uint64_t bytes);
/** Gives them back. */
void pool_unreserve(struct pool *pool, struct heap_chunk *chunk);

/** Gives spare chunks back, all but `keep` bytes. */
void pool_trim(struct pool *pool, uint64_t keep);

/** Bytes of spare chunks. */
uint64_t pool_spare(struct pool *pool);

/**
 * Allocates range->bytes and adds the range to the map (ranges.h). Fills in address, room and
 * block; the caller fills in the rest. Return: as pool_alloc().
 */
CUresult pool_alloc_range(struct pool *pool, struct range *range);

#endif
