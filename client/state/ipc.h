// Memory of other programs of the same user, opened by a handle of 64 bytes (cuIpc*). A handle is a
// capability for a piece of physical memory (virtual.h) and has the place of an allocation in it.
// The memory is mapped here once, however many handles into it are open. Any thread.
//
// A handle ends with the piece of memory. A large allocation has its own piece, which is freed with
// it. Small allocations share a piece: the handle of a freed allocation can be opened while another
// allocation is in its place. So it is with the driver, which gives both the same handle if one
// follows the other in the same place.

#ifndef FRMPS_CLIENT_STATE_IPC_H
#define FRMPS_CLIENT_STATE_IPC_H

#include <stdint.h>

#include "client/state/ranges.h"
#include "client/state/virtual.h"
#include "protocol/cuda_abi.h"

/**
 * A handle for the cuMemAlloc allocation that holds an address. CUDA_ERROR_INVALID_VALUE if there
 * is none.
 */
CUresult ipc_export(uint64_t address, CUipcMemHandle *ret_handle);

/* A piece of exported memory, and an allocation's place in it. */
struct ipc_part {
	struct virtual_token token;
	uint64_t offset, bytes; /* of the allocation */
};

/**
 * The place of an allocation of a kind; other programs may open its memory from now on.
 * CUDA_ERROR_INVALID_VALUE if there is none.
 */
CUresult ipc_describe(uint64_t address, enum range_kind kind, struct ipc_part *ret_part);
/**
 * Opens an allocation, also the program's own; ipc_close() undoes this. @context: the owner; may be
 * NULL. Return: as ipc_open()
 */
CUresult ipc_open_part(CUcontext context, const struct ipc_part *part, CUdeviceptr *ret_address);

/**
 * Opens a handle, also a second time.
 * Return: CUDA_SUCCESS, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE: the memory was freed,
 * CUDA_ERROR_INVALID_CONTEXT: the memory is this program's own
 */
CUresult ipc_open(CUcontext context, const CUipcMemHandle *handle, CUdeviceptr *ret_address);

/** Undoes an ipc_open(). CUDA_ERROR_INVALID_VALUE for another address. */
CUresult ipc_close(CUcontext context, CUdeviceptr address);
/** Closes everything that a context has opened. Its work is done. */
void ipc_release_context(CUcontext context);

/**
 * Narrows the range of opened memory to the opened allocation that holds an address, if there is
 * one.
 */
void ipc_narrow(uint64_t address, struct range *range);

#endif
