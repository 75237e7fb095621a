// The work of cuInit: the connection to the service, and the state that needs it. Runs on the
// thread that calls cuInit.

#ifndef FRMPS_CLIENT_STATE_START_H
#define FRMPS_CLIENT_STATE_START_H

#include "protocol/cuda_abi.h"

/**
 * Connects to the service and prepares the library. Later calls have nothing to do. A failed start
 * can be repeated.
 * Return: CUDA_SUCCESS, CUDA_ERROR_NO_DEVICE if none is visible, CUDA_ERROR_NOT_INITIALIZED in a
 * forked child, errors of connect.h.
 */
CUresult start_driver(void);

#endif
