// Green contexts: a device's primary context on a part of its multiprocessors (part.h). A green
// context is a context of the table, and both kinds of handle are its address. It has streams and a
// default stream of its own, whose kernels run on the part; memory, modules and everything else
// belong to the primary context, which is what context_current() returns meanwhile. The rules of
// the legacy default stream do not hold in it: all its streams are non-blocking. A thread has no
// default stream there. Any
// thread.

#ifndef FRMPS_CLIENT_STATE_GREEN_H
#define FRMPS_CLIENT_STATE_GREEN_H

#include "client/state/part.h"
#include "protocol/cuda_abi.h"

/** The two handles of a green context. */
static inline CUgreenCtx green_handle(CUcontext context)
{
	return (CUgreenCtx)context;
}

static inline CUcontext green_context(CUgreenCtx green)
{
	return (CUcontext)green;
}

/**
 * A green context on a part of a device, whose session is open. Waits until the part is ready.
 * CUDA_ERROR_OUT_OF_MEMORY when the table is full, or the service has no place for the part; errors
 * of context_primary_retain().
 */
CUresult green_create(int device, const struct part *part, CUcontext *ret_context);

/**
 * Ends a green context and its streams, whose work goes on. CUDA_ERROR_CONTEXT_IS_DESTROYED the
 * second time. @context: of green_create()
 */
CUresult green_destroy(CUcontext context);

/** The part of a green context; of any other context: everything on its device.
 * CUDA_ERROR_INVALID_CONTEXT, errors of part_of_device() */
CUresult green_part(CUcontext context, struct part *ret_part);

#endif
