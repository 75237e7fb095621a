// Memory pools that processes share. A program exports the pool's name; an allocation is a piece of
// exported memory and a place in it (ipc.h), for programs that have imported the pool. Any thread.
//
// An imported allocation stays mapped until it is freed as often as it was imported. Frees are in
// stream order; the unmap follows when the program synchronises or shares more.

#ifndef FRMPS_CLIENT_STATE_POOLSHARE_H
#define FRMPS_CLIENT_STATE_POOLSHARE_H

#include <stdbool.h>

#include "protocol/cuda_abi.h"

struct client_stream;

/** Registers a pool that was made to be shared. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult poolshare_add(CUmemoryPool handle);
/** Removes a pool that is about to be destroyed. Imported allocations stay. */
void poolshare_forget(CUmemoryPool handle);
/** True for a pool that was made to be shared. */
bool poolshare_is_shareable(CUmemoryPool handle);
/** True for an imported pool, from which this program cannot allocate. */
bool poolshare_is_imported(CUmemoryPool handle);

/**
 * A descriptor that identifies the pool. CUDA_ERROR_INVALID_VALUE: the pool is not shareable;
 * CUDA_ERROR_OPERATING_SYSTEM
 */
CUresult poolshare_export(CUmemoryPool handle, int *ret_fd);
/**
 * A pool that stands for the descriptor's. CUDA_ERROR_INVALID_VALUE: the descriptor is of no pool;
 * CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult poolshare_import(int fd, CUmemoryPool *ret_handle);

/** CUDA_ERROR_INVALID_VALUE: not an allocation of a shareable pool. */
CUresult poolshare_export_pointer(CUdeviceptr address, CUmemPoolPtrExportData *ret_data);
/** CUDA_ERROR_INVALID_VALUE: an allocation of another pool, or freed memory. */
CUresult poolshare_import_pointer(
	CUmemoryPool handle, const CUmemPoolPtrExportData *data, CUdeviceptr *ret_address);

/** True for an imported allocation. */
bool poolshare_is(CUdeviceptr address);
/**
 * Frees an imported allocation in stream order; NULL: behind all work. CUDA_ERROR_INVALID_VALUE.
 */
CUresult poolshare_free(CUdeviceptr address, struct client_stream *stream);
/** Unmaps freed allocations that are done. Cheap if there are none. */
void poolshare_settle(void);

#endif
