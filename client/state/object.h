// Texture and surface objects of the program: the values that kernels use, which the service's
// driver chose, and their descriptions. An object that is destroyed while work may still use it is
// freed once that work is done, at the latest when another object is made or destroyed. Any thread.

#ifndef FRMPS_CLIENT_STATE_OBJECT_H
#define FRMPS_CLIENT_STATE_OBJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "client/state/ranges.h"
#include "protocol/cuda_abi.h"

enum object_kind { OBJECT_TEXTURE, OBJECT_SURFACE };

/* The program's description. */
struct object_form {
	enum object_kind kind;
	bool has_view;
	CUDA_RESOURCE_DESC resource;
	CUDA_TEXTURE_DESC texture; /* OBJECT_TEXTURE */
	CUDA_RESOURCE_VIEW_DESC view;
};

/* Of a session; guarded by the lock of objects. */
struct objects {
	struct range_map map; /* address: the value, one byte; block: the object */
};

/**
 * CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY. In the calling thread's session, as all here.
 */
CUresult object_create(CUcontext context, const struct object_form *form, uint64_t *ret_value);

/** Destroys an object; an unknown value is no error, as in the driver. */
void object_destroy(enum object_kind kind, uint64_t value);

/** Copies an object's description. CUDA_ERROR_INVALID_VALUE for an unknown value. */
CUresult object_describe(enum object_kind kind, uint64_t value, struct object_form *ret_form);

/** Frees destroyed objects that no work uses any more. */
void object_reap(void);

/** Destroys all objects of a context. Its work is done. */
void object_release_context(CUcontext context);

#endif
