// Device code in an object or an archive of the host compiler. The bytes have passed image_check()
// as IMAGE_ELF, or image_is_archive(). Pure functions; any thread.

#ifndef FRMPS_SERVER_BACKEND_CUDA_OBJECT_H
#define FRMPS_SERVER_BACKEND_CUDA_OBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

/** Gets a part, which is unchecked. Return: CUDA_SUCCESS to go on */
typedef CUresult object_visit(void *context, const uint8_t *at, size_t bytes);

/** True for code for a device, false for the host. */
bool object_is_device_code(const uint8_t *elf);

/** The fat binaries in an object of the host. Return: the result of the last visit */
CUresult object_each_fatbin(const uint8_t *elf, object_visit *visit, void *context);

/** The objects in an archive. Return: the result of the last visit */
CUresult object_each_member(const uint8_t *archive, size_t bytes, object_visit *visit, void *context);

#endif
