// Device memory for code that the service loads itself (loader.h), and for variables that stay in
// the context.
//
// A multiprocessor caches the code that it has run, and up to 2 KiB after that code, whatever is
// written there later, also after the memory was unmapped (measured, H200, driver 580).
// Invalidating the cache costs each warp so much that small kernels take ten times as long. So an
// address never gets other code: memory goes back to the driver and is mapped somewhere else.
//
// Programs may store the addresses of functions and variables. Anything with such an address lies
// in a range of the session's own, which follows from its window. So another executor of the
// session can have the same things at the same addresses, whatever else that executor has loaded,
// and in any order. A session that comes back to an executor asks for its places again, and gets
// them for the code that was there.
//
// The module thread; at the start and the end, the thread that has the context.

#ifndef FRMPS_SERVER_BACKEND_CUDA_CODE_MEMORY_H
#define FRMPS_SERVER_BACKEND_CUDA_CODE_MEMORY_H

#include <stdint.h>

#include "protocol/cuda_abi.h"

struct code_memory {
	uint64_t at, bytes; /* at: a multiple of 256. bytes: with the distance to the next place */
};

/**
 * Where the address does not matter.
 * @bytes: 1 or more
 * Return: CUDA_SUCCESS; CUDA_ERROR_NOT_SUPPORTED: the addresses are not free, or used up; as of
 * cuMemCreate() and cuMemMap()
 */
CUresult code_memory_take(uint64_t bytes, struct code_memory *ret);
/**
 * In a session's range.
 * @window: the address of the session's own window; 0: no session
 * @at: 0: after everything that was given out there; else exactly this address: after all that, and
 * further places follow, or a place of as many bytes that was given back
 * Return: as above
 */
CUresult code_memory_take_at(uint64_t window, uint64_t at, uint64_t bytes, struct code_memory *ret);
/**
 * Before a kernel enters the code in a place of a session's range.
 * @code_hash: of all code there (protocol/hash.h)
 * Return: CUDA_SUCCESS; CUDA_ERROR_NOT_SUPPORTED: caches may have other code of this place
 */
CUresult code_memory_settle(const struct code_memory *memory, uint64_t code_hash);
/** The first address of the range. */
uint64_t code_memory_range(uint64_t window);

/** After the end of all work there. All zero is fine. */
void code_memory_give(const struct code_memory *memory);
/** Waits until the bytes are there, and for nothing else. Errors: as of cuMemcpyHtoDAsync(). */
CUresult code_memory_write(uint64_t at, const void *bytes, uint64_t count);

/** When the context is made. Errors: as of cuStreamCreate(). */
CUresult code_memory_open(CUdevice device);
/** Forgets everything: the context ends. */
void code_memory_close(void);

#endif
