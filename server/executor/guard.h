// The guard of a session: sinks back the addresses around the session's device memory, so that a
// kernel that reads or writes there does not fault the shared context. guard.c has the choice of
// slots; stray.c has the looks at the sinks and their consequences.
//
// Main thread, but for guard_unmap().

#ifndef FRMPS_SERVER_EXECUTOR_GUARD_H
#define FRMPS_SERVER_EXECUTOR_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "protocol/wire.h"

struct backend_sink;
struct executor;
struct job;
struct pace;
struct tenant;

/* The consequence of a guard hit with a proved culprit (OpenGuard.policy). */
enum guard_policy { GUARD_ERROR = 1, GUARD_WARN = 2 };

/* Every word of a sink. Each half is a quiet NaN as binary16 and as bfloat16, the whole word as
 * binary32 and, twice, as binary64: values that a kernel reads from a sink spoil the result instead
 * of looking valid. No program is likely to write this word; such a write is not seen. */
#define GUARD_PATTERN UINT32_C(0xfffafffb)

/* Slots that are mapped in one step of the main thread. */
#define GUARD_STEP_SLOTS 16u

struct guard {
	struct backend_sink *near, *far;
	uint64_t near_bytes, far_bytes;
	uint64_t home; /* address of the service's own mapping of the sinks: near, then far */
	uint32_t policy;
	uint32_t reach; /* granules */

	uint8_t *slots;		  /* enum slot of each granule of the device part */
	uint32_t granules, block; /* of the device part; of a far slot */
	uint32_t wanted;	  /* granules that are to be backed */
	uint32_t mapped;	  /* slots */
	uint32_t low, high;	  /* granules: latest change, from which slots are prepared outwards */
	uint32_t radius;	  /* blocks from there that are prepared */
	uint32_t sweep;		  /* then: granules from the start that are prepared */
	uint32_t unmapped;	  /* at the end: granules from the start that are unmapped again */
	uint64_t step_at;	  /* ns: no step before */
	bool home_mapped;
	bool full; /* no more slots can be had */
};

/** OpenGuard. */
void guard_handle(struct job *job);

/**
 * Before real memory is mapped: unmaps the slots in its place.
 * Return: CUDA_SUCCESS; CUDA_ERROR_OUT_OF_MEMORY for the few addresses that are the guard's own;
 * the backend's code.
 */
CUresult guard_make_room(struct tenant *tenant, const struct wire_range *range);
/** Real memory was mapped: its neighbours are backed at once, the rest of the neighbourhood in
 * steps.
 */
void guard_note_mapped(struct tenant *tenant, const struct wire_range *range);
/** The range has no real memory any more, or the mapping failed: slots back the range in steps. */
void guard_note_unmapped(struct tenant *tenant, const struct wire_range *range);

/** Maps up to GUARD_STEP_SLOTS slots. */
void guard_step(struct tenant *tenant);

/** Unmaps everything. Any thread: the session is closing or was detached, and no thread looks at
 * the sinks or changes the guard any more. Return: false: call again (pace_step()) */
bool guard_unmap(struct tenant *tenant, struct pace *pace);
/** Frees the guard, which is unmapped, if there is one. */
void guard_deinit(struct tenant *tenant);
/** guard_unmap() and guard_deinit(). */
void guard_end(struct tenant *tenant);

#endif
