// The program's device memory: allocations in the device part of a session's window. What allocates
// does that in the calling thread's session; what frees, in that of the memory. Any thread.

#ifndef FRMPS_CLIENT_STATE_MEMORY_H
#define FRMPS_CLIENT_STATE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/state/ranges.h"
#include "protocol/cuda_abi.h"

/* Allocations start at and are multiples of this, as the driver's do. */
#define MEMORY_UNIT 512u

/** CUDA_ERROR_INVALID_VALUE for 0 bytes, CUDA_ERROR_OUT_OF_MEMORY. */
CUresult memory_alloc(CUcontext context, uint64_t bytes, CUdeviceptr *ret_address);

/**
 * Waits for the work submitted so far, then frees. CUDA_ERROR_INVALID_VALUE unless an allocation
 * starts there.
 */
CUresult memory_free(CUdeviceptr address);

/**
 * Waits for the work submitted so far, then frees with `give_back`. The error of a command, which
 * is returned, does not prevent the free; a fault does: the work may never end.
 */
CUresult memory_free_behind_all(CUdeviceptr address, CUresult (*give_back)(CUdeviceptr address));

/**
 * Allocates range->bytes, fills in address, room and block, and adds the range to the map. Frees
 * the cached memory of pools before it returns CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult memory_alloc_range(struct range *range);
/** Frees a block of memory_alloc_range(): later allocations may reuse it at once. */
void memory_free_block(void *block);
/**
 * Allocates memory in no range: the program does not know the address. CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult memory_alloc_block(uint64_t bytes, void **ret_block);
uint64_t memory_block_address(const void *block);

/**
 * Returns free memory to the service, for memory of another kind. Never waits. Return: true if
 * there was any.
 */
bool memory_give_back(void);

/**
 * The allocation of a kind that holds an address; other programs are about to get a handle of it.
 * Once no memory behind that handle is in use, the memory returns to the service.
 * Return: 0 or RANGES_E_NONE
 */
int memory_export(CUdeviceptr address, enum range_kind kind, struct range *ret_range);

/** Memory that this program could still get, and its total. */
CUresult memory_info(size_t *ret_free, size_t *ret_total);

/** Frees all memory of a context. Its work is done. */
void memory_release_context(CUcontext context);

/** Called by session start. */
void memory_start(void);

#endif
