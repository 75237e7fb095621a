// Contexts of this program: the primary context of each device, contexts that the program made, and
// green contexts. A green context (green.h) is its device's primary context on a part of the
// multiprocessors: it owns streams alone.
//
// Contexts exist only here; for the service all work of a process on a device is a single session.
// A handle is the address of a slot in a table that is never freed, so a stale handle is noticed,
// not followed; slots of dead contexts are reused as late as possible.
//
// Each thread has its own current context (thread.h). Any thread may call anything here.

#ifndef FRMPS_CLIENT_STATE_CONTEXT_H
#define FRMPS_CLIENT_STATE_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "shm/order.h"

struct client_stream;
struct cls_map;

/* The calling thread's current context or NULL. Not checked to be live. Of a green context: its
 * primary context, to which belongs whatever the thread makes. */
CUcontext context_current(void);

/** Set if the process ever had a green context: on the way of launches a single load. */
extern word32 context_greens;

/** The same as the program sees it: a green context itself. */
CUcontext context_shown(void);

/** The primary context of a green context; any other handle itself. */
CUcontext context_owner(CUcontext context);

/** The context if it is green, else NULL. */
CUcontext context_green(CUcontext context);

/** The multiprocessors of a green context, as in the table of streams (shm/layout.h); 0: NULL. */
uint64_t context_part(CUcontext green);

/** How many multiprocessors a green context has. */
uint32_t context_sms(CUcontext green);

/** The default stream of a green context; NULL for any other. */
struct client_stream *context_default_stream(CUcontext context);

/** Handle of a device's primary context, whether active or not; NULL for a wrong ordinal. Activates
 * nothing.
 */
CUcontext context_primary(int device);

/**
 * Number of a context, unique in the life of the process: each activation of a primary context
 * gives a new number. 0 for an invalid handle.
 */
uint64_t context_id(CUcontext context);

/** A context that can be used: created or activated, and not destroyed since. NULL is none. */
bool context_is_live(CUcontext context);

/** Lets the calling thread work in the session of a context, live or not. Return: as
 * context_is_live() */
bool context_enter(CUcontext context);

/**
 * A handle of this table, live or not: includes destroyed contexts and inactive primary contexts.
 */
bool context_is_known(CUcontext context);

/** Context-local storage of a context; NULL for an invalid handle. The map outlives the context. */
struct cls_map *context_cls(CUcontext context);

/** Device of a context; -1 for an invalid handle. */
int context_device(CUcontext context);

/**
 * Number of a stream that is unique in the process, special handles included; 0 for an invalid
 * handle.
 */
uint64_t stream_unique_id(CUcontext context, CUstream stream);

/** True for known flags with at most one way of waiting. */
static inline bool context_flags_valid(unsigned int flags)
{
	unsigned int scheduling = flags & CU_CTX_SCHED_MASK;

	return !(flags & ~(unsigned int)CU_CTX_FLAGS_MASK) && !(scheduling & (scheduling - 1));
}

/** Flags as given at creation or by cuDevicePrimaryCtxSetFlags, cuCtxSetFlags. */
unsigned int context_flags(CUcontext context);
void context_set_flags(CUcontext context, unsigned int flags);

/**
 * Shadow of a limit, which limit.h sets. CUDA_ERROR_UNSUPPORTED_LIMIT, CUDA_ERROR_INVALID_VALUE as
 * the driver returns these.
 */
CUresult context_limit(CUcontext context, CUlimit limit, size_t *ret_value);

/** Shadows without an effect. */
CUfunc_cache context_cache_config(CUcontext context);
void context_set_cache_config(CUcontext context, CUfunc_cache config);
CUsharedconfig context_shared_config(CUcontext context);
void context_set_shared_config(CUcontext context, CUsharedconfig config);

/**
 * A new context on a device, whose session is open. CUDA_ERROR_OUT_OF_MEMORY when the table is
 * full.
 */
CUresult context_create(int device, unsigned int flags, CUcontext *ret_context);

/**
 * Ends a created context: waits for its streams' work, frees its resources.
 * CUDA_ERROR_INVALID_CONTEXT for primary contexts and invalid handles,
 * CUDA_ERROR_CONTEXT_IS_DESTROYED the second time.
 */
CUresult context_destroy(CUcontext context);

/** Usage count of cuCtxAttach and cuCtxDetach. Detach of the last use destroys. */
CUresult context_attach(CUcontext context);
CUresult context_detach(CUcontext context);

/** Primary contexts. The session of a device is open before its context is retained. */
CUresult context_primary_retain(int device, CUcontext *ret_context);
CUresult context_primary_release(int device);
CUresult context_primary_reset(int device);
void context_primary_state(int device, unsigned int *ret_flags, int *ret_active);

#endif
