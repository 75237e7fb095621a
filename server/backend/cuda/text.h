// Text of clients' kernels. The driver's printf() and assert() write into a buffer that belongs to
// the context, which all clients share, and the driver prints it as this process's. So kernels that
// print or assert get functions of ours when they are loaded (text.cu, weave.h), which write into
// the client's own ring. Called by the one thread that loads modules.

#ifndef FRMPS_SERVER_BACKEND_CUDA_TEXT_H
#define FRMPS_SERVER_BACKEND_CUDA_TEXT_H

#include "server/backend/backend.h"
#include "server/backend/fatbin.h"

/**
 * Directs what kernels print, and the text of their assertions.
 * @cubin: whole (image_check)
 * @text: where to; says afterwards whether they print, and whether they assert
 * @ret: left alone if the cubin is to be loaded as it is, else what is loaded in its place, on the
 * heap
 * Return: CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult cuda_text_direct(
	struct backend_text *text, const uint8_t *cubin, size_t bytes, struct fatbin_bytes *ret);

/** When the context was made, before anything is loaded: compiles our functions. Without them what
 * kernels print goes to this process's standard output, and the log says so. */
void cuda_text_open(void);

/** At the end of the context. */
void cuda_text_close(void);

#endif
