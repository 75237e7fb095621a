// See timing.h.

#include "server/executor/timing.h"

#include "server/executor/clock.h"
#include "server/executor/event.h"
#include "server/executor/session.h"

/* The device writes an event right behind its mark. */
#define FINISH_NS CLOCK_MS
/* Streams that are looked at between two turns. */
#define FIRST_STREAMS 4u

void timing_init(struct session *session)
{
	TAILQ_INIT(&session->timed);
}

void timing_forget(struct session *session, struct event *event)
{
	struct stream *stream = event->timed_on;

	if (!stream)
		return;
	event->timed_on = NULL;
	TAILQ_REMOVE(&stream->timed, event, timed);
	if (TAILQ_EMPTY(&stream->timed))
		TAILQ_REMOVE(&session->timed, stream, timed_link);
}

void timing_expect(struct session *session, struct event *event)
{
	struct stream *stream = &session->streams[event->slot];

	timing_forget(session, event);
	if (TAILQ_EMPTY(&stream->timed))
		TAILQ_INSERT_TAIL(&session->timed, stream, timed_link);
	TAILQ_INSERT_TAIL(&stream->timed, event, timed);
	event->timed_on = stream;
	session->timed_at = session->now;
}

/* A reader who meets this in the middle sees another place. @time: NULL: there is none */
static void publish(
	struct session *session, const struct event *event, uint64_t place, const struct backend_time *time)
{
	struct shm_time *at = &session->view.times[event - session->events.at];

	word_set(&at->record, 0);
	word_release(&at->epoch, time ? word_relaxed(&session->generation) : 0);
	word_release(&at->local, time ? (uint64_t)time->local : 0);
	word_release(&at->device, time ? (uint64_t)time->device : 0);
	/* Pairs with the acquires in read_time() of client/state/timing.c. */
	word_release(&at->record, place);
}

void timing_refuse(struct session *session, const struct event *event, uint64_t place)
{
	publish(session, event, place, NULL);
}

/* Return: whether the next one may be looked at. */
static bool look_at(struct session *session, struct event *event)
{
	struct backend_time time;
	CUresult code = session_ops(session)->event_time(event->backend, &time);

	if (code == CUDA_ERROR_NOT_READY || backend_is_fatal(executor_code(session->executor, code)))
		return false;
	publish(session, event, shm_place(event->slot, event->seq), code ? NULL : &time);
	timing_forget(session, event);
	return true;
}

/* Return: whether the mark of some event is there, and the event is not. */
static bool look_at_all(struct session *session)
{
	struct stream *stream, *next;
	bool late = false;

	for (stream = TAILQ_FIRST(&session->timed); stream; stream = next) {
		struct event *event;

		next = TAILQ_NEXT(stream, timed_link);
		while ((event = TAILQ_FIRST(&stream->timed)) && stream_done(session, stream) >= event->seq)
			if (!look_at(session, event)) {
				late = true;
				break;
			}
	}
	return late;
}

/* Whether the times are still this executor's to publish, and the driver can be asked. */
static bool may_look(const struct session *session)
{
	uint32_t lost = word_relaxed(&session->executor->lost);

	return (!lost || lost == EXECUTOR_HALTED) && word_relaxed(&session->generation) &&
	       word_acquire(&session->view.server->generation) == word_relaxed(&session->generation);
}

void timing_turn(struct session *session)
{
	if (!TAILQ_EMPTY(&session->timed) && may_look(session))
		look_at_all(session);
}

bool timing_is_due(struct session *session)
{
	struct stream *stream = TAILQ_FIRST(&session->timed);

	for (unsigned i = 0; stream && i < FIRST_STREAMS; i++, stream = TAILQ_NEXT(stream, timed_link))
		if (stream_done(session, stream) >= TAILQ_FIRST(&stream->timed)->seq)
			return may_look(session);
	return false;
}

void timing_finish(struct session *session)
{
	uint64_t begin = clock_now();

	if (TAILQ_EMPTY(&session->timed))
		return;
	while (may_look(session) && look_at_all(session) && clock_now() - begin < FINISH_NS)
		word_pause();
}

uint64_t timing_next_look(const struct session *session, uint64_t now)
{
	return TAILQ_EMPTY(&session->timed) ? UINT64_MAX : now + clock_interval(session->timed_at, now);
}
