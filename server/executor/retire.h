// Marks, and the wake-up of sleepers when commands are done. Serving thread. The rules are in
// retire.c.

#ifndef FRMPS_SERVER_EXECUTOR_RETIRE_H
#define FRMPS_SERVER_EXECUTOR_RETIRE_H

#include "server/executor/tenant.h"

/* Unmarked commands of a stream at most. */
#define RETIRE_UNMARKED 128u
/* Unmarked commands get a mark when nothing was taken from the ring or issued for this long, */
#define RETIRE_IDLE_NS (20 * CLOCK_US)
/* and at the latest after this. */
#define RETIRE_AGE_NS (200 * CLOCK_US)

/**
 * Counts a command as issued, and marks the command if the rules require.
 * @record: in the journal, stays there until marked and done
 */
void retire_issued(struct tenant *tenant, struct stream *stream, struct frmps_head *record);

/**
 * Counts a command that needs no device as done, at once if nothing of the stream is on the device,
 * otherwise with the next mark.
 */
void retire_settled(struct tenant *tenant, struct stream *stream, struct frmps_head *record);

/** Puts a mark behind the latest issued command, unless that has a mark. Return: the backend's
 * code, passed on. */
CUresult retire_mark(struct tenant *tenant, struct stream *stream);
/**
 * For clients whose kernels may be repeated: keeps commands in flight in an order that can be
 * repeated, by a mark in front of a command that begins the next round. Call before the command is
 * begun.
 */
static inline void retire_phase(struct tenant *tenant, struct stream *stream, enum stream_phase phase)
{
	if (tenant->replays && phase < stream->phase && stream->issued != stream->marked)
		retire_mark(tenant, stream);
	stream->phase = phase;
}

/** retire_mark() for all streams. */
void retire_mark_all(struct tenant *tenant);

/** The same when nothing else may be issued any more: the last thing before a halt (halt.c). */
void retire_mark_last(struct tenant *tenant);

/** The client asked for a mark behind the latest command of the stream. */
void retire_want_mark(struct tenant *tenant, struct stream *stream, uint64_t seq);

/** A sleeper waits for command seq. */
void retire_want_wake(struct tenant *tenant, struct stream *stream, uint64_t seq);

/** Places marks that are due and wakes sleepers. */
void retire_turn(struct tenant *tenant);

/** When to look at sleepers again without a ring of the doorbell: ns, UINT64_MAX = never. */
uint64_t retire_next_look(const struct tenant *tenant, uint64_t now);

#endif
