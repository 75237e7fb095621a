// Memory that the program allocated itself and registered (cuMemHostRegister). Any thread.
//
// The device reaches only memory that this process shares with the service, so registered memory is
// one of two things:
//
//   plain   The memory stays what it is. Copies are staged (stage/bounce.h), in stream order and
//           asynchronously as the driver's are. Kernels cannot reach it.
//   shared  Its pages have become shared ones at the same address, with the same contents; they
//           also lie in the host part of the window, and that is their device pointer. It differs
//           from the host pointer, and the device attribute
//           CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM says so.
//
// With DEVICEMAP memory becomes shared at once, else when its device pointer is asked for. It stays
// plain, without a device pointer, if it is not private anonymous memory, or if other threads might
// lose what they write meanwhile (pages.h).

#ifndef FRMPS_CLIENT_STATE_REGISTERED_H
#define FRMPS_CLIENT_STATE_REGISTERED_H

#include <stdint.h>

#include "protocol/cuda_abi.h"

struct range;

/**
 * Registers.
 * Return: CUDA_SUCCESS, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, CUDA_ERROR_INVALID_VALUE: not
 * memory of the program, or it cannot write there and has not said so, CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult registered_add(CUcontext context, uint64_t address, uint64_t bytes, unsigned int flags);

/** Undoes it, behind all work. The program may have unmapped or moved the pages.
 * CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED. */
CUresult registered_remove(uint64_t address);

/** Undoes all registrations of a context. Its work is done. */
void registered_release_context(CUcontext context);

/** Where the device sees the first byte of a registered range; 0: nowhere. */
uint64_t registered_device_address(const struct range *range);

/**
 * The same, and the memory becomes shared for it if it can.
 * Return: CUDA_ERROR_NOT_SUPPORTED: it cannot. CUDA_ERROR_INVALID_VALUE: it is not registered any
 * more. CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult registered_share(const struct range *range, uint64_t *ret_address);

#endif
