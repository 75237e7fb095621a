// Checks for memory of pools and graphs. No state.

#ifndef FRMPS_CLIENT_ENTRY_MEMPOOL_H
#define FRMPS_CLIENT_ENTRY_MEMPOOL_H

#include "client/state/mempool.h"
#include "protocol/cuda_abi.h"

/** CUDA_ERROR_INVALID_VALUE for an unknown kind of memory, CUDA_ERROR_NOT_SUPPORTED for one that
 * pools do not have. */
CUresult mempool_check_properties(const CUmemPoolProps *properties, enum mempool_place *ret_place);

#endif
