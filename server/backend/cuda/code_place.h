// Places on the device whose addresses programs may keep: those of functions, and of variables that
// stay in the context (loader.h). A session's lie in a range of their own, which follows from its
// window. So another executor of the session can have the same things at the same addresses,
// whatever else it has loaded, and in whatever order.
//
// Addresses are given out once: a multiprocessor may keep code that it has run, also where the
// memory was unmapped meanwhile (code_memory.h). Memory is mapped in pieces of 2 MiB while
// something lies there.
//
// The module thread; at the end, whoever closes the context.

#ifndef FRMPS_SERVER_BACKEND_CUDA_CODE_PLACE_H
#define FRMPS_SERVER_BACKEND_CUDA_CODE_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "server/backend/cuda/code_memory.h"

/** The first address of a session's range. @window: the address of its own window; 0: nobody's */
uint64_t code_place_range(uint64_t window);

/**
 * @at: 0: behind all that was given out; else exactly there
 * @bytes: 1 or more
 * @fresh: only where nothing was
 * Return: CUDA_SUCCESS; CUDA_ERROR_NOT_SUPPORTED: the addresses are not there, used up, in use, or
 * not fresh; as of cuMemCreate() and cuMemMap()
 */
CUresult code_place_take(uint64_t window, uint64_t at, uint64_t bytes, bool fresh, struct code_memory *ret);
/** When nothing runs there any more. One that is all zero is fine. */
void code_place_give(const struct code_memory *memory);

/** When the context is made. */
void code_place_open(CUdevice which);
/** Forgets everything: the context ends. */
void code_place_close(void);

#endif
