// CUDA arrays of sessions. An array has its memory from the session's window, like everything else:
// the same part of the same chunk stands behind it in every executor, and a texel written in one is
// read in all.
//
//            MakeArray           BackArray             DropArray                 a gap
//   (none) ───────────► MADE ───────────────► BACKED ───────────► in a grave ───────────► (none)
//
// Commands may name BACKED ones. Freeing one makes the driver wait for all that runs, so it is done
// in a gap (module_worker.c); a session's arrays that are freed while much memory waits for a gap
// wait for it with their answer.

#ifndef FRMPS_SERVER_EXECUTOR_ARRAY_H
#define FRMPS_SERVER_EXECUTOR_ARRAY_H

#include <stdatomic.h>
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

/* Bytes of freed arrays that wait for a gap before clients wait with them. */
#define ARRAY_GRAVES_BYTES (UINT64_C(256) << 20)

struct array {
	struct backend_array *backend;
	struct wire_array form;
	struct range memory; /* start = end: none yet */
	_Atomic bool is_backed;
	uint64_t ticket;    /* of a dropped one: what was last asked for then (drain.c) */
	struct array *next; /* of the dropped ones, then of the graves */
};

/* Of one session. The module thread writes; the serving thread reads. */
struct array_table {
	_Atomic(array_word *) arrays; /* FRMPS_ARRAY_IDS, NULL until first used; published with release */
	struct array *dropped;	      /* module thread: out of the table, may still be in use by this turn */
};

/* Arrays that are gone for their sessions and wait to be freed. Module thread. */
struct array_graves {
	struct array *first;
	uint64_t bytes, since; /* ns: of the first */
};

/** Requests. Module thread. */
void array_make(struct job *job);
void array_back(struct job *job);
void array_drop(struct job *job);

/** An array by id, NULL if there is none. Module thread; the serving thread for a turn. */
struct array *array_find(const struct tenant *tenant, uint32_t id);

/**
 * One side of a copy that is an array: where its box lies, and its memory.
 * Return: CUDA_SUCCESS; CUDA_ERROR_INVALID_HANDLE (no such array or level, or no memory),
 * CUDA_ERROR_INVALID_VALUE (outside of it).
 */
CUresult array_place(const struct tenant *tenant, const struct frmps_array_copy *copy, bool is_dst,
	struct backend_place *ret_place, struct range *ret_memory);

/** Frees what waits: as much as fits the gap, or all of it at the end. Module thread. */
void array_clear_graves(struct executor *executor);

/** Gives all arrays up. Module thread; the session is not served any more, and its objects are
 * gone. */
void array_table_deinit(struct tenant *tenant);

#endif
