// Limits of contexts that kernels fail without: stack, heap, launches by kernels. All contexts of a program are
// one of the service's, and other programs' too as long as their common limits are enough: a program that asks
// for more gets an executor of its own, with that limit, before the call returns (server/session/placing.h).
// What it has set last is a shadow in the context (context.h). Any thread.

#ifndef FRMPS_CLIENT_STATE_LIMIT_H
#define FRMPS_CLIENT_STATE_LIMIT_H

#include <stddef.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

/* Value of a limit that the device does not have. */
#define LIMIT_NONE UINT64_MAX

/**
 * Has the service set a limit, if there is less for the program's kernels. Waits for the program's own work then.
 * Limits that are hints are left alone.
 * @there: what every program has
 * @value: what is wished; what is in force where the service was asked
 * Return: CUDA_SUCCESS, the sticky error; CUDA_ERROR_NOT_SUPPORTED: the program cannot have an executor of its own any
 * more; CUDA_ERROR_OUT_OF_MEMORY, and others as the driver
 */
CUresult limit_raise(CUlimit limit, uint64_t there, size_t *value);

#endif
