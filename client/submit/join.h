// The rule of the legacy default stream, as a pure function of the streams' positions: its commands
// run behind all earlier work of the blocking streams, and their commands behind all its earlier
// work. Guarded by the ring lock.
//
// And the rule of calls that return early: a synchronous call may return when its data is staged or
// its command is on the ring. For the program the call's work is then done, so later commands of
// the program, on any stream, must run behind it. Every stream waits once for the latest such
// command; the stream of that command has itself waited for the previous one, so this covers all
// earlier commands. That holds only if such commands become the latest in the order in which they
// were written: nothing may come between a command and join_early().
//
// Invariant: a blocking stream is on the `unjoined` list exactly while it may have work that the
// legacy stream does not wait for yet. A slot stays on the list when its stream is destroyed.

#ifndef FRMPS_CLIENT_SUBMIT_JOIN_H
#define FRMPS_CLIENT_SUBMIT_JOIN_H

#include <stdbool.h>
#include <stdint.h>

#include "client/state/stream_slot.h"

struct join {
	struct client_stream *legacy;
	struct client_stream *unjoined;
	/* The latest command of a synchronous call that returned before the command was done; count
	 * 0: none. */
	struct client_stream *early;
	uint64_t early_seq, early_count;
};

/** True if the command of the stream is known done. */
typedef bool join_done_fn(const struct client_stream *stream, uint64_t seq);

/**
 * The wait that the stream's next command needs, if any. Waits for work that is done are dropped.
 * Return: false if no (further) wait is needed; else the command to wait for is (*ret_other,
 * *ret_seq), and join_made() follows once the wait is on the ring.
 */
bool join_next(struct join *join, struct client_stream *stream, join_done_fn *done,
	struct client_stream **ret_other, uint64_t *ret_seq);

/** The wait of join_next() was written. */
void join_made(
	struct join *join, struct client_stream *stream, const struct client_stream *other, uint64_t seq);

/**
 * A synchronous call returns before its last command, `seq` of the stream, is done. The command was
 * just written.
 */
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
