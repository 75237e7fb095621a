// Texture and surface objects of sessions. A program knows an object as a 64-bit value, and stores
// that anywhere, device memory included. So a standby must have every object under the value that
// the active executor's driver chose, and the daemon sends that value (MakeObject.value).
//
// A driver numbers the objects of a context from 1 on. A freed number is given to another object,
// at an unpredictable time (H200, driver 580: this depends on the work that the device has finished
// since, and on the latest number). So numbers are not freed as long as possible:
//   - an object that is dropped is *held*: it stays, without an owner. A request for exactly the
//     same form gets the same object again: some programs make an object for each call;
//   - only when more than OBJECT_HELD_MAX are held, the object that was held longest is freed;
//   - a standby makes objects, and holds them, until the requested number comes. The daemon names
//     living objects in the order of their numbers at the standby's start, and new objects as they
//     are made.
//
// If the number does not come, the request fails: the daemon then knows that the session cannot be
// moved to this standby. The next standby begins anew, and can have the number.

#ifndef FRMPS_SERVER_EXECUTOR_OBJECT_H
#define FRMPS_SERVER_EXECUTOR_OBJECT_H

#include <stdint.h>

#include "protocol/cuda_abi.h"

struct job;
struct object;
struct tenant;

/* Bound of the values: the driver's limit of objects in a context. */
#define OBJECT_VALUES	UINT64_C(1048576)
#define OBJECT_HELD_MAX UINT64_C(16384)

/* Of one session. Module thread. */
struct object_table {
	struct object **objects; /* FRMPS_OBJECT_IDS, NULL until first used */
};

/* Of an executor, by value. Module thread. */
struct object_pool {
	struct object_place *places; /* 0 … room - 1 */
	uint64_t room, held;	     /* held: number of objects that are held, with a form or as fillers */
	uint64_t drops;		     /* count of drops: tells the object that was held longest */
};

/** Requests. Module thread. */
void object_make(struct job *job);
void object_drop(struct job *job);

/** Ends the objects over an array; no session owns them any more. Module thread. */
void object_forget_array(struct tenant *tenant, uint32_t array);

/** Ends all objects of a session. Module thread; the session is not served any more. */
void object_table_deinit(struct tenant *tenant);

/** Frees the table. Makes no call of the backend. */
void object_pool_deinit(struct object_pool *pool);

#endif
