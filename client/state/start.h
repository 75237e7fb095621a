// What cuInit does: the connection to the service, and what stands on it. Runs on the thread that
// calls cuInit.

#ifndef FRMPS_CLIENT_STATE_START_H
#define FRMPS_CLIENT_STATE_START_H

#include "protocol/cuda_abi.h"

/**
 * Connects to the service and prepares the shim. Later calls find everything done. A failed start
 * can be tried again.
 * Return: CUDA_SUCCESS, CUDA_ERROR_NO_DEVICE when none is visible, CUDA_ERROR_NOT_INITIALIZED in a
 * forked child, or why the service cannot be used (connect.h).
 */
CUresult start_driver(void);

#endif
