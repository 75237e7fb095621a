// CUDA arrays of sessions. An array has memory from the session's window, like every other
// resource: the same part of the same chunk backs the array in every executor, and a texel written
// in one executor is read in all.
//
//            MakeArray        BackArray          DropArray                      a gap
//   (none) ───────────► MADE ──────────► BACKED ───────────► in the reclaim list ───────► (none)
//
// Commands may name BACKED arrays. The driver waits for all running work to free an array, so the
// module thread frees arrays in a gap (module_worker.c). While much memory waits for a gap,
// DropArray is answered only after a gap.

#ifndef FRMPS_SERVER_EXECUTOR_ARRAY_H
#define FRMPS_SERVER_EXECUTOR_ARRAY_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "protocol/wire.h"
#include "server/backend/backend.h"
#include "server/executor/range.h"

struct array;
struct executor;
struct job;
struct tenant;

typedef _Atomic(struct array *) array_word;

/* Bytes of freed arrays that may wait for a gap before DropArray waits, too. */
#define ARRAY_RECLAIM_BYTES (UINT64_C(256) << 20)

struct array {
	struct backend_array *backend;
	struct wire_array form;
	struct range memory; /* start = end: none yet */
	_Atomic bool is_backed;
	uint64_t ticket;    /* of a dropped array: the latest drain ticket at the drop (drain.c) */
	struct array *next; /* of the list of dropped arrays, then of the reclaim list */
};

/* Of one session. The module thread writes; the serving thread reads. */
struct array_table {
	_Atomic(array_word *) arrays; /* FRMPS_ARRAY_IDS, NULL until first used; published with release */
	struct array *dropped;	      /* module thread: out of the table, may still be in use by this turn */
};

/* The reclaim list: arrays that sessions have dropped and that wait to be freed. Module thread. */
struct array_reclaim {
	struct array *first;
	uint64_t bytes, since; /* ns: of the first */
};

/** Requests. Module thread. */
void array_make(struct job *job);
void array_back(struct job *job);
void array_drop(struct job *job);

/** An array by id, or NULL. Module thread; the serving thread for a turn. */
struct array *array_find(const struct tenant *tenant, uint32_t id);

/**
 * The side of a copy that is an array: the place of the box, and the array's memory.
 * Return: CUDA_SUCCESS; CUDA_ERROR_INVALID_HANDLE (no such array or level, or no memory),
 * CUDA_ERROR_INVALID_VALUE (outside of the array).
 */
CUresult array_place(const struct tenant *tenant, const struct frmps_array_copy *copy, bool is_dst,
	struct backend_place *ret_place, struct range *ret_memory);

/** Frees waiting arrays: as many as fit the gap, or all at the executor's end. Module thread. */
void array_reclaim_all(struct executor *executor);

/** Frees all arrays. Module thread; the session is not served any more, and the session's objects
 * are destroyed. */
void array_table_deinit(struct tenant *tenant);

#endif
