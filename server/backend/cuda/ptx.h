// A text of PTX becomes code that is still to be linked. nvjit_open() has found the compiler.
// Single thread.

#ifndef FRMPS_SERVER_BACKEND_CUDA_PTX_H
#define FRMPS_SERVER_BACKEND_CUDA_PTX_H

#include <stdbool.h>
#include <stddef.h>

#include "protocol/cuda_abi.h"
#include "protocol/wire.h"
#include "server/backend/cuda/nvjit.h"

/* An input of the compiler. */
struct ptx {
	const char *text;		       /* ends with a NUL */
	const struct wire_options *options[2]; /* NULL: none; the second overrides the first */
	unsigned arch;			       /* of the device: 10 * major + minor */
	bool is_whole;			       /* nothing will be linked */
};

/** True if a text is for a single architecture, so that its code cannot be linked: the linker
 * refuses such code (measured, driver 580). */
bool ptx_stands_alone(const char *text);

/**
 * Compiles.
 * @log: is added to
 * @ret_code: on the heap, the caller's
 * Return: as the driver for the same text
 */
CUresult ptx_compile(const struct ptx *ptx, struct nvjit_log *log, void **ret_code, size_t *ret_bytes);

#endif
