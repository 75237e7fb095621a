// The work of cuInit: the connection to the service, and the state that needs it. With several
// devices cuInit only lists them, and the session begins with the first call that needs one. Its
// device is that of the first context, and the process stays there. Runs on the thread that calls.

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
 * Makes sure that the process has its session, on this device. Any thread, after start_driver().
 * Return: CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_NOT_SUPPORTED if the session is on another device
 * (device.h), errors of connect.h
 */
CUresult start_session(int ordinal);

/**
 * As process_enter(), for a call about a device: where the process has no session yet, it begins
 * there. Checks nothing else: device_check() says whether the process may work on the device.
 * @ordinal: an invalid one counts as none
 */
CUresult start_enter(int ordinal);

/** As start_enter(), for a call about a place of memory. @location: may be NULL */
CUresult start_enter_at(const CUmemLocation *location);

#endif
