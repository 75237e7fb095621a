// Stream-ordered allocation: memory pools (CUmemoryPool) over the heaps that serve cuMemAlloc and
// cuMemHostAlloc. The service does not know pools. Any thread.
//
// A pool caches memory that is freed in stream order. An allocation in the same stream may reuse it
// at once, because the next use stands behind the free in the stream; any other stream may once the
// point of the free is done. Cached memory that is done and beyond the pool's release threshold
// goes back to the heap, at the latest when the program synchronises. A pool at its size limit
// frees cached memory that is done, or lends a stream a block that another stream still uses: the
// stream waits for that.

#ifndef FRMPS_CLIENT_STATE_MEMPOOL_H
#define FRMPS_CLIENT_STATE_MEMPOOL_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

struct client_stream;
struct mempool;
struct session;

/* Where the memory of a pool is. Managed memory is pinned memory of the host's (managed.h). */
enum mempool_place { MEMPOOL_DEVICE, MEMPOOL_HOST, MEMPOOL_MANAGED, MEMPOOL_PLACES };

/* Of a session; guarded by the lock of pools. */
struct mempools {
	struct mempool *standard[MEMPOOL_PLACES], *current[MEMPOOL_PLACES];
	struct mempool *others; /* caches freed memory of cuMemAlloc; no allocation comes from here */
};

/**
 * A new pool. @location: as the program says, where its memory is to be
 * @most: limit of its bytes, cached memory included; 0: none. CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult mempool_create(
	const CUmemLocation *location, enum mempool_place place, uint64_t most, struct mempool **ret_pool);
/**
 * Destroys a pool: its allocations stay until these are freed. CUDA_ERROR_INVALID_VALUE for a
 * default pool and invalid handles: of two threads that destroy the same pool, one gets the error.
 */
CUresult mempool_destroy(CUmemoryPool handle);
/** True for the handle of a pool; 0 is none. */
bool mempool_is(CUmemoryPool handle);
/** True for the handle of a pool of host memory, managed or not. */
bool mempool_is_host(CUmemoryPool handle);
/** Where the pool's memory is, as the program has said. Return: false: there is no such pool */
bool mempool_location(CUmemoryPool handle, CUmemLocation *ret_location);
CUmemoryPool mempool_handle(const struct mempool *pool);

struct mempool *mempool_default(enum mempool_place place);
/** The pool that allocations without a pool come from, if they are of device memory. */
struct mempool *mempool_current(enum mempool_place place);
/** CUDA_ERROR_INVALID_VALUE, as for all functions below with a handle: there is no such pool. */
CUresult mempool_set_current(enum mempool_place place, CUmemoryPool handle);

/**
 * Allocates in stream order. @handle: 0: the current pool
 * Return: CUDA_ERROR_INVALID_VALUE: there is no such pool; CUDA_ERROR_OUT_OF_MEMORY, after all
 * cached memory was freed
 */
CUresult mempool_alloc(
	CUmemoryPool handle, uint64_t bytes, struct client_stream *stream, CUdeviceptr *ret_address);
/**
 * Frees in stream order, also memory of cuMemAlloc. CUDA_ERROR_INVALID_VALUE unless an allocation
 * of either kind starts there.
 */
CUresult mempool_free(CUdeviceptr address, struct client_stream *stream);
/** Submits a command without an effect to a stream: the point of a free. */
CUresult mempool_point(struct client_stream *stream, uint64_t *ret_seq);
/** Frees memory of cuMemAlloc behind a command of a stream. NULL: the command is done. */
void mempool_free_behind(CUdeviceptr address, struct client_stream *stream, uint64_t seq);
/**
 * Frees memory of a pool that no work uses any more. CUDA_ERROR_INVALID_VALUE as mempool_free().
 */
CUresult mempool_free_done(CUdeviceptr address);

/** Frees all memory of pools: the device is reset, and no work uses the memory any more. */
void mempool_reset(void);

/**
 * Says whether a device may use memory of the pool; its own always may use that of the device. The
 * first access of another device is for all memory of the pool's device (peer.h). Host memory
 * is within reach of all devices, whatever is said.
 * @to: the device's session, which is open
 * Return: CUDA_ERROR_INVALID_VALUE; CUDA_ERROR_INVALID_DEVICE: no peer, or the pool's own
 */
CUresult mempool_set_access(CUmemoryPool handle, struct session *to, bool has);
bool mempool_has_access(CUmemoryPool handle, int device);

/** @value: int or uint64_t, by the attribute, as the driver says. CUDA_ERROR_INVALID_VALUE. */
CUresult mempool_get(CUmemoryPool handle, CUmemPool_attribute attribute, void *value);
CUresult mempool_set(CUmemoryPool handle, CUmemPool_attribute attribute, const void *value);
/** Frees cached memory that is done, but leaves the pool at least `keep` bytes. */
CUresult mempool_trim(CUmemoryPool handle, uint64_t keep);

/**
 * The program has synchronised: frees cached memory that is done and beyond the thresholds. Cheap
 * if there is none.
 */
void mempool_settle(void);
/** Memory is short: frees all cached memory that is done. Return: true if there was any. */
bool mempool_release(void);
/**
 * As mempool_release(), after waiting for all work submitted so far. Return: true if there was any.
 */
bool mempool_squeeze(void);

#endif
