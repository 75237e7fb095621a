// The driver's linker (cuLink*). The service compiles and links; each input is handed over at the
// call, so that what is wrong with it is told there. It is also kept here until the link is
// destroyed: a service that has changed executors, or had to make room, has forgotten it all and is
// given everything once more. Programs do not notice.
//
// Any thread; one lock per link, held while the service is asked.

#ifndef FRMPS_CLIENT_STATE_LINK_H
#define FRMPS_CLIENT_STATE_LINK_H

#include <stddef.h>

#include "client/state/jit.h"
#include "protocol/cuda_abi.h"

/* Longer inputs are refused: what the service takes. */
#define LINK_INPUT_BYTES_MAX (UINT64_C(256) << 20)

struct client_link;

/** The link behind a handle; NULL if it is none or was destroyed. */
struct client_link *link_find(CUlinkState handle);

/** @jit: options; its log buffers are the program's until the link is destroyed.
 * CUDA_ERROR_OUT_OF_MEMORY. */
CUresult link_create(const struct jit *jit, CUlinkState *ret_handle);

/**
 * Adds an input.
 * @data: stays the caller's
 * @own: options of this input
 * Return: the compiler's answer
 */
CUresult link_add(struct client_link *link, CUjitInputType type, const void *data, size_t bytes,
	const char *name, const struct jit *own);

/** Links. The image stays valid until the link is destroyed. Once: CUDA_ERROR_INVALID_HANDLE. */
CUresult link_complete(struct client_link *link, void **ret_image, size_t *ret_bytes);

/** CUDA_ERROR_INVALID_HANDLE for a thread that comes second. */
CUresult link_destroy(struct client_link *link);

#endif
