// What is asked of memory that pools and graphs give out. No state.

#ifndef FRMPS_CLIENT_ENTRY_MEMPOOL_H
#define FRMPS_CLIENT_ENTRY_MEMPOOL_H

#include "protocol/cuda_abi.h"

/** CUDA_ERROR_INVALID_VALUE for what is no kind of memory, CUDA_ERROR_NOT_SUPPORTED for all but
 * device memory, CUDA_ERROR_INVALID_DEVICE. */
CUresult mempool_check_kind(const CUmemLocation *location, CUmemAllocationType type);

#endif
