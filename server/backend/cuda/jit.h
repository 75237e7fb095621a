// The driver's compiler, and what it is told besides the text: a client's options, and log buffers
// of ours. No state; any thread.

#ifndef FRMPS_SERVER_BACKEND_CUDA_JIT_H
#define FRMPS_SERVER_BACKEND_CUDA_JIT_H

#include <stddef.h>

#include "protocol/cuda_abi.h"
#include "protocol/wire.h"

#define JIT_OPTIONS_MAX 32u
/* Ours in front of the client's: two log buffers and their sizes. */
#define JIT_OWN_OPTIONS 4u

/* Both stay where they are while the driver has a link that was told of them: it writes to the
 * values, too. */

struct jit_options {
	unsigned count;
	CUjit_option ids[JIT_OWN_OPTIONS + JIT_OPTIONS_MAX];
	void *values[JIT_OWN_OPTIONS + JIT_OPTIONS_MAX];
};

struct jit {
	struct jit_options options;
	char errors[8192], remarks[8192];
};

/** A client's options; NULL: none. CUDA_ERROR_INVALID_VALUE: too many; CUDA_ERROR_NOT_SUPPORTED for
 * those that point into the client's memory. */
CUresult jit_options_init(struct jit_options *options, const struct wire_options *wishes);

/** Log buffers and a client's options. Errors as above. */
CUresult jit_init(struct jit *jit, const struct wire_options *wishes);

/** A copy up to the first NUL, and with one: the compiler reads that far; the client's text may
 * come without, or with much behind it. free() it. @ret_bytes: with the NUL */
CUresult jit_text(const void *text, size_t bytes, void **ret_copy, size_t *ret_bytes);

/**
 * Compiles one input to machine code.
 * @source: NUL-terminated if it is text
 * @count, options, values: as the driver takes them
 * @ret_code: on the heap, the caller's
 * Return: the driver's code, or CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult jit_compile(CUjitInputType type, const void *source, size_t bytes, unsigned count,
	CUjit_option *options, void **values, void **ret_code, size_t *ret_bytes);

#endif
