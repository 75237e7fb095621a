// Device memory for code that the service loads itself (loader.h), where its address does not
// matter. It belongs to the context and is never given back to the driver, whose cuMemFree() waits
// for all that runs.
//
// A multiprocessor keeps the code that it has run, and up to 2 KiB behind it, whatever is written
// there later, also where the memory was unmapped meanwhile (measured, H200, driver 580). So new
// code goes where none has been, as long as there is not too much of that, and whoever uses a piece
// again is told: its kernels need trampolines that invalidate the caches.
//
// The module thread; at the start, whoever opens the context.

#ifndef FRMPS_SERVER_BACKEND_CUDA_CODE_MEMORY_H
#define FRMPS_SERVER_BACKEND_CUDA_CODE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

struct code_memory {
	uint64_t at, bytes; /* at: a multiple of 256. bytes: with what keeps it apart from the next */
	bool was_code;	    /* it may be in caches: code lay there before */
};

/**
 * @bytes: of the code, 1 … 1 GiB
 * @fresh: only where no code was
 * Return: CUDA_SUCCESS; CUDA_ERROR_OUT_OF_MEMORY; as of cuMemAlloc()
 */
CUresult code_memory_take(uint64_t bytes, bool fresh, struct code_memory *ret);
/** When nothing runs there any more. One that is all zero is fine. */
void code_memory_give(const struct code_memory *memory);
/** Waits until the bytes are there, and for nothing else. Errors: as of cuMemcpyHtoDAsync(). */
CUresult code_memory_write(uint64_t at, const void *bytes, uint64_t count);

/** When the context is made. Errors: as of cuStreamCreate(). */
CUresult code_memory_open(void);
/** Forgets everything: the context ends. */
void code_memory_close(void);

#endif
