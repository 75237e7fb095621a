// Device memory for code that the service loads itself (loader.h), and for variables that stay in
// the context.
//
// A multiprocessor keeps the code that it has run, and up to 2 KiB behind it, whatever is written
// there later, also where the memory was unmapped meanwhile (measured, H200, driver 580). To
// invalidate its cache costs each warp that does it so much that small kernels take ten times as
// long. So an address is given out once: memory goes back to the driver and is mapped somewhere
// else.
//
// Programs may keep the addresses of functions and variables. What has such an address lies in a
// range of the session's own, which follows from its window. So another executor of the session can
// have the same things at the same addresses, whatever else it has loaded, and in whatever order.
//
// The module thread; at the start and the end, whoever has the context.

#ifndef FRMPS_SERVER_BACKEND_CUDA_CODE_MEMORY_H
#define FRMPS_SERVER_BACKEND_CUDA_CODE_MEMORY_H

#include <stdint.h>

#include "protocol/cuda_abi.h"

struct code_memory {
	uint64_t at, bytes; /* at: a multiple of 256. bytes: with what keeps it apart from the next */
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
 * @window: the address of its own window; 0: nobody's
 * @at: 0: behind all that was given out there; else exactly there, and behind that
 * Return: as above
 */
CUresult code_memory_take_at(uint64_t window, uint64_t at, uint64_t bytes, struct code_memory *ret);
/** The first address of the range. */
uint64_t code_memory_range(uint64_t window);

/** When nothing runs there any more. One that is all zero is fine. */
void code_memory_give(const struct code_memory *memory);
/** Waits until the bytes are there, and for nothing else. Errors: as of cuMemcpyHtoDAsync(). */
CUresult code_memory_write(uint64_t at, const void *bytes, uint64_t count);

/** When the context is made. Errors: as of cuStreamCreate(). */
CUresult code_memory_open(CUdevice device);
/** Forgets everything: the context ends. */
void code_memory_close(void);

#endif
