// Memory of other programs of the same user, opened by a handle of 64 bytes (cuIpc*). A handle is
// proof of the right to a piece of physical memory (virtual.h) and says where in it an allocation
// lies. The memory is mapped here once, however many handles into it are open. Any thread.
//
// A handle ends with the piece of memory. A large allocation has its own, which is given back when
// it is freed. Small ones share theirs: the handle of one that was freed can be opened while
// another one is there, as with the driver, which gives both the same handle if they follow each
// other in one place.

#ifndef FRMPS_CLIENT_STATE_IPC_H
#define FRMPS_CLIENT_STATE_IPC_H

#include <stdint.h>

#include "client/state/ranges.h"
#include "client/state/virtual.h"
#include "protocol/cuda_abi.h"

/** A handle for the allocation of cuMemAlloc that holds an address. CUDA_ERROR_INVALID_VALUE if
 * there is none. */
CUresult ipc_export(uint64_t address, CUipcMemHandle *ret_handle);

/* A piece of exported memory, and an allocation's place in it. */
struct ipc_part {
	struct virtual_token token;
	uint64_t offset, bytes; /* of the allocation */
};

/** Where an allocation of a kind lies, whose memory may be opened from now on.
 * CUDA_ERROR_INVALID_VALUE if there is none. */
CUresult ipc_describe(uint64_t address, enum range_kind kind, struct ipc_part *ret_part);
/** Opens it, also if it is the program's own; ipc_close() undoes it. @context: whose it is; may be
 * NULL. Return: as ipc_open() */
CUresult ipc_open_part(CUcontext context, const struct ipc_part *part, CUdeviceptr *ret_address);

/**
 * Opens a handle; once more for one that is open.
 * Return: CUDA_SUCCESS, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE: the memory is gone,
 * CUDA_ERROR_INVALID_CONTEXT: it is this program's own
 */
CUresult ipc_open(CUcontext context, const CUipcMemHandle *handle, CUdeviceptr *ret_address);

/** Undoes one ipc_open(). CUDA_ERROR_INVALID_VALUE for another address. */
CUresult ipc_close(CUcontext context, CUdeviceptr address);
/** Closes all that a context has opened. Its work is done. */
void ipc_release_context(CUcontext context);

/** Where a range is memory that was opened: makes address and bytes those of the allocation in it
 * that holds an address, as far as one is open. */
void ipc_narrow(uint64_t address, struct range *range);

#endif
