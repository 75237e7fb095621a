// Managed memory: pinned host memory at the same address for program and device. Both see each
// other's writes by the rules of managed memory without any migration; kernels read over the bus.
// So advice and prefetches have no effect; the library only remembers these by ranges of bytes, for
// queries. Any thread.
//
// The device attributes for concurrent access and for native atomics of the host are 0: atomics of
// the processor and of the device on the same word at the same time are not atomic to each other
// here.

#ifndef FRMPS_CLIENT_STATE_MANAGED_H
#define FRMPS_CLIENT_STATE_MANAGED_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

struct range;

/** CUDA_ERROR_OUT_OF_MEMORY. @bytes: at least 1 */
CUresult managed_alloc(CUcontext context, uint64_t bytes, unsigned int flags, CUdeviceptr *ret_address);
/**
 * Waits for all work, then frees. CUDA_ERROR_INVALID_VALUE unless such an allocation starts there.
 */
CUresult managed_free(CUdeviceptr address);
/** Memory of a pool becomes managed memory, about which nothing has been said. Return: false: no
 * memory for that */
bool managed_note(const struct range *range);
/** It is freed. */
void managed_forget(CUdeviceptr address);
/** Frees all managed memory of a context. Its work is done. */
void managed_release_context(CUcontext context);

/** True if a single managed allocation holds all of the bytes. */
bool managed_holds(uint64_t address, uint64_t bytes);

/** Remembers advice. @location: checked by the caller */
CUresult managed_advise(uint64_t address, uint64_t bytes, CUmem_advise advice, const CUmemLocation *location);
/** Remembers a prefetch. */
CUresult managed_prefetch(uint64_t address, uint64_t bytes, const CUmemLocation *location);
/** Answers a query about a range. @data, @size: as the driver documents for each attribute */
CUresult managed_query(
	void *data, size_t size, CUmem_range_attribute attribute, uint64_t address, uint64_t bytes);

#endif
