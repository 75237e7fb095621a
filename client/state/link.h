// The driver's linker (cuLink*). The service compiles and links; each call sends its input, so that
// the call returns the errors of that input. The library also stores inputs until the link is
// destroyed: a service that has changed executors, or needed the memory, has dropped the link and
// gets everything again. Programs do not notice.
//
// Any thread; each link has a lock, held while the service is asked.

#ifndef FRMPS_CLIENT_STATE_LINK_H
#define FRMPS_CLIENT_STATE_LINK_H

#include <stddef.h>

#include "client/state/jit.h"
#include "protocol/cuda_abi.h"

/* Longer inputs are refused: the service's limit. */
#define LINK_INPUT_BYTES_MAX (UINT64_C(256) << 20)

struct client_link;

/** The link of a handle; NULL for an invalid or destroyed link. */
struct client_link *link_find(CUlinkState handle);

/**
 * @jit: options; the program keeps its log buffers until the link is destroyed.
 * CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult link_create(const struct jit *jit, CUlinkState *ret_handle);

/**
 * Adds an input.
 * @data: the caller keeps it
 * @own: options of this input
 * Return: the compiler's answer
 */
CUresult link_add(struct client_link *link, CUjitInputType type, const void *data, size_t bytes,
	const char *name, const struct jit *own);

/** Links. The image stays valid until the link is destroyed. Once: CUDA_ERROR_INVALID_HANDLE. */
CUresult link_complete(struct client_link *link, void **ret_image, size_t *ret_bytes);

/** CUDA_ERROR_INVALID_HANDLE for the second of two threads. */
CUresult link_destroy(struct client_link *link);

#endif
