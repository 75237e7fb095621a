// CUDA arrays of the program, plain and mipmapped. The service makes them; their memory is cut from
// the program's own device memory like any allocation, so that it counts, moves and is given back
// like all of it. A level of a mipmapped array has a handle of its own, and the same one whenever
// it is asked for. Any thread.

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

struct client_array {
	struct slab_object object;
	uint64_t serial;	      /* tells it from every other array of the process's life */
	struct wire_array form;	      /* with the service's id; of a level: that of the whole */
	uint32_t level;		      /* of a level */
	struct client_array *whole;   /* of a level: the mipmapped array; NULL: it is none */
	struct client_array **levels; /* of a mipmapped array: FRMPS_ARRAY_LEVELS, those asked for */
	struct range memory;
	CUcontext context;
	struct client_array *next; /* of all but levels */
};

/* What the driver's descriptions mean. */
struct array_wish {
	CUDA_ARRAY3D_DESCRIPTOR form;
	uint32_t levels; /* 0: a plain array */
};

/** CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED (sparse ones, deferred mapping, formats of
 * video), CUDA_ERROR_OUT_OF_MEMORY. */
CUresult array_create(CUcontext context, const struct array_wish *wish, struct client_array **ret_array);

/** Waits for all work, then frees. */
CUresult array_destroy(struct client_array *array);

/** What is behind a handle, NULL if nothing is; a level is an array, too. */
struct client_array *array_find(CUarray handle);
struct client_array *array_find_mipmapped(CUmipmappedArray handle);

static inline CUarray array_handle(const struct client_array *array)
{
	return (CUarray)(uintptr_t)array;
}

/** Whether it is still the array that had this serial number. */
bool array_is(const struct client_array *array, uint64_t serial);

/** CUDA_ERROR_INVALID_VALUE if there is no such level, CUDA_ERROR_INVALID_HANDLE if another thread
 * ends the array, CUDA_ERROR_OUT_OF_MEMORY. */
CUresult array_level(struct client_array *mipmapped, uint32_t level, struct client_array **ret_array);

/** Geometry of an array or level. */
void array_geometry(const struct client_array *array, struct texel_level *ret_level);

/** As the driver describes it. */
void array_describe(const struct client_array *array, CUDA_ARRAY3D_DESCRIPTOR *ret_form);

/** Frees everything of a context. Its work is done. */
void array_release_context(CUcontext context);

#endif
