// Streams of a session. Serving thread. See stream.h for the order of the sequence numbers.
//
// All streams of the backend are non-blocking: what the default streams of a client wait for, the client says
// with DEPEND. So the only thing of the client's table that matters here is the priority.

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

CUresult stream_open(struct tenant *tenant, struct stream *stream)
{
	struct executor *executor = tenant->executor;

	if (stream->backend)
		return CUDA_SUCCESS;
	if (word_relaxed(&tenant->slots) <= stream->slot)
		word_release(&tenant->slots, stream->slot + 1);
	return executor->ops->stream_create(
		clamp_priority(&executor->device, stream->priority), &stream->backend);
}

void stream_close(struct tenant *tenant, struct stream *stream)
{
	struct executor *executor = tenant->executor;

	if (executor_is_lost(executor))
		return;
	event_drop(tenant, stream->join);
	if (stream->backend && !contain_is_worn(executor))
		executor_code(executor, executor->ops->stream_destroy(stream->backend));
	stream->join = NULL;
	stream->backend = NULL;
	stream->join_seq = 0;
}

uint64_t stream_done(struct tenant *tenant, struct stream *stream)
{
	/* Pairs with the device's write. A word beyond what was marked is not ours: a stray write of a
	 * kernel. */
	uint64_t done = word_acquire(&tenant->timeline->stream[stream->slot].done);

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
