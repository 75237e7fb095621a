// Marks, done words and sleepers. Serving thread of the session.
//
// A mark is a write of the device, in stream order, of the stream's latest issued seq into the
// timeline. Marks cost about as much as a quarter of a launch, so they are placed only
//   - where the client asks: FRMPS_CMD_MARK on a command, or the MARK directive;
//   - before every driver event that another stream may wait for, unless its stream has nothing on
//     the device, and before and behind every WRITE_VALUE;
//   - behind RETIRE_UNMARKED unmarked commands, fewer where shares are counted (share.c);
//   - for clients that vouch for their kernels: between kernels and a later upload or fill, and
//     between a fetch and a later kernel, because such a pair could not be repeated (repeat.c);
//   - when nothing was taken or issued for RETIRE_IDLE_NS, or the oldest unmarked command is that
//     of RETIRE_AGE_NS ago, and no other mark of the stream is under way: the device is behind, no
//     client asks, and each mark delays the next kernel;
//   - behind each command while a module is to be loaded, and of streams that are kept short
//     (gate.c);
//   - when a stream is to be held until its commands are done, and when the main thread asks
//     (drain.c).
//
// Two invariants that takeover.c rests on:
//   - The set of known done commands is downward closed without looking at the order of commands:
//     another stream can only pass a wait on a driver event behind the mark that was put before the
//     event. So a reader who sees that stream's completion finds the mark of the awaited command in
//     the timeline too.
//   - The journaled copy of a command has FRMPS_CMD_MARK set if a mark was put behind it. Commands
//     behind the first such command that is not done cannot have begun.
//
// While nothing of a stream is on the device (issued = marked = done: the last mark has arrived and
// no other is under way) the timeline word has no other writer, and this thread counts commands
// that need no device itself.

#include "server/executor/retire.h"

#include "server/clock.h"
#include "server/executor/sentry.h"
#include "server/log.h"
#include "shm/doorbell.h"

/* No device takes less time for a command, on average, ns; and the longest wait that relies on
 * this. */
#define COMMAND_NS UINT64_C(250)
#define TRUST_NS   (100 * CLOCK_US)

static void unlist(struct tenant *tenant, struct stream *stream)
{
	if (stream->unmarked_listed)
		TAILQ_REMOVE(&tenant->unmarked, stream, unmarked);
	stream->unmarked_listed = false;
}

static bool wants_mark(
	const struct tenant *tenant, const struct stream *stream, const struct frmps_head *record)
{
	return record->flags & FRMPS_CMD_MARK || gate_is_shut(&tenant->executor->gate) ||
	       stream->issued - stream->marked >= tenant->share.between ||
	       (stream->mark_due > stream->marked && stream->mark_due <= stream->issued);
}

void retire_issued(struct tenant *tenant, struct stream *stream, struct frmps_head *record)
{
	stream->issued = record->seq;
	stream->latest = record;
	sentry_note(tenant, stream);
	if (!stream->unmarked_listed) {
		stream->unmarked_listed = true;
		stream->unmarked_at = tenant->now;
		TAILQ_INSERT_TAIL(&tenant->unmarked, stream, unmarked);
	}
	if (wants_mark(tenant, stream, record))
		retire_mark(tenant, stream);
}

void retire_settled(struct tenant *tenant, struct stream *stream, struct frmps_head *record)
{
	if (stream->marked != stream->issued || stream_done(tenant, stream) != stream->issued) {
		retire_issued(tenant, stream, record);
		return;
	}
	stream->issued = stream->marked = stream->done = record->seq;
	word_release(&stream->journal.state->marked, record->seq);
	/* Pairs with the client's acquire when it waits. */
	word_release(&shm_timeline_at(tenant->timeline, stream->slot)->done, record->seq);
}

static CUresult put_mark(struct tenant *tenant, struct stream *stream)
{
	CUresult code;

	log_bug_on(!stream->backend);
	/* Before the call: if this process dies in the call, the device may have written the mark
	 * all the same, and the program may have seen the mark. */
	word_release(&stream->journal.state->marked, stream->issued);
	code = tenant_ops(tenant)->mark(
		stream->backend, &shm_timeline_at(tenant->timeline, stream->slot)->done, stream->issued);
	if (code) {
		/* Not marked, and the journal must not say so; tried again soon. */
		word_release(&stream->journal.state->marked, stream->marked);
		stream->latest->flags &= (uint16_t)~FRMPS_CMD_MARK;
		stream->unmarked_at = tenant->now;
		return executor_code(tenant->executor, code);
	}
	stream->latest->flags |= FRMPS_CMD_MARK;
	stream->marked = stream->issued;
	sentry_heard(tenant);
	unlist(tenant, stream);
	return CUDA_SUCCESS;
}

