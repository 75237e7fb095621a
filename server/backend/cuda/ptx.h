// NVIDIA's compiler of PTX by itself: the interface of nvPTXCompiler, which the driver's
// libnvidia-ptxjitcompiler exports. It needs neither a device nor a context, and so no memory of a
// device, which the driver's linker does. One thread.

#ifndef FRMPS_SERVER_BACKEND_CUDA_PTX_H
#define FRMPS_SERVER_BACKEND_CUDA_PTX_H

#include <stddef.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "protocol/wire.h"

#define PTX_LOG_BYTES 8192u

/* What is compiled. */
struct ptx {
	const char *text;		    /* ends with a NUL */
	const struct wire_options *options; /* NULL: none */
	unsigned arch;			    /* of the device: 10 * major + minor */
};

/* What comes of it. */
struct ptx_result {
	void *code; /* for the device, on the heap, the caller's; NULL: there is none */
	size_t bytes;
	char errors[PTX_LOG_BYTES], remarks[PTX_LOG_BYTES];
};

/** Opens the library, unless that was done or cannot be. */
void ptx_open(void);

/** Return: as the driver for the same text; CUDA_ERROR_JIT_COMPILER_NOT_FOUND without the
 * library. */
CUresult ptx_compile(const struct ptx *ptx, struct ptx_result *ret);

#endif
