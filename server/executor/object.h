// Texture and surface objects of sessions. What a program knows of one is a 64-bit value, which it
// stores where it likes, device memory included. So a standby must have every object under the
// value that the active executor's driver chose, and the daemon tells it which (MakeObject.value).
//
// A driver numbers the objects of a context from 1 on. It gives a number that was freed to another
// object, but when is not to be foreseen (H200, driver 580: it depends on what the device has
// finished since, and on which number was given last). So numbers are not freed as long as
// possible:
//   - an object that is dropped is *held*: it stays, for nobody. One of exactly the same form is
//     the same object again, which is what programs do that make one for each call;
//   - only when more than OBJECT_HELD_MAX are held, the one that is held for the longest time is
//     freed;
//   - a standby makes objects, and holds them, until the number comes that it was told. It is told
//     of living objects in the order of their numbers when it begins, and of new ones as they are
//     made.
//
// A number that cannot be had is an error: the daemon then knows that the session cannot be moved
// to this standby. The next one, which begins anew, can have it.

#ifndef FRMPS_SERVER_EXECUTOR_OBJECT_H
#define FRMPS_SERVER_EXECUTOR_OBJECT_H

#include <stdint.h>

#include "protocol/cuda_abi.h"

struct executor;
struct job;
struct object;
struct tenant;

/* Values are below this: the driver's limit of objects in a context. */
#define OBJECT_VALUES	UINT64_C(1048576)
#define OBJECT_HELD_MAX UINT64_C(16384)

/* Of one session. Module thread. */
struct object_table {
	struct object **objects; /* FRMPS_OBJECT_IDS, NULL until first used */
};

/* Of an executor, by value. Module thread. */
struct object_pool {
	struct object_place *places; /* 0 … room - 1 */
	uint64_t room, held;	     /* held: how many are held with a form, or as fillers */
	uint64_t drops;		     /* counts what was dropped: which is held for the longest time */
};

/** Requests. Module thread. */
void object_make(struct job *job);
void object_drop(struct job *job);

/** Ends the objects over an array; they are nobody's again. Module thread. */
void object_forget_array(struct tenant *tenant, uint32_t array);

/** Ends all objects of a session. Module thread; the session is not served any more. */
void object_table_deinit(struct tenant *tenant);

/** Frees the books. Nothing is asked of the backend. */
void object_pool_deinit(struct object_pool *pool);

#endif
