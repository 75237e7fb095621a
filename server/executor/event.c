// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Events of a session. See event.h for threads and for what a promotion does to timing.

#include "server/executor/event.h"

#include <stdlib.h>
#include <time.h>

#include "server/executor/pace.h"
#include "server/executor/session.h"

/* The device writes an event right behind its mark. */
#define ELAPSED_NS    50000
#define ELAPSED_TRIES 1000

CUresult event_drop(struct session *session, struct backend_event *event)
{
	/* Left to the end of the process where the driver might not come back: contain.h. */
	if (!event || executor_is_lost(session->executor) || contain_is_worn(session->executor))
		return CUDA_SUCCESS;
	return executor_code(session->executor, session_ops(session)->event_destroy(event));
}

void event_table_init(struct event_table *table)
{
	table->at = NULL;
	pthread_mutex_init(&table->lock, NULL);
}

void event_table_deinit(struct session *session, struct event_table *table)
{
	struct pace pace;

	pace_begin(&pace, session->executor);
	for (uint32_t i = 0; table->at && i < SHM_EVENTS; i++) {
		if (!table->at[i].backend)
			continue;
		event_drop(session, table->at[i].backend);
		pace_step(&pace);
	}
	free(table->at);
	table->at = NULL;
}

/* The table is large and mostly untouched: calloc gives pages as they are used. */
static struct event *slot_of(struct event_table *table, uint32_t event)
{
	/* Pairs with the look in ask_elapsed(). */
	if (!table->at)
		table->at = calloc(SHM_EVENTS, sizeof(struct event));
	return table->at ? &table->at[event] : NULL;
}

void event_expect(struct session *session, uint32_t event, bool timing, uint32_t slot, uint64_t seq)
{
	struct event *at = timing		? slot_of(&session->events, event)
			   : session->events.at ? &session->events.at[event]
						: NULL;

	if (!at || (!timing && !at->latest_seq))
		return;
	at->latest_seq = seq;
	at->latest_slot = slot;
}

static bool is_superseded(const struct event *at, uint32_t slot, uint64_t seq)
{
	return at->latest_seq && (at->latest_seq != seq || at->latest_slot != slot);
}

static CUresult replace_backend(struct session *session, struct event *at, bool timing)
{
	const struct backend_ops *ops = session_ops(session);
	CUresult code;

	if (at->backend && at->timing == timing)
		return CUDA_SUCCESS;
	code = event_drop(session, at->backend);
	at->backend = NULL;
	at->timing = timing;
	return code ? code : ops->event_create(timing, &at->backend);
}

static CUresult record(
	struct session *session, struct stream *stream, struct event *at, bool timing, uint64_t seq)
{
	CUresult code = replace_backend(session, at, timing);

	at->seq = 0;
	if (!code)
		code = session_ops(session)->event_record(at->backend, stream->backend);
	if (code)
		return code;
	at->slot = stream->slot;
	at->seq = seq;
	return CUDA_SUCCESS;
}

CUresult event_record(
	struct session *session, struct stream *stream, uint32_t event, bool timing, uint64_t seq)
{
	struct event *at = slot_of(&session->events, event);
	CUresult code;

	if (!at)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if ((timing || at->timing) && is_superseded(at, stream->slot, seq))
		return CUDA_SUCCESS;
	if (timing || !at->timing)
		return record(session, stream, at, timing, seq);
	/* Somebody may be asking for the time of what it was. */
	pthread_mutex_lock(&session->events.lock);
	code = record(session, stream, at, timing, seq);
	pthread_mutex_unlock(&session->events.lock);
	return code;
}

struct backend_event *event_find(struct session *session, uint32_t event, uint32_t slot, uint64_t seq)
{
	struct event *at;

	if (event >= SHM_EVENTS || !session->events.at)
		return NULL;
	at = &session->events.at[event];
	return at->seq == seq && at->slot == slot ? at->backend : NULL;
}

CUresult event_destroy(struct session *session, uint32_t event)
{
	struct event *at = session->events.at ? &session->events.at[event] : NULL;
	CUresult code;

	if (!at || !at->backend)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&session->events.lock);
	code = event_drop(session, at->backend);
	*at = (struct event){.latest_seq = at->latest_seq, .latest_slot = at->latest_slot};
	pthread_mutex_unlock(&session->events.lock);
	return code;
}

static bool is_timed(const struct event *at, uint64_t seq, uint32_t stream)
{
	return at->timing && at->seq && (!seq || (at->seq == seq && at->slot == stream));
}

static bool is_marked(struct session *session, const struct event *at)
{
	return word_acquire(&session->timeline->stream[at->slot].done) >= at->seq;
}

/* @ret_soon: it is not ready, but its mark is there */
static CUresult ask_elapsed(
	struct session *session, const struct wire_elapsed *wish, float *ret_ms, bool *ret_soon)
{
	struct event_table *table = &session->events;
	CUresult code = CUDA_ERROR_ILLEGAL_STATE;
	const struct event *start, *end;

	*ret_soon = false;
	pthread_mutex_lock(&table->lock);
	start = table->at ? &table->at[wish->start_event] : NULL;
	end = table->at ? &table->at[wish->end_event] : NULL;
	if (start && is_timed(start, wish->start_seq, wish->start_stream) &&
		is_timed(end, wish->end_seq, wish->end_stream)) {
		code = session_ops(session)->event_elapsed(start->backend, end->backend, ret_ms);
		*ret_soon =
			code == CUDA_ERROR_NOT_READY && is_marked(session, start) && is_marked(session, end);
	}
	pthread_mutex_unlock(&table->lock);
	return code;
}

CUresult event_elapsed(struct session *session, const struct wire_elapsed *wish, float *ret_ms)
{
	const struct timespec pause = {.tv_nsec = ELAPSED_NS};
	bool soon;
	CUresult code = ask_elapsed(session, wish, ret_ms, &soon);

	for (int i = 0; soon && i < ELAPSED_TRIES; i++) {
		nanosleep(&pause, NULL);
		code = ask_elapsed(session, wish, ret_ms, &soon);
	}
	return code;
}
