// See timing.h.

#include "server/executor/timing.h"

#include "server/clock.h"
#include "server/executor/event.h"
#include "server/executor/tenant.h"

/* The device writes an event right behind the event's mark. */
#define FINISH_NS CLOCK_MS
/* Streams that are looked at between two turns. */
#define FIRST_STREAMS 4u

void timing_init(struct tenant *tenant)
{
	TAILQ_INIT(&tenant->timed);
}

void timing_forget(struct tenant *tenant, struct event *event)
{
	struct stream *stream = event->timed_on;

	if (!stream)
		return;
	event->timed_on = NULL;
	TAILQ_REMOVE(&stream->timed, event, timed);
	if (TAILQ_EMPTY(&stream->timed))
		TAILQ_REMOVE(&tenant->timed, stream, timed_link);
}

void timing_expect(struct tenant *tenant, struct event *event)
{
	struct stream *stream = &tenant->streams[event->slot];

	timing_forget(tenant, event);
	if (TAILQ_EMPTY(&stream->timed))
		TAILQ_INSERT_TAIL(&tenant->timed, stream, timed_link);
	TAILQ_INSERT_TAIL(&stream->timed, event, timed);
	event->timed_on = stream;
	tenant->timed_at = tenant->now;
}

/* A reader in the middle of this sees another place. @time: NULL: unknown */
static void publish(
	struct tenant *tenant, const struct event *event, uint64_t place, const struct backend_time *time)
{
	struct shm_time *at = &tenant->view.times[event - tenant->events.at];

	word_set(&at->record, 0);
	word_release(&at->epoch, time ? word_relaxed(&tenant->generation) : 0);
	word_release(&at->local, time ? (uint64_t)time->local : 0);
	word_release(&at->device, time ? (uint64_t)time->device : 0);
	/* Pairs with the acquires in read_time() of client/state/timing.c. */
	word_release(&at->record, place);
}

void timing_refuse(struct tenant *tenant, const struct event *event, uint64_t place)
{
	publish(tenant, event, place, NULL);
}

/* Return: true if the next event may be looked at. */
static bool look_at(struct tenant *tenant, struct event *event)
{
	struct backend_time time;
	CUresult code = tenant_ops(tenant)->event_time(event->backend, &time);

	if (code == CUDA_ERROR_NOT_READY || backend_is_fatal(executor_code(tenant->executor, code)))
		return false;
	publish(tenant, event, shm_place(event->slot, event->seq), code ? NULL : &time);
	timing_forget(tenant, event);
	return true;
}

/* Return: true if an event's mark is there, and the event is not. */
static bool look_at_all(struct tenant *tenant)
{
	struct stream *stream, *next;
	bool late = false;

	for (stream = TAILQ_FIRST(&tenant->timed); stream; stream = next) {
		struct event *event;

		next = TAILQ_NEXT(stream, timed_link);
		while ((event = TAILQ_FIRST(&stream->timed)) && stream_done(tenant, stream) >= event->seq)
			if (!look_at(tenant, event)) {
				late = true;
				break;
			}
	}
	return late;
}

/* True if this executor still publishes the times, and the driver can be asked. */
static bool may_look(const struct tenant *tenant)
{
	uint32_t lost = word_relaxed(&tenant->executor->lost);

	return (!lost || lost == EXECUTOR_HALTED) && word_relaxed(&tenant->generation) &&
	       word_acquire(&tenant->view.server->generation) == word_relaxed(&tenant->generation);
}

bool timing_is_settled(struct tenant *tenant, struct stream *stream, uint64_t seq)
{
	struct event *event;

	while ((event = TAILQ_FIRST(&stream->timed)) && event->seq <= seq)
		if (!may_look(tenant) || !look_at(tenant, event))
			return false;
	return true;
}

void timing_turn(struct tenant *tenant)
{
	if (!TAILQ_EMPTY(&tenant->timed) && may_look(tenant))
		look_at_all(tenant);
}

bool timing_is_due(struct tenant *tenant)
{
	struct stream *stream = TAILQ_FIRST(&tenant->timed);

	for (unsigned i = 0; stream && i < FIRST_STREAMS; i++, stream = TAILQ_NEXT(stream, timed_link))
		if (stream_done(tenant, stream) >= TAILQ_FIRST(&stream->timed)->seq)
			return may_look(tenant);
	return false;
}

void timing_finish(struct tenant *tenant)
{
	uint64_t begin = clock_now();

	if (TAILQ_EMPTY(&tenant->timed))
		return;
	while (may_look(tenant) && look_at_all(tenant) && clock_now() - begin < FINISH_NS)
		word_pause();
}

uint64_t timing_next_look(const struct tenant *tenant, uint64_t now)
{
	return TAILQ_EMPTY(&tenant->timed) ? UINT64_MAX : now + clock_interval(tenant->timed_at, now);
}
