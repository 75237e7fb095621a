// Streams that wait in software. Serving thread of the session.
//
//   hold      goes on when                                     how that is seen
//   RESUME    at the next look
//   CREDIT    fewer than the session's credit on the device    timeline, polled well before
//   GATE      its turn has come, or the gate is open           polled; kicked when the gate opens
//   PART      its multiprocessors, or its graph's, are ready   polled
//   DEPEND    the awaited command was issued                   another hold of this session ends
//   HOST      all before it is done, the client says `done`    timeline, polled; then the doorbell
//   VALUE     all before it is done, the word is right         polled here or by small copies
//   DESTROY   all before it is done                            timeline, polled
//
// The last three are commands that need no device: when they go on, they are done (retire_settled).
// They count as issued only then, so a promotion never finds such a command in flight: the next
// executor simply holds the stream again. A host function that has begun is not run twice, because
// the client compares its own `started` word.
//
// Copies that look at a device word use a stream of their own and the session's scratch word, one
// at a time.

#include "server/executor/hold.h"

#include "server/clock.h"
#include "server/executor/dispatch.h"
#include "server/executor/retire.h"
#include "shm/doorbell.h"

/* Commands that all released streams of a session together may issue in a turn: others wait. */
#define BACKLOG 64u
/* STREAM_ISSUE_CREDIT commands keep a device busy for four times as long at least (H200: 1 us for
 * the shortest). */
#define CREDIT_NS (100 * CLOCK_US)

static struct frmps_head *next_record(const struct tenant *tenant, const struct stream *stream)
{
	return journal_at(&tenant->journal, stream->cursor);
}

static const void *body_of(const struct frmps_head *record)
{
	return record + 1;
}

bool hold_fulfils(const struct frmps_wait_value *wait, uint64_t value)
{
	uint64_t mask = wait->bytes == 8 ? UINT64_MAX : UINT32_MAX, want = wait->value & mask;

	value &= mask;
	switch (wait->flags & 3) {
	case CU_STREAM_WAIT_VALUE_EQ:
		return value == want;
	case CU_STREAM_WAIT_VALUE_AND:
		return (value & want) != 0;
	case CU_STREAM_WAIT_VALUE_NOR:
		return (~(value | want) & mask) != 0;
	default: /* greater or equal, cyclic: the difference is not negative */
		return ((value - want) & mask) <= mask / 2;
	}
}

/* True if all commands before the held one are done; puts a mark to find out. The sign of a fault
 * may have come since this turn began. */
static bool is_drained(struct tenant *tenant, struct stream *stream)
{
	retire_mark(tenant, stream);
	return stream_done(tenant, stream) == stream->issued && tenant_is_running(tenant);
}

static bool host_returned(const struct tenant *tenant, const struct stream *stream)
{
	/* Pairs with the release of the client's service thread. */
	return word_acquire(&shm_view_host(&tenant->view, stream->slot)->done) > stream->issued;
}

static bool check_host(struct tenant *tenant, struct stream *stream)
{
	if (!stream->host_told) {
		if (!is_drained(tenant, stream))
			return false;
		stream->host_told = true;
		word_release(&stream->journal.state->host_ready, stream->issued + 1);
		wake_all(&tenant->view.server->wake);
	}
	return host_returned(tenant, stream);
}

static uint64_t read_word(uint64_t address, uint32_t bytes)
{
	if (bytes == 8)
		return word_acquire((word64 *)(uintptr_t)address);
	return word_acquire((word32 *)(uintptr_t)address);
}

static bool start_copy(struct tenant *tenant, struct stream *stream, const struct frmps_wait_value *wait)
{
	const struct backend_ops *ops = tenant_ops(tenant);
	uint64_t *word = &tenant->executor->scratch[tenant->scratch];
	struct backend_copy copy = {.dst = (uintptr_t)word,
		.src = wait->address,
		.width = wait->bytes,
		.height = 1,
		.depth = 1,
		.dst_is_host = true};
	CUresult code = CUDA_SUCCESS;

	if (!tenant->poll_stream)
		code = ops->stream_create(
			tenant->executor->device.priority_greatest, 0, &tenant->poll_stream);
	if (!code)
		code = ops->copy(tenant->poll_stream, &copy);
	if (executor_code(tenant->executor, code))
		return false;
	tenant->poller = stream;
	return true;
}

/* Return: true if the device word was read: looks at the copy under way, or begins a copy. */
static bool read_device(struct tenant *tenant, struct stream *stream, const struct frmps_wait_value *wait,
	uint64_t *ret_value)
{
	CUresult code;

	if (!tenant->poller)
		start_copy(tenant, stream, wait);
	if (tenant->poller != stream)
		return false;
	code = tenant_ops(tenant)->stream_query(tenant->poll_stream);
	if (code) {
		if (code != CUDA_ERROR_NOT_READY)
			executor_code(tenant->executor, code);
		return false;
	}
	tenant->poller = NULL;
	*ret_value = word_acquire((word64 *)(void *)&tenant->executor->scratch[tenant->scratch]);
	return true;
}

