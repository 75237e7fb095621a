// Text of clients' kernels. The driver's printf() and assert() write into a buffer that belongs to
// the context, which all clients share, and the driver prints the buffer as this process's output.
// So kernels that print or assert get functions of ours when they are loaded (text.cu, patch.h),
// which write into the client's own ring. Called by the only thread that loads modules.

#ifndef FRMPS_SERVER_BACKEND_CUDA_TEXT_H
#define FRMPS_SERVER_BACKEND_CUDA_TEXT_H

#include "server/backend/backend.h"
#include "server/backend/fatbin.h"

/**
 * Redirects the output of kernels, and the text of their assertions.
 * @cubin: whole (image_check)
 * @text: the destination; afterwards also if they print, and if they assert
 * @ret: left unchanged if the cubin is to be loaded unchanged, else its replacement, on the heap
 * Return: CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult cuda_text_direct(
	struct backend_text *text, const uint8_t *cubin, size_t bytes, struct fatbin_bytes *ret);

/** When the context was made, before anything is loaded: compiles our functions. Without them
 * kernels print to this process's standard output, as a line of the log reports. */
void cuda_text_open(void);

/** At the end of the context. */
void cuda_text_close(void);

#endif
