// The proof that a set of commands in flight may be repeated. Pure: no session, no memory of its
// own.

#ifndef FRMPS_SERVER_EXECUTOR_REPEAT_H
#define FRMPS_SERVER_EXECUTOR_REPEAT_H

#include <stdbool.h>
#include <stdint.h>

#include "server/executor/range.h"

enum repeat_effect {
	REPEAT_NOTHING, /* records an event, waits: no memory */
	REPEAT_KNOWN,	/* overwrites exactly `writes` with a function of `reads` */
	REPEAT_KERNEL,	/* may read and write all memory that programs can name */
	REPEAT_SIGNAL,	/* others may have acted on the written word */
};

/* A command that may have run, wholly, partly or not at all. An empty range has start = end. */
struct repeat_command {
	uint64_t seq;
	uint32_t stream;
	enum repeat_effect effect;
	/* Staging memory: no kernel and no program touches the arena's part that is in use. */
	bool writes_arena, reads_arena;
	bool fetches; /* REPEAT_KNOWN: copies from the device to host memory */
	struct range reads, writes;
};

/**
 * Return: true if running all commands again, each stream in order, has the outcome of a single
 * run.
 * @commands: per stream in order; streams in any order
 * @replays: the client vouches that repeating its kernels is harmless
 * @ret_index: written when false: the command that cannot be repeated
 */
bool repeat_is_provable(
	const struct repeat_command *commands, uint32_t count, bool replays, uint32_t *ret_index);

#endif
