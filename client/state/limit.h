// Limits of contexts that kernels fail without: stack, heap, launches by kernels. All contexts of a
// program on a device are a single context of the service, shared with other programs as long as
// the common limits suffice. A program that asks for more gets an executor of its own, with that
// limit, before the call returns (server/session/limit.h). The latest value is a shadow in the
// context (context.h). Any thread.

#ifndef FRMPS_CLIENT_STATE_LIMIT_H
#define FRMPS_CLIENT_STATE_LIMIT_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

/* Limits that the service has set for this program alone, in a session. The lock is held while the
 * service is asked. */
struct limits {
	pthread_mutex_t lock;
	uint64_t in_force[CU_LIMIT_MAX];
};

/** Called by session start. */
void limit_start(void);

/* Value of a limit that the device does not have. */
#define LIMIT_NONE UINT64_MAX

/**
 * Sets a limit of a context.
 * Return: CUDA_SUCCESS, the sticky error; CUDA_ERROR_UNSUPPORTED_LIMIT, CUDA_ERROR_INVALID_VALUE as
 * the driver returns these; CUDA_ERROR_NOT_SUPPORTED: the program cannot get an executor of its own
 * any more; CUDA_ERROR_OUT_OF_MEMORY, and other errors of the driver
 */
CUresult limit_set(CUcontext context, CUlimit limit, size_t value);

#endif
