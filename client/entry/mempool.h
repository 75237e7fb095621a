// Checks for memory of pools and graphs. No state.

#ifndef FRMPS_CLIENT_ENTRY_MEMPOOL_H
#define FRMPS_CLIENT_ENTRY_MEMPOOL_H

#include "protocol/cuda_abi.h"

/**
 * CUDA_ERROR_INVALID_VALUE for an unknown kind of memory, CUDA_ERROR_NOT_SUPPORTED for all but
 * device memory, CUDA_ERROR_INVALID_DEVICE.
 */
CUresult mempool_check_kind(const CUmemLocation *location, CUmemAllocationType type);

#endif
