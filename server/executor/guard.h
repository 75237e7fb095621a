// The guard of a session: a sink, one granule of device memory, is mapped directly below and above
// the session's device memory, so that a kernel that reads or writes a little beside it does not
// fault the shared context. Everything farther away is bare: an access there is a fault, as
// natively. guard_watch.c has the looks at the sink and their consequences.
//
// Main thread, but for guard_unmap().

#ifndef FRMPS_SERVER_EXECUTOR_GUARD_H
#define FRMPS_SERVER_EXECUTOR_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "protocol/wire.h"

struct backend_sink;
struct job;
struct pace;
struct tenant;

/* The consequence of a guard hit (OpenGuard.policy). */
enum guard_policy { GUARD_ERROR = 1, GUARD_WARN = 2 };

/* Every word of a sink. Each half is a quiet NaN as binary16 and as bfloat16, the whole word as
 * binary32 and, twice, as binary64: values that a kernel reads from a sink spoil the result instead
 * of looking valid. No program is likely to write this word; such a write is not seen. */
#define GUARD_PATTERN UINT32_C(0xfffafffb)

struct guard {
	struct backend_sink *sink;
	uint64_t home; /* address of the service's own mapping of the sink */
	uint32_t policy;

	uint8_t *granules; /* enum granule, of the device part of the window */
	uint32_t count;	   /* of these */
	uint32_t mapped;   /* granules with the sink */
	uint32_t unmapped; /* at the end: granules from the start that are unmapped again */
	bool home_mapped;
	bool told_full; /* the log says that no more granules can be had */
};

/** OpenGuard. */
void guard_handle(struct job *job);

/**
 * Before real memory is mapped: unmaps the sink in its place.
 * Return: CUDA_SUCCESS; CUDA_ERROR_OUT_OF_MEMORY for the last granule, which is the guard's own;
 * the backend's code.
 */
CUresult guard_make_room(struct tenant *tenant, const struct wire_range *range);
/** Real memory was mapped: maps the sink on both sides of it. */
void guard_note_mapped(struct tenant *tenant, const struct wire_range *range);
/** The range has no real memory any more, or the mapping failed: the sink stays, or comes, where
 * real memory is next to it, and goes elsewhere. */
void guard_note_unmapped(struct tenant *tenant, const struct wire_range *range);

/** Unmaps everything. Any thread: the session is closing or was detached, and no thread looks at
 * the sink or changes the guard any more. Return: false: call again (pace_step()) */
bool guard_unmap(struct tenant *tenant, struct pace *pace);
/** Frees the guard, which is unmapped, if there is one. */
void guard_deinit(struct tenant *tenant);
/** guard_unmap() and guard_deinit(). */
void guard_end(struct tenant *tenant);

#endif
