// The rule of the legacy default stream, as a pure function of the streams' positions: its commands
// run behind all earlier work of the blocking streams, and theirs behind all its earlier work.
// Guarded by the ring lock.
//
// And the rule of calls that return early: a synchronous call may return when its data is staged or
// its command is given to the ring. To the program it is over, so whatever the program gives to any
// stream afterwards runs behind it. Every stream waits for the latest such command once; since the
// stream of that command did so too before it, this covers all earlier ones. That holds only if
// such commands become the latest in the order in which they were written: nothing may come between
// a command and join_early().
//
// Invariant: a blocking stream is on the `unjoined` list exactly while it may have work that the
// legacy stream was not told to wait for. A slot stays on it when its stream is destroyed.

#ifndef FRMPS_CLIENT_SUBMIT_JOIN_H
#define FRMPS_CLIENT_SUBMIT_JOIN_H

#include <stdbool.h>
#include <stdint.h>

#include "client/state/stream_slot.h"

struct join {
	struct client_stream *legacy;
	struct client_stream *unjoined;
	/* The latest command of a synchronous call that returned before it was done; count 0: there
	 * was none.
	 */
	struct client_stream *early;
	uint64_t early_seq, early_count;
};

/** Whether a command of the stream is known done. */
typedef bool join_done_fn(const struct client_stream *stream, uint64_t seq);

/**
 * What the stream's next command must be made to wait for, if anything. Joins with work that is
 * done are dropped. Return: false when there is nothing (more); else the command is (*ret_other,
 * *ret_seq), and join_made() follows once the wait has its place on the ring.
 */
bool join_next(struct join *join, struct client_stream *stream, join_done_fn *done,
	struct client_stream **ret_other, uint64_t *ret_seq);

/** The wait that join_next() named was written. */
void join_made(
	struct join *join, struct client_stream *stream, const struct client_stream *other, uint64_t seq);

/** A synchronous call returns before its last command, `seq` of the stream, is done. It was just
 * written. */
void join_early(struct join *join, struct client_stream *stream, uint64_t seq);

/** A command of the stream was written. */
static inline void join_note(struct join *join, struct client_stream *stream)
{
	if (stream->blocking && !stream->unjoined) {
		stream->unjoined = true;
		stream->next_unjoined = join->unjoined;
		join->unjoined = stream;
	}
}

#endif
