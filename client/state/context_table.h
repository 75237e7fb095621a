// The table of contexts, for the files that share it: context.c has the properties of contexts,
// context_life.c begins and ends contexts, limit.c sets their limits. The head of context_life.c
// says which lock guards a field.

#ifndef FRMPS_CLIENT_STATE_CONTEXT_TABLE_H
#define FRMPS_CLIENT_STATE_CONTEXT_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/state/cls.h"
#include "client/state/device.h"
#include "client/state/part.h"
#include "protocol/cuda_abi.h"
#include "protocol/place.h"
#include "shm/order.h"

struct client_stream;
struct session;
struct thread;

/* The first slots are those of the devices' primary contexts, by ordinal. */
#define CONTEXT_PRIMARIES ((int)PLACE_DEVICES)
#define CONTEXT_SLOTS	  (CONTEXT_PRIMARIES + 255)

enum context_life { CONTEXT_FREE, CONTEXT_LIVE, CONTEXT_ENDING, CONTEXT_DEAD };

struct context {
	word32 life;			/* enum context_life */
	struct part part;		/* of a green context: what its kernels run on; else an empty one */
	struct client_stream *own;	/* of a green context: its default stream */
	struct client_stream *recorder; /* activity.c, as the next */
	word64 awaited;
	struct session *session; /* of the device; NULL: never lived */
	int device;
	unsigned int flags;
	unsigned int uses; /* retains of a primary context, attaches of another */
	bool wanted;	   /* the thread that ends a primary context has retained it */
	const struct thread *ender;
	word64 id;
	uint64_t within; /* of a green context: the id of its primary context, without which it ends */
	uint64_t ended;	 /* order of the ends: the oldest dead slot has the smallest */
	CUfunc_cache cache_config;
	CUsharedconfig shared_config;
	bool limit_set[DEVICE_LIMITS_MAX];
	uint64_t limits[DEVICE_LIMITS_MAX];
	struct cls_map cls;
};

extern struct context context_table[CONTEXT_SLOTS];

static inline CUcontext context_handle(struct context *context)
{
	return (CUcontext)context;
}

static inline bool context_is_green(const struct context *context)
{
	return context->part.mask;
}

static inline bool context_is_primary(const struct context *context)
{
	return context < &context_table[CONTEXT_PRIMARIES];
}

/** The slot of a handle, used at least once; NULL for an invalid handle. */
static inline struct context *context_resolve(CUcontext handle)
{
	uintptr_t offset = (uintptr_t)handle - (uintptr_t)context_table;
	struct context *context;

	if (offset >= sizeof(context_table) || offset % sizeof(*context_table) != 0)
		return NULL;
	context = &context_table[offset / sizeof(*context_table)];
	return context_is_primary(context) || word_acquire(&context->life) != CONTEXT_FREE ? context : NULL;
}

/** The slot of a device's primary context; NULL for a wrong ordinal. */
struct context *context_primary_slot(int device);

/**
 * Begins and ends the life of a green context within the device's primary context, which lives as
 * long. CUDA_ERROR_OUT_OF_MEMORY when the table is full; errors of context_primary_retain().
 */
CUresult context_begin_green(int device, const struct part *part, struct context **ret_context);
/** CUDA_ERROR_CONTEXT_IS_DESTROYED: another thread was faster. */
CUresult context_ending_green(struct context *context);
CUresult context_end_green(struct context *context);

/**
 * The slot of a context whose limit can be read, and the device, whose limits apply until the
 * program sets its own. CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_VALUE,
 * CUDA_ERROR_UNSUPPORTED_LIMIT.
 */
CUresult context_find_limit(CUcontext handle, CUlimit limit, struct context **ret_context,
	const struct client_device **ret_device);

#endif
