// Patches a function of ours into a cubin, in the place of a function of the driver. A linked cubin
// still has the driver's own functions (vprintf, __assertfail) as undefined symbols, and the driver
// resolves them at the load. So defining the symbol is enough: another section with the code, a
// symbol inside, and the registers and stack for the kernels that call the function. Everything
// else stays where it is.
//
// Pure functions on untrusted bytes.

#ifndef FRMPS_SERVER_BACKEND_CUDA_PATCH_H
#define FRMPS_SERVER_BACKEND_CUDA_PATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "server/backend/fatbin.h"

/* A function as machine code that refers to nothing outside itself. */
struct patch_function {
	const char *name;
	const uint8_t *code;
	size_t bytes;
	uint32_t registers, stack;
};

/** True if a cubin leaves a function of this name to the driver. */
bool patch_wants(const uint8_t *cubin, size_t bytes, const char *name);

/**
 * Defines the function in a cubin that wants it.
 * Return: CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_IMAGE: the form is unknown, or
 * a kernel has fewer registers than the function needs
 */
CUresult patch_in(
	const uint8_t *cubin, size_t bytes, const struct patch_function *function, struct fatbin_bytes *ret);

/**
 * Extracts a function from the relocatable cubin of its compilation. The code stays there.
 * Return: false if the function is missing, or has references.
 */
bool patch_take(const uint8_t *cubin, size_t bytes, const char *name, struct patch_function *ret_function);

#endif
