// NVIDIA's own libnvidia-ml.so.1, if it is installed, its driver answers and it has the service's
// devices. Any thread.

#ifndef FRMPS_CLIENT_NVML_REAL_H
#define FRMPS_CLIENT_NVML_REAL_H

#include <stdbool.h>

#include "client/nvml/abi.h"
#include "client/nvml/question.h"

/**
 * Looks for NVIDIA's library, once, in the file that FRMPS_NVML names (empty: none), else where
 * drivers are installed. If the library has all devices, it answers the other entry points from now
 * on. Of several logical devices on a GPU, the library has one.
 * @seen: of each of the service's devices
 * @ret_devices: the library's handles of these devices, if it has all
 * Return: true if the library has all devices
 */
bool real_open(const struct seen *seen, unsigned count, nvml_device *ret_devices);

/** Asks NVIDIA's library about a way between two of its devices. Return: the library's code;
 * NVML_ERROR_NOT_SUPPORTED as well without the library */
int real_peer_status(nvml_device one, nvml_device other, int way, int *ret_status);

#endif
