// The stash of an executor: device memory with copies of sessions' memory. See stash.c.

#ifndef FRMPS_SERVER_EXECUTOR_STASH_H
#define FRMPS_SERVER_EXECUTOR_STASH_H

#include <stdbool.h>
#include <stdint.h>

#include "server/executor/job.h"
#include "server/executor/range.h"
#include "shm/order.h"

struct executor;

/* Of an executor. */
struct stash_parts {
	struct range window;	/* reserved; empty: nothing is. Main thread */
	struct range_set parts; /* exact: as they were mapped. Main thread */
	struct range_set all;	/* the same, merging */
	/* Copies into the stash, and out of it, that are under way. Carriers count down. */
	word32 filling, emptying;
};

void stash_init(struct executor *executor);
/** Unmaps all of it. The carriers have ended. */
void stash_deinit(struct executor *executor);

/** MapStash, CarryStash, UnmapStash. Main thread. */
void stash_handle(struct job *job);

/** Return: true if all these bytes are in the stash. Main thread. */
bool stash_covers(struct executor *executor, uint64_t address, uint64_t bytes);

#endif
