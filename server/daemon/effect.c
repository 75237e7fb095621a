// See effect.h. The daemon may die between any two steps, so their order matters. Standbys get a
// change before its record: standbys in step know all that is recorded. The next life of the daemon
// finds changes that an earlier life noted or dropped, and leaves them alone.

#include "server/daemon/effect.h"

#include "protocol/cuda_abi.h"
#include "server/log.h"
#include "server/loop/shared_fd.h"
#include "server/loop/timer.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/holdings.h"
#include "server/session/message.h"
#include "server/session/reclaim.h"
#include "server/daemon/requests.h"
#include "server/session/session.h"
#include "server/session/window.h"
#include "server/standby/warm.h"

/*
 * Before
 */

/* Executors know no handles: they map a chunk, or a file of host memory. The check has found the
 * handle. */
static CUresult resolve_handle(struct request *request)
{
	const struct wire_memory wish = request->message.memory;
	const struct holdings *holdings = &request->session->holdings;
	struct chunk *chunk = holdings_find_memory(holdings, wish.handle)->chunk;

	/* The daemon has died since, and the memory's descriptor with it. */
	if (!chunk)
		return CUDA_ERROR_INVALID_HANDLE;
	request->message.type = chunk_is_host(chunk) ? WIRE_MAP_HOST : WIRE_MAP_MEMORY;
	request->message.range = (struct wire_range){wish.address, wish.bytes,
		!chunk_is_host(chunk) && holdings_find_mapping(holdings, chunk) ? 1 : 0};
	if (!request->chunk)
		request->chunk = chunk_ref(chunk);
	return CUDA_SUCCESS;
}

/* The check has found that the array's memory is a part of one mapping. */
static void find_backing(struct request *request)
{
	struct wire_back_array *wish = &request->message.back_array;
	const struct holding *mapping = holdings_find_address(&request->session->holdings, wish->address);

	wish->offset = wish->address - mapping->range.address;
	wish->span = mapping->range.bytes;
	if (!request->chunk)
		request->chunk = chunk_ref(mapping->chunk);
}

static CUresult take_window(struct request *request)
{
	struct wire_window *wish = &request->message.window;

	/* A window that was taken in an earlier life of the daemon stays taken. */
	if (request->window == WINDOW_NONE)
		request->window = window_take_further(&request->session->domain->windows, wish);
	if (request->window == WINDOW_NONE)
		return CUDA_ERROR_OUT_OF_MEMORY;
	wish->address = request->window;
	wish->free_windows = (struct wire_u64s){0};
	return CUDA_SUCCESS;
}

CUresult effect_prepare(struct request *request)
{
	if (request->message.type == WIRE_MAP_HANDLE)
		return resolve_handle(request);
	if (request->message.type == WIRE_BACK_ARRAY)
		find_backing(request);
	return request->message.type == WIRE_RESERVE_WINDOW ? take_window(request) : CUDA_SUCCESS;
}

void effect_forget(struct request *request)
{
	window_give(&request->session->domain->windows, request->window);
	request->window = WINDOW_NONE;
}

/*
 * After
 */

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
	holdings_drop_range(&session->holdings, entry);
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
		holdings_drop_range(&session->holdings, entry);
		break;
	case WIRE_UNMAP_MEMORY:
	case WIRE_UNMAP_HOST:
		drop_range(session, message);
		break;
	default:
		if (!holdings_has(&session->holdings, message))
			return;
		warm_drop(session, message, NULL);
		holdings_drop(&session->holdings, message);
		break;
	}
}

static void keep(struct request *request, const struct wire_reply *reply)
{
	struct session *session = request->session;
	struct holding *entry;
	int r;

	if (holdings_has(&session->holdings, &request->message)) /* the daemon has died since */
		return;
	r = holdings_note(
		&session->holdings, &request->message, &reply->values, request->fd, request->chunk, &entry);
	log_bug_on(r < 0);
	request->window = WINDOW_NONE; /* the holding's now */
	if (!entry)
		return;
	warm_entry(session, entry);
	holdings_keep(&session->holdings, entry);
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
