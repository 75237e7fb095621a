// The channels of this process: the queues for the device's engines, which run kernels and copies.
// See channels.c.

#ifndef FRMPS_SERVER_BACKEND_CUDA_CHANNELS_H
#define FRMPS_SERVER_BACKEND_CUDA_CHANNELS_H

#include "protocol/cuda_abi.h"
#include "server/backend/cuda/control.h"

/** Notes the object that a successful ioctl() of the driver has made or freed. Any thread. */
void channels_note(int fd, unsigned long request, const void *argument);

/**
 * Takes all channels off the device. On CUDA_SUCCESS nothing of this process runs there, no kernel,
 * copy or write of a word, and nothing will. Takes no lock of the driver, which may be at work on a
 * fault. Any thread. CUDA_ERROR_NOT_SUPPORTED: not all channels are known; CUDA_ERROR_UNKNOWN: the
 * kernel-mode driver refused. Nothing is certain then.
 */
CUresult channels_fence(control_execute_fn *execute);

/** For tests: as if nothing had been noted. */
void channels_forget(void);

#endif
