// Stream-ordered allocation: memory pools (CUmemoryPool) over the heap that serves cuMemAlloc. A
// pool costs nothing at the service. Any thread.
//
// Memory that is freed in a stream's order is kept by its pool. From there an allocation in the
// same stream may have it at once, because what it is used for next stands behind the free in the
// stream; any other stream once the point of the free is done. What is done and beyond the pool's
// release threshold goes back to the heap, at the latest when the program synchronises. A pool that
// may not be larger than it is gives back what is done, or lends a stream what another one is not
// done with: the stream waits for that.

#ifndef FRMPS_CLIENT_STATE_MEMPOOL_H
#define FRMPS_CLIENT_STATE_MEMPOOL_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

struct client_stream;
struct mempool;

/** A new pool. @most: bytes that it may have, what it keeps counts; 0: any number.
 * CUDA_ERROR_OUT_OF_MEMORY. */
CUresult mempool_create(uint64_t most, struct mempool **ret_pool);
/** Ends a pool: what was allocated from it stays until it is freed. CUDA_ERROR_INVALID_VALUE: the
 * default one, or none: of two threads that end the same one, one gets the error. */
CUresult mempool_destroy(CUmemoryPool handle);
/** Whether it is the handle of a pool; 0 is none. */
bool mempool_is(CUmemoryPool handle);
CUmemoryPool mempool_handle(const struct mempool *pool);

struct mempool *mempool_default(void);
/** The pool that allocations without a pool come from. */
struct mempool *mempool_current(void);
/** CUDA_ERROR_INVALID_VALUE, as all below that take a handle: there is no such pool. */
CUresult mempool_set_current(CUmemoryPool handle);

/** Allocates in stream order. @handle: 0: the pool that is the current one now
 * Return: CUDA_ERROR_INVALID_VALUE: there is no such pool, CUDA_ERROR_OUT_OF_MEMORY after
 * everything that can be given back was */
CUresult mempool_alloc(
	CUmemoryPool handle, uint64_t bytes, struct client_stream *stream, CUdeviceptr *ret_address);
/** Frees in stream order, what cuMemAlloc gave too. CUDA_ERROR_INVALID_VALUE for what is not the
 * start of an allocation of either kind. */
CUresult mempool_free(CUdeviceptr address, struct client_stream *stream);
/** Puts a command that does nothing into a stream: the point of a free. */
CUresult mempool_point(struct client_stream *stream, uint64_t *ret_seq);
/** Frees what cuMemAlloc gave behind a command of a stream. NULL: it is done. */
void mempool_free_behind(CUdeviceptr address, struct client_stream *stream, uint64_t seq);
/** Frees memory of a pool that no work uses any more. The same. */
CUresult mempool_free_done(CUdeviceptr address);

/** Frees all memory of pools: the device is reset, no work uses it any more. */
void mempool_reset(void);

/** @value: int or uint64_t, by the attribute, as the driver says. CUDA_ERROR_INVALID_VALUE. */
CUresult mempool_get(CUmemoryPool handle, CUmemPool_attribute attribute, void *value);
CUresult mempool_set(CUmemoryPool handle, CUmemPool_attribute attribute, const void *value);
/** Gives back what is done and can be spared: of a pool that holds more than `keep` bytes at least
 * these stay.
 */
CUresult mempool_trim(CUmemoryPool handle, uint64_t keep);

/** The program has synchronised: what is done and beyond the thresholds goes back. Cheap when there
 * is nothing. */
void mempool_settle(void);
/** Memory is short: gives back all that is free and done. Return: whether there was any. */
bool mempool_release(void);
/** The same of all that is free, waiting for the work that was given. Return: whether there
 * was any. */
bool mempool_squeeze(void);

#endif
