// Memory pools that processes share. What one hands out is the pool's name; an allocation of it is
// a piece of exported memory and a place in that (ipc.h), for who has imported the pool. Any
// thread.
//
// An imported allocation is mapped here until it is freed as often as it was imported: in stream
// order, which is done when the program synchronises or shares more; the mapping goes then.

#ifndef FRMPS_CLIENT_STATE_POOLSHARE_H
#define FRMPS_CLIENT_STATE_POOLSHARE_H

#include <stdbool.h>

#include "protocol/cuda_abi.h"

struct client_stream;

/** A pool that was made to be shared. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult poolshare_add(CUmemoryPool handle);
/** Forgets a pool that is about to end. What was imported from it stays. */
void poolshare_forget(CUmemoryPool handle);
/** Whether it was imported: nobody allocates from it here. */
bool poolshare_is_imported(CUmemoryPool handle);

/** A descriptor that says which pool it is. CUDA_ERROR_INVALID_VALUE: it is not to be shared;
 * CUDA_ERROR_OPERATING_SYSTEM */
CUresult poolshare_export(CUmemoryPool handle, int *ret_fd);
/** @handle: an empty pool, which becomes the one that a descriptor names.
 * CUDA_ERROR_INVALID_VALUE: the descriptor names none */
CUresult poolshare_import(CUmemoryPool handle, int fd);

/** CUDA_ERROR_INVALID_VALUE: not an allocation of a pool that is to be shared. */
CUresult poolshare_export_pointer(CUdeviceptr address, CUmemPoolPtrExportData *ret_data);
/** CUDA_ERROR_INVALID_VALUE: not of that pool, or the memory is gone. */
CUresult poolshare_import_pointer(
	CUmemoryPool handle, const CUmemPoolPtrExportData *data, CUdeviceptr *ret_address);

/** Whether it is an allocation that was imported. */
bool poolshare_is(CUdeviceptr address);
/** Frees one in the order of a stream; NULL: behind all work. CUDA_ERROR_INVALID_VALUE. */
CUresult poolshare_free(CUdeviceptr address, struct client_stream *stream);
/** Unmaps what is freed and done. Cheap when there is nothing. */
void poolshare_settle(void);

#endif
