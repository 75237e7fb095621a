// See effect.h. A standby that is to get a change is not in step as of the same record: standbys in
// step know all that is recorded. The next life of the daemon finds changes that an earlier life
// noted or dropped, and leaves them alone.

#include "server/daemon/effect.h"

#include "protocol/cuda_abi.h"
#include "server/log.h"
#include "server/loop/shared_fd.h"
#include "server/loop/timer.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/resource/resource.h"
#include "server/session/holdings.h"
#include "server/session/message.h"
#include "server/session/reclaim.h"
#include "server/daemon/requests.h"
#include "server/session/session.h"
#include "server/session/window.h"
#include "server/standby/warm.h"

void effect_forget(struct request *request)
{
	window_give(&request->session->domain->windows, request->window);
	request->window = WINDOW_NONE;
}

/* The last holding of the chunk is about to go: standbys that have not unmapped the chunk yet may
 * have it for longer. */
static void doom_last(struct session *session, struct chunk *chunk)
{
	if (chunk->holders != 1)
		return;
	chunk_doom(chunk);
	/* An exported chunk may stay. */
	if (chunk->doomed)
		reclaim_note_freed(session, chunk);
}

static void drop_range(struct session *session, const struct wire_message *message)
{
	enum wire_type type = message->type == WIRE_UNMAP_MEMORY ? WIRE_MAP_MEMORY : WIRE_MAP_HOST;
	struct holding *entry =
		holdings_find_range(&session->holdings, type, message->range.address, message->range.bytes);
	struct chunk *chunk = NULL;

	if (!entry)
		return;
	if (entry->chunk) {
		chunk = chunk_ref(entry->chunk);
		doom_last(session, chunk);
	}
	warm_drop(session, message, chunk);
	holdings_remove(&session->holdings, entry);
	chunk_unref(chunk);
}

/* A resource that is missing was dropped before the daemon died: today's standbys do not have
 * it. */
static void drop(struct request *request)
{
	struct session *session = request->session;
	const struct wire_message *message = &request->message;
	struct holding *entry;

	switch (message->type) {
	case WIRE_RELEASE_MEMORY:
		entry = holdings_find_memory(&session->holdings, message->memory.handle);
		if (!entry)
			break;
		doom_last(session, entry->chunk);
		holdings_remove(&session->holdings, entry);
		break;
	case WIRE_UNMAP_MEMORY:
	case WIRE_UNMAP_HOST:
		drop_range(session, message);
		break;
	default:
		if (!resource_has(&session->holdings, message))
			return;
		warm_drop(session, message, NULL);
		resource_drop(&session->holdings, message);
		break;
	}
}

static void keep(struct request *request, const struct wire_reply *reply)
{
	struct session *session = request->session;
	struct holding *entry;
	int r;

	if (resource_has(&session->holdings, &request->message)) /* the daemon has died since */
		return;
	r = resource_note(
		&session->holdings, &request->message, &reply->values, request->fd, request->chunk, &entry);
	log_bug_on(r < 0);
	request->window = WINDOW_NONE; /* the holding's now */
	if (!entry)
		return;
	warm_entry(session, entry);
	holdings_save(&session->holdings, entry);
}

static void count_load(struct counters *counters, const struct wire_u64s *values)
{
	uint64_t reason = values->count > 4 ? values->at[4] : LOAD_REASON_NONE;

	counters->modules_loaded++;
	if (reason != LOAD_REASON_NONE && reason < LOAD_REASONS)
		counters->driver_loads[reason]++;
}

void effect_note(struct request *request, const struct wire_reply *reply)
{
	const struct message_row *row = message_row(request->message.type);

	if (request->message.type == WIRE_LOAD_MODULE)
		count_load(&request->session->daemon->counters, &reply->values);
	if (message_is_kept(request->message.type))
		keep(request, reply);
	if (row->keep != KEEP_DROP)
		return;
	drop(request);
	request->session->freed_us = timer_now_us();
}
