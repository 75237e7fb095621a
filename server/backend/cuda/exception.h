// The service's own handling of a kernel's exception. See exception.c.

#ifndef FRMPS_SERVER_BACKEND_CUDA_EXCEPTION_H
#define FRMPS_SERVER_BACKEND_CUDA_EXCEPTION_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "server/backend/backend.h"
#include "server/backend/cuda/warps.h"

/**
 * From now on a thread of this process handles exceptions. After the context was made, before
 * anything runs there.
 * @sms: multiprocessors of the device
 * Return: true on success; if not, nothing has changed
 */
bool exception_open(uint32_t sms);

/** True if such a thread handles exceptions. Any thread. */
bool exception_is_ours(void);

/** Handles the faults so far. For the thread, and for tests. */
void exception_handle(const struct backend_watch *watch);

/** Every half second: handles warps that are stopped at eight calls in a row, for nobody has
 * announced them. For the same callers. */
void exception_look(const struct backend_watch *watch);

/** backend.h, kernels_end(). Any thread. */
CUresult exception_end(const struct backend_ending *asked, char *ret_kernel);

#endif
