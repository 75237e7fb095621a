// The program's device memory: allocations in the device part of the session's window. Any thread.

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

/** Waits for the work given so far, then frees. CUDA_ERROR_INVALID_VALUE for what is not the start
 * of an allocation. */
CUresult memory_free(CUdeviceptr address);

/** Waits for the work given so far, then frees what is given back in another way. The error of a
 * command, which is returned, does not keep the memory; that of a fault does: its work may never
 * end. */
CUresult memory_free_behind_all(CUdeviceptr address, CUresult (*give_back)(CUdeviceptr address));

/**
 * Allocates range->bytes, fills in address, room and block and makes the range known. Gives back
 * what pools keep before it says CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult memory_alloc_range(struct range *range);
/** Frees a block of memory_alloc_range(): it may be used again at once. */
void memory_free_block(void *block);
/** Allocates memory that is in no range: the program does not know of it.
 * CUDA_ERROR_OUT_OF_MEMORY. */
CUresult memory_alloc_block(uint64_t bytes, void **ret_block);
uint64_t memory_block_address(const void *block);

/** Gives the service back what is free here and done, for memory of another kind. Waits for
 * nothing. Return: whether there was any. */
bool memory_give_back(void);

/**
 * The allocation of a kind that holds an address, which other programs are about to get a
 * handle of: when nothing of the memory that the handle is of is used any more, it is not kept.
 * Return: 0 or RANGES_E_NONE
 */
int memory_export(CUdeviceptr address, enum range_kind kind, struct range *ret_range);

/** What this program could still get, and all it could have. */
CUresult memory_info(size_t *ret_free, size_t *ret_total);

/** Frees everything of a context. Its work is done. */
void memory_release_context(CUcontext context);

/** Called by process start. */
void memory_start(void);

#endif