CUresult retire_mark(struct tenant *tenant, struct stream *stream)
{
	if (stream->marked == stream->issued)
		return CUDA_SUCCESS;
	if (executor_is_lost(tenant->executor))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	return put_mark(tenant, stream);
}

void retire_mark_last(struct tenant *tenant)
{
	struct stream *stream, *next;

	for (stream = TAILQ_FIRST(&tenant->unmarked); stream; stream = next) {
		next = TAILQ_NEXT(stream, unmarked);
		if (executor_is_halted(tenant->executor) && stream->marked != stream->issued)
			put_mark(tenant, stream);
	}
}

/* Marks the streams that became unmarked `age` ago or earlier. The list is in this order. @one: not
 * where another mark is under way */
static void mark_older(struct tenant *tenant, uint64_t age, bool one)
{
	struct stream *stream, *next;

	for (stream = TAILQ_FIRST(&tenant->unmarked); stream; stream = next) {
		next = TAILQ_NEXT(stream, unmarked);
		if (tenant->now - stream->unmarked_at < age)
			return;
		if (!one || stream_done(tenant, stream) == stream->marked)
			retire_mark(tenant, stream);
	}
}

void retire_mark_all(struct tenant *tenant)
{
	mark_older(tenant, 0, false);
}

void retire_want_mark(struct tenant *tenant, struct stream *stream, uint64_t seq)
{
	guard_watch_note_wait(tenant);
	if (stream->marked >= seq)
		return;
	if (stream->mark_due < seq)
		stream->mark_due = seq;
	if (stream->issued >= seq)
		retire_mark(tenant, stream);
}

void retire_want_wake(struct tenant *tenant, struct stream *stream, uint64_t seq)
{
	if (tenant->wake_count == TENANT_WAKES) {
		tenant->wakes_overflow = true;
		if (stream->wake_due < seq)
			stream->wake_due = seq;
		return;
	}
	tenant->wakes[tenant->wake_count++] =
		(struct tenant_wake){.slot = stream->slot, .seq = seq, .since = tenant->now};
}

/* True if a sleeper that is not on the list may still sleep. */
static bool is_overflowing(struct tenant *tenant)
{
	for (uint32_t slot = 0; tenant->wakes_overflow && slot < tenant->known; slot++) {
		struct stream *stream = &tenant->streams[slot];

		if (stream->wake_due && stream_done(tenant, stream) < stream->wake_due)
			return true;
		stream->wake_due = 0;
	}
	return false;
}

/* Wakes all sleepers if the command of one is done: the others look again. */
static void look_at_wakes(struct tenant *tenant)
{
	bool wake = tenant->wakes_overflow;
	uint32_t left = 0;

	for (uint32_t i = 0; i < tenant->wake_count; i++) {
		struct tenant_wake *at = &tenant->wakes[i];

		if (stream_done(tenant, &tenant->streams[at->slot]) >= at->seq)
			wake = true;
		else
			tenant->wakes[left++] = *at;
	}
	tenant->wake_count = left;
	tenant->wakes_overflow = is_overflowing(tenant);
	if (wake)
		wake_all(&tenant->view.server->wake);
}

void retire_turn(struct tenant *tenant)
{
	if (!TAILQ_EMPTY(&tenant->unmarked))
		mark_older(tenant, tenant->now - tenant->busy_at >= RETIRE_IDLE_NS ? 0 : RETIRE_AGE_NS, true);
	if (tenant->wake_count || tenant->wakes_overflow)
		look_at_wakes(tenant);
}

/* The interval for a sleeper: the awaited command is behind others, which take their time. */
static uint64_t interval(const struct tenant *tenant, const struct tenant_wake *wake, uint64_t now)
{
	uint64_t done = tenant->streams[wake->slot].done, late = clock_interval(wake->since, now);
	uint64_t ahead = wake->seq > done ? (wake->seq - done) * COMMAND_NS : 0;

	ahead = ahead < TRUST_NS ? ahead : TRUST_NS;
	return ahead > late ? ahead : late;
}

uint64_t retire_next_look(const struct tenant *tenant, uint64_t now)
{
	/* Marks that are still missing when a thread is about to sleep have failed. Sleepers beyond
	 * the list's room are not served to the microsecond. */
	uint64_t next =
		TAILQ_EMPTY(&tenant->unmarked) && !tenant->wakes_overflow ? UINT64_MAX : now + CLOCK_MS;

	for (uint32_t i = 0; i < tenant->wake_count; i++) {
		uint64_t at = now + interval(tenant, &tenant->wakes[i], now);

		if (at < next)
			next = at;
	}
	return next;
}
