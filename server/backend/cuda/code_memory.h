// Device memory for code that the service loads itself (loader.h), and for variables that stay in
// the context.
//
// A multiprocessor caches the code that it has run, and up to 2 KiB after that code, whatever is
// written there later, also after the memory was unmapped (measured, H200, driver 580). Telling the
// caches before each kernel costs each warp so much that small kernels take ten times as long. So a
// place that has held code rests once it is given back: nobody gets its addresses for other code
// until the caches have forgotten everything, in one turn for all that rests (code_caches.h). The
// memory goes back to the driver at once. Places of variables alone do not rest.
//
// Programs may store the addresses of functions and variables. Anything with such an address lies
// in a range of the session's own, which follows from its window. So another executor of the
// session can have the same things at the same addresses, whatever else that executor has loaded,
// and in any order. A session that comes back to an executor asks for its places again, and gets
// them also while they rest, for the code that was there.
//
// The module thread; at the start and the end, the thread that has the context.

#ifndef FRMPS_SERVER_BACKEND_CUDA_CODE_MEMORY_H
#define FRMPS_SERVER_BACKEND_CUDA_CODE_MEMORY_H

#include <stdbool.h>
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
 * @at: 0: anywhere, as late as possible where something was before; else exactly this address, and
 * further places follow
 * Return: as above
 */
CUresult code_memory_take_at(uint64_t window, uint64_t at, uint64_t bytes, struct code_memory *ret);
/**
 * Before a kernel enters the code in a place. Places without a call hold no code.
 * @code_hash: of all code there (protocol/hash.h); 0 for a place where the address does not matter
 * Return: CUDA_SUCCESS; CUDA_ERROR_NOT_SUPPORTED: caches may have other code of this place
 */
CUresult code_memory_settle(const struct code_memory *memory, uint64_t code_hash);
/** The first address of the range. */
uint64_t code_memory_range(uint64_t window);

/** After the end of all work there. All zero is fine. */
void code_memory_give(const struct code_memory *memory);
/** True if so much rests that the caches should have a turn, or somebody was refused a place. */
bool code_memory_is_worn(void);
/** Begins a turn: what rests now is to be forgotten by the caches. One turn at a time. */
void code_memory_turn(void);
/** The caches have forgotten what rested when the turn began: that is free. */
void code_memory_renew(void);

/** Waits until the bytes are there, and for nothing else. Errors: as of cuMemcpyHtoDAsync(). */
CUresult code_memory_write(uint64_t at, const void *bytes, uint64_t count);

/** When the context is made. Errors: as of cuStreamCreate(). */
CUresult code_memory_open(CUdevice device);
/** Forgets everything: the context ends. */
void code_memory_close(void);

#endif
