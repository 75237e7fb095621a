// NVIDIA's own libnvidia-ml.so.1, if it is installed, its driver answers and it has the service's
// device. Any thread.

#ifndef FRMPS_CLIENT_NVML_REAL_H
#define FRMPS_CLIENT_NVML_REAL_H

#include "client/nvml/abi.h"

/**
 * Looks for NVIDIA's library, once, in the file that FRMPS_NVML names (empty: none), else where
 * drivers are installed. If found, the library answers the other entry points from now on.
 * @uuid: of the service's device
 * Return: the library's handle of that device; NULL: not found
 */
nvml_device real_open(const char *uuid);

#endif
