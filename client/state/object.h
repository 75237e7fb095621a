// Texture and surface objects of the program: the values that kernels know them by, which the
// service's driver chose, and what they were made of. One that is destroyed while work may still
// use it is given back when that work is done, at the latest when another one is made or destroyed.
// Any thread.

#ifndef FRMPS_CLIENT_STATE_OBJECT_H
#define FRMPS_CLIENT_STATE_OBJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

enum object_kind { OBJECT_TEXTURE, OBJECT_SURFACE };

/* What the program gave. */
struct object_form {
	enum object_kind kind;
	bool has_view;
	CUDA_RESOURCE_DESC resource;
	CUDA_TEXTURE_DESC texture; /* OBJECT_TEXTURE */
	CUDA_RESOURCE_VIEW_DESC view;
};

/** CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY. */
CUresult object_create(CUcontext context, const struct object_form *form, uint64_t *ret_value);

/** Destroys it, if it is there: the driver does not mind. */
void object_destroy(enum object_kind kind, uint64_t value);

/** Copies what an object was made of. CUDA_ERROR_INVALID_VALUE if there is none. */
CUresult object_describe(enum object_kind kind, uint64_t value, struct object_form *ret_form);

/** Gives back what was destroyed and is not used any more. */
void object_reap(void);

/** Destroys all objects of a context. Its work is done. */
void object_release_context(CUcontext context);

#endif
