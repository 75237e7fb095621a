// NVIDIA's own libnvidia-ml.so.1, where there is one, its driver answers and it has the service's
// device. Any thread.

#ifndef FRMPS_CLIENT_NVML_REAL_H
#define FRMPS_CLIENT_NVML_REAL_H

#include "client/nvml/abi.h"

/**
 * Looks for it, once, in the file that FRMPS_NVML names (empty: none), else where drivers are
 * installed. From now on the other entry points are passed on, if it is there.
 * @uuid: of the service's device
 * Return: its handle of that device; NULL: nothing is passed on
 */
nvml_device real_open(const char *uuid);

#endif
