// Effect of the driver's variables on an image: CUDA_FORCE_PTX_JIT and CUDA_FORCE_JIT leave out
// machine code, CUDA_DISABLE_PTX_JIT and CUDA_DISABLE_JIT leave out code that needs compiling. The
// service compiles for all programs in the same way, so the library shortens the program's copy
// before sending it.

#ifndef FRMPS_CLIENT_STATE_IMAGE_KINDS_H
#define FRMPS_CLIENT_STATE_IMAGE_KINDS_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

/* The kinds that are left out. */
struct image_kinds {
	bool code;	   /* for a device */
	bool text;	   /* PTX */
	bool intermediate; /* any other form */
};

/** Set by process start, before any image is opened. */
extern struct image_kinds image_left_out;

/**
 * Shortens the copy of an image in a file of the library's that is not sealed yet. Machine code
 * outside of a fat binary stays.
 * @bytes: of the image; the new size after the call
 * Return: CUDA_SUCCESS; CUDA_ERROR_JIT_COMPILATION_DISABLED if there was only text,
 * CUDA_ERROR_NO_BINARY_FOR_GPU if there was only code, CUDA_ERROR_INVALID_IMAGE,
 * CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult image_leave_out(int fd, uint64_t *bytes);

#endif
