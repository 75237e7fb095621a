// Streams of a session. Serving thread. See stream.h for the order of the sequence numbers.
//
// All streams of the backend are non-blocking: the client sends the waits of its default streams as
// DEPEND. So only the priority and the part of the client's table matter here.
//
// A stream of the backend keeps its multiprocessors and its priority for life. So where the session
// gets others, or the program changes the priority, the next command replaces the stream by a new
// one, which waits for the work of the old. Commands on the device then end where they are.

#include "server/executor/stream.h"

#include "server/executor/tenant.h"

void stream_init(struct stream *stream, uint32_t slot, struct shm_stream_state *state)
{
	*stream = (struct stream){.slot = slot};
	TAILQ_INIT(&stream->timed);
	journal_list_init(&stream->journal, state);
}

/* Requests outside the device's range mean its nearest end, as in the driver. */
static int32_t clamp_priority(const struct backend_device *device, int32_t priority)
{
	if (priority < device->priority_greatest)
		return device->priority_greatest;
	return priority > device->priority_least ? device->priority_least : priority;
}

void stream_give_back(struct tenant *tenant, struct backend_stream *stream)
{
	if (stream)
		executor_code(tenant->executor, tenant_ops(tenant)->stream_destroy(stream));
}

static struct shm_timeline *words_of(const struct tenant *tenant, uint32_t piece)
{
	return &tenant->view.timelines[piece * SHM_TIMELINES];
}

CUresult stream_reach_words(struct tenant *tenant, uint32_t slot)
{
	CUresult code = CUDA_SUCCESS;

	while (!code && tenant->pieces <= slot / SHM_PIECE) {
		code = executor_code(
			tenant->executor, tenant_ops(tenant)->host_register(
						  words_of(tenant, tenant->pieces), STREAM_WORDS_BYTES));
		tenant->pieces += !code;
	}
	return code;
}

void stream_leave_words(struct tenant *tenant)
{
	while (tenant->pieces)
		executor_code(tenant->executor,
			tenant_ops(tenant)->host_unregister(words_of(tenant, --tenant->pieces)));
}

CUresult stream_make(
	struct tenant *tenant, const struct stream *stream, uint64_t sms, struct backend_stream **ret_stream)
{
	struct executor *executor = tenant->executor;
	CUresult code = stream_reach_words(tenant, stream->slot);

	if (code)
		return code;
	if (word_relaxed(&tenant->slots) <= stream->slot)
		word_release(&tenant->slots, stream->slot + 1);
	return executor->ops->stream_create(
		clamp_priority(&executor->device, stream->priority), sms, ret_stream);
}

void stream_replace(struct tenant *tenant, struct stream *stream, struct backend_stream *next)
{
	stream_give_back(tenant, stream->backend);
	stream->backend = next;
	stream->sms = word_relaxed(&tenant->sms);
	stream->made_priority = stream->priority;
}

void stream_close(struct tenant *tenant, struct stream *stream)
{
	struct executor *executor = tenant->executor;

	if (executor_is_lost(executor))
		return;
	event_drop(tenant, stream->join);
	stream_give_back(tenant, stream->backend);
	stream->join = NULL;
	stream->backend = NULL;
	stream->join_seq = 0;
}

uint64_t stream_done(struct tenant *tenant, struct stream *stream)
{
	/* Pairs with the device's write. A word beyond `marked` is not a mark: a
	 * kernel wrote beside its memory. */
	uint64_t done = word_acquire(&shm_timeline_at(tenant->timeline, stream->slot)->done);

	if (done > stream->marked)
		done = stream->marked;
	if (done > stream->done)
		stream->done = done;
	return stream->done;
}

void stream_hold(struct tenant *tenant, struct stream *stream, enum stream_hold why)
{
	if (stream->hold == STREAM_RUNS)
		TAILQ_INSERT_TAIL(&tenant->held, stream, held);
	if (stream->hold != why) {
		stream->held_at = tenant->now;
		stream->poll_at = tenant->now;
	}
	stream->hold = why;
}

void stream_release(struct tenant *tenant, struct stream *stream)
{
	if (stream->hold == STREAM_RUNS)
		return;
	TAILQ_REMOVE(&tenant->held, stream, held);
	stream->hold = STREAM_RUNS;
}
