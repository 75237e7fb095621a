// Puts a function of ours into a cubin, in the place of one that the driver would put there. A
// linked cubin still has the driver's own functions (vprintf, __assertfail) as undefined symbols,
// and the driver resolves them when it loads it, like any others. So it is enough to define the
// symbol: one more section with the code, one symbol that lies in it, and what the kernels that
// call it need of registers and stack. Everything else stays where it is.
//
// Pure functions on untrusted bytes.

#ifndef FRMPS_SERVER_BACKEND_CUDA_WEAVE_H
#define FRMPS_SERVER_BACKEND_CUDA_WEAVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "server/backend/fatbin.h"

/* A function as machine code that refers to nothing outside itself. */
struct weave_function {
	const char *name;
	const uint8_t *code;
	size_t bytes;
	uint32_t registers, stack;
};

/** Whether a cubin leaves a function of this name to the driver. */
bool weave_wants(const uint8_t *cubin, size_t bytes, const char *name);

/**
 * Defines the function in a cubin that wants it.
 * Return: CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_IMAGE: it is not of the known
 * form, or its kernels have fewer registers than the function needs
 */
CUresult weave_in(
	const uint8_t *cubin, size_t bytes, const struct weave_function *function, struct fatbin_bytes *ret);

/**
 * Takes a function out of the relocatable cubin that it was compiled into. The code stays there.
 * Return: false if it is not there, or not without references.
 */
bool weave_take(const uint8_t *cubin, size_t bytes, const char *name, struct weave_function *ret_function);

#endif
