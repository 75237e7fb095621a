// Texts and a client's options for them, and the driver's own compiler for texts of the service.
// No state; any thread.

#ifndef FRMPS_SERVER_BACKEND_CUDA_JIT_H
#define FRMPS_SERVER_BACKEND_CUDA_JIT_H

#include <stddef.h>

#include "protocol/cuda_abi.h"
#include "protocol/wire.h"

/** Checks a client's options; NULL: none. CUDA_ERROR_INVALID_VALUE: too many;
 * CUDA_ERROR_NOT_SUPPORTED for those that point into the client's memory. */
CUresult jit_check_options(const struct wire_options *options);

/** A copy up to the first NUL, including it: the compiler reads that far; the client's text may
 * lack a NUL, or continue long after. free() the copy. @ret_bytes: with the NUL */
CUresult jit_text(const void *text, size_t bytes, void **ret_copy, size_t *ret_bytes);

/**
 * Compiles an input to machine code.
 * @source: NUL-terminated if text
 * @count, options, values: in the driver's form
 * @ret_code: on the heap, the caller's
 * Return: the driver's code, or CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult jit_compile(CUjitInputType type, const void *source, size_t bytes, unsigned count,
	CUjit_option *options, void **values, void **ret_code, size_t *ret_bytes);

#endif
