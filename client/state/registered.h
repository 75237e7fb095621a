// Memory that the program allocated itself and registered (cuMemHostRegister). Any thread.
//
// The device reaches only memory that this process shares with the service, so registered memory is
// one of two things:
//
//   plain   The memory is unchanged. Copies are staged (stage/bounce.h), in stream order and
//           asynchronously as the driver's are. Kernels cannot reach the memory.
//   shared  The service has its pages, which also lie in the host part of the window: that address
//           is the device pointer. The pointers differ, as the device attribute
//           CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM says. Private anonymous pages were replaced for
//           that, at the same address, with the same contents (pages.h). Pages that other processes
//           may have, too, stay: the service pins the file behind them (backing.h).
//
// With DEVICEMAP memory becomes shared at once, else when the program asks for its device pointer.
// Memory stays plain, without a device pointer, if writes of other threads might be lost in the
// exchange, or if there is no such file.

#ifndef FRMPS_CLIENT_STATE_REGISTERED_H
#define FRMPS_CLIENT_STATE_REGISTERED_H

#include <stdint.h>

#include "protocol/cuda_abi.h"

struct range;

/**
 * Registers memory.
 * Return: CUDA_SUCCESS, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, CUDA_ERROR_INVALID_VALUE: not
 * memory of the program, or read-only without the flag for that, CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult registered_add(CUcontext context, uint64_t address, uint64_t bytes, unsigned int flags);

/**
 * Undoes a registration, behind all work. The program may have unmapped or moved the pages.
 * CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED.
 */
CUresult registered_remove(uint64_t address);

/** Undoes all registrations of a context. Its work is done. */
void registered_release_context(CUcontext context);

/** The device address of the first byte of a registered range; 0: none. */
uint64_t registered_device_address(const struct range *range);

/**
 * As registered_device_address(), but first makes the memory shared if possible.
 * Return: CUDA_ERROR_NOT_SUPPORTED: not possible. CUDA_ERROR_INVALID_VALUE: not registered any
 * more. CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult registered_share(const struct range *range, uint64_t *ret_address);

#endif
