// The work of cuInit: the connection to the service, and the state that needs it. With several
// devices cuInit only lists them, and the session of a device begins with the first call that needs
// one there. Runs on the thread that calls.

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

/**
 * Makes sure that the process has a session on this device; the calling thread works in it from
 * here on. Any thread, after start_driver().
 * Return: CUDA_ERROR_INVALID_DEVICE, errors of connect.h
 */
CUresult start_session(int ordinal);

/** As process_enter(), for a call about a device: the session is that of the device. @ordinal: an
 * invalid one counts as none, and the caller checks it */
CUresult start_enter(int ordinal);

/** As start_enter(), for a call about a place of memory. @location: may be NULL */
CUresult start_enter_at(const CUmemLocation *location);

#endif
