// CUDA arrays of the program, plain and mipmapped. The service makes arrays; their memory comes
// from the program's own device memory like any allocation, so that it counts, moves and is freed
// in the same way. A level of a mipmapped array has its own handle, always the same. Any thread.

#ifndef FRMPS_CLIENT_STATE_ARRAY_H
#define FRMPS_CLIENT_STATE_ARRAY_H

#include <stdbool.h>
#include <stdint.h>

#include "client/state/ranges.h"
#include "client/state/slab.h"
#include "protocol/command.h"
#include "protocol/cuda_abi.h"
#include "protocol/texel.h"
#include "protocol/wire.h"

struct session;

struct client_array {
	struct slab_object object;
	uint64_t serial;	      /* unique in the life of the process */
	struct wire_array form;	      /* with the service's id; of a level: the mipmapped array's */
	uint32_t level;		      /* of a level */
	struct client_array *whole;   /* of a level: the mipmapped array; NULL: no level */
	struct client_array **levels; /* of a mipmapped array: FRMPS_ARRAY_LEVELS, those with handles */
	struct range memory;
	struct session *session;
	CUcontext context;
	struct client_array *next; /* of all but levels */
};

/* The driver's description of an array. */
struct array_wish {
	CUDA_ARRAY3D_DESCRIPTOR form;
	uint32_t levels; /* 0: a plain array */
};

/**
 * CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED (sparse arrays, deferred mapping, video
 * formats), CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult array_create(CUcontext context, const struct array_wish *wish, struct client_array **ret_array);

/** Waits for all work, then frees. */
CUresult array_destroy(struct client_array *array);

/** The array of a handle; NULL for an invalid handle; a level is an array, too. */
struct client_array *array_find(CUarray handle);
struct client_array *array_find_mipmapped(CUmipmappedArray handle);

static inline CUarray array_handle(const struct client_array *array)
{
	return (CUarray)(uintptr_t)array;
}

/** True while the array exists that had this serial number. */
bool array_is(const struct client_array *array, uint64_t serial);

/**
 * CUDA_ERROR_INVALID_VALUE for an invalid level, CUDA_ERROR_INVALID_HANDLE if another thread
 * destroys the array, CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult array_level(struct client_array *mipmapped, uint32_t level, struct client_array **ret_array);

/** Geometry of an array or level. */
void array_geometry(const struct client_array *array, struct texel_level *ret_level);

/** The driver's description of the array. */
void array_describe(const struct client_array *array, CUDA_ARRAY3D_DESCRIPTOR *ret_form);

/** Frees all arrays of a context. Its work is done. */
void array_release_context(CUcontext context);

#endif