static bool check_value(struct tenant *tenant, struct stream *stream)
{
	const struct frmps_wait_value *wait = body_of(next_record(tenant, stream));
	uint64_t value;

	if (tenant->now < stream->poll_at || !is_drained(tenant, stream))
		return false;
	/* Looked up each time: the range may have been unmapped while the stream waited. */
	if (!tenant_admits(tenant, wait->address, wait->bytes, false)) {
		tenant_offend(tenant, "it waits for a word at %#llx, which is not its memory",
			(unsigned long long)wait->address);
		return false;
	}
	if (tenant_is_host(tenant, wait->address))
		value = read_word(wait->address, wait->bytes);
	else if (!read_device(tenant, stream, wait, &value))
		return false;
	if (hold_fulfils(wait, value))
		return true;
	stream->poll_at = tenant->now + clock_interval(stream->held_at, tenant->now);
	return false;
}

static bool check_destroy(struct tenant *tenant, struct stream *stream)
{
	if (!is_drained(tenant, stream))
		return false;
	stream_close(tenant, stream);
	return true;
}

static bool check_part(struct tenant *tenant, struct stream *stream)
{
	const struct frmps_head *record = next_record(tenant, stream);
	const struct frmps_graph_launch *launch = body_of(record);

	return cap_readies(tenant, stream->part) &&
	       (record->op != FRMPS_OP_GRAPH_LAUNCH || graph_may_launch(tenant, launch->graph));
}

static bool check_depend(struct tenant *tenant, struct stream *stream)
{
	const struct frmps_depend *depend = body_of(next_record(tenant, stream));

	return tenant->streams[depend->stream].issued >= depend->seq;
}

static bool may_go_on(struct tenant *tenant, struct stream *stream)
{
	switch (stream->hold) {
	case STREAM_HOLD_CREDIT:
		return stream->issued - stream_done(tenant, stream) < tenant->share.credit;
	case STREAM_HOLD_GATE:
		return gate_admits(tenant, stream);
	case STREAM_HOLD_PART:
		return check_part(tenant, stream);
	case STREAM_HOLD_DEPEND:
		return check_depend(tenant, stream);
	case STREAM_HOLD_HOST:
		return check_host(tenant, stream);
	case STREAM_HOLD_VALUE:
		return check_value(tenant, stream);
	case STREAM_HOLD_DESTROY:
		return check_destroy(tenant, stream);
	case STREAM_RUNS:
	case STREAM_HOLD_RESUME:
		break;
	}
	return true;
}

static bool is_command_itself(enum stream_hold hold)
{
	return hold == STREAM_HOLD_HOST || hold == STREAM_HOLD_VALUE || hold == STREAM_HOLD_DESTROY;
}

/* @budget: commands that may be issued yet */
static bool turn(struct tenant *tenant, struct stream *stream, unsigned *budget)
{
	enum stream_hold why = stream->hold;

	if (!may_go_on(tenant, stream))
		return false;
	stream_release(tenant, stream);
	if (is_command_itself(why))
		dispatch_settle(tenant, stream);
	*budget -= dispatch_backlog(tenant, stream, *budget);
	return true;
}

bool hold_turn(struct tenant *tenant)
{
	/* A stream that is held again goes to the end: this walks the present list once, or as far
	 * as the budget allows. */
	struct stream *last = TAILQ_LAST(&tenant->held, stream_list), *stream = TAILQ_FIRST(&tenant->held),
		      *next;
	bool moved = false, more = stream != NULL;
	unsigned budget = BACKLOG;

	for (; more && budget && !tenant->stopped && !executor_is_lost(tenant->executor); stream = next) {
		more = stream != last;
		next = TAILQ_NEXT(stream, held);
		moved |= turn(tenant, stream, &budget);
	}
	return moved;
}

bool hold_is_ready(const struct tenant *tenant)
{
	struct stream *stream;

	TAILQ_FOREACH (stream, &tenant->held, held)
		if (stream->hold == STREAM_HOLD_RESUME ||
			(stream->hold == STREAM_HOLD_GATE && !gate_is_shut(&tenant->executor->gate)) ||
			(stream->hold == STREAM_HOLD_HOST && stream->host_told &&
				host_returned(tenant, stream)))
			return true;
	return false;
}

bool hold_is_quiet(const struct tenant *tenant)
{
	return !tenant->poller || executor_is_lost(tenant->executor) ||
	       tenant_ops(tenant)->stream_query(tenant->poll_stream) != CUDA_ERROR_NOT_READY;
}

static bool is_polled(const struct stream *stream)
{
	return stream->hold != STREAM_HOLD_DEPEND && !(stream->hold == STREAM_HOLD_HOST && stream->host_told);
}

uint64_t hold_next_look(const struct tenant *tenant, uint64_t now)
{
	uint64_t next = UINT64_MAX;
	struct stream *stream;

	TAILQ_FOREACH (stream, &tenant->held, held) {
		bool many = stream->hold == STREAM_HOLD_CREDIT && tenant->share.credit == STREAM_ISSUE_CREDIT;
		uint64_t at = now + (many ? CREDIT_NS : clock_interval(stream->held_at, now));

		if (is_polled(stream) && at < next)
			next = at;
	}
	return next;
}
