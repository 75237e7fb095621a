// Out: from HERE by LEAVES to AWAY, or back to HERE. See swap.c for states and rules.

#include <stdio.h>

#include "protocol/cuda_abi.h"
#include "server/loop/timer.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/due.h"
#include "server/session/holdings.h"
#include "server/session/session.h"
#include "server/standby/piece.h"
#include "server/standby/swap.h"
#include "server/standby/swap_inside.h"
#include "server/standby/warm.h"

/*
 * May the memory go?
 */

/* In the ring, or taken from there. */
bool swap_has_work(const struct session *session)
{
	bool has = word_acquire(&session->view.client->tail) != word_acquire(&session->view.server->head);
	uint32_t used = shm_view_used(&session->view);

	for (uint32_t slot = 0; !has && slot < used; slot++) {
		const struct shm_stream_state *state = &session->view.states[slot];

		has = word_acquire(&state->issued) != word_acquire(&state->journaled);
	}
	return has;
}

static bool is_shared(const struct session *session, const struct chunk *chunk)
{
	const struct holding *entry;

	TAILQ_FOREACH (entry, &chunk->owners, owners_link)
		if (entry->holdings != &session->holdings)
			return true;
	return chunk->offer || chunk->is_lent || !chunk_is_own(chunk);
}

static const char *obstacle_of_memory(const struct session *session, const struct pieces *pieces)
{
	if (session->holdings.backed_count)
		return "it has CUDA arrays, whose memory cannot move";
	for (uint32_t i = 0; i < pieces->count; i++) {
		if (is_shared(session, pieces->at[i].chunk))
			return "it shares device memory with other programs or devices (exported or "
			       "imported)";
		if (!piece_mapping(&pieces->at[i]))
			return "it has device memory that it has mapped nowhere (cuMemCreate)";
	}
	return NULL;
}

const char *swap_refuses(const struct session *session, uint64_t *ret_bytes)
{
	struct pieces pieces;
	const char *text;

	pieces_init(&pieces, &session->holdings);
	text = obstacle_of_memory(session, &pieces);
	*ret_bytes = pieces.bytes;
	pieces_deinit(&pieces);
	return text;
}

/* The drain of a device waits for requests that a worker has (daemon/device_drain.c). */
static const char *obstacle(const struct session *session, enum swap_manner manner)
{
	if (session->memory != SESSION_MEMORY_HERE || session->swap)
		return "it is suspended already, or comes back";
	if (session->move)
		return "it is being moved to another executor";
	if (!session_is_live(session) || session->attach.worker || !domain_serving(session->domain) ||
		session->domain->life == DOMAIN_RETIRES || session->daemon->phase >= DAEMON_STOPS)
		return "it is not served now: it starts or ends, or its executor is being replaced; try "
		       "again";
	if (session->request && manner != SWAP_DRAINED)
		return "it waits for an answer of the service; try again";
	return NULL;
}

/*
 * The way
 */

static void unmap_standbys(struct session *session, const struct piece *piece)
{
	struct wire_message message;

	for (uint32_t i = 0; i < piece->count; i++) {
		if (piece->entries[i]->type != WIRE_MAP_MEMORY)
			continue;
		swap_unmap_message(session, piece->entries[i], &message);
		warm_drop(session, &message, piece->old);
	}
}

static void gone_away(struct swap *swap)
{
	struct session *session = swap->session;
	struct swap_bytes bytes = {0};

	swap_empty_all(swap);
	for (uint32_t i = 0; i < swap->pieces.count; i++)
		unmap_standbys(session, &swap->pieces.at[i]);
	holdings_set_away(&session->holdings, true);
	session_set_memory(session, SESSION_MEMORY_AWAY);
	swap_release_all(swap);
	swap_round(swap);
	session->daemon->counters.sessions_suspended++;
	session->left_us = timer_now_us() - swap->begun_us;
	swap_add_bytes(session, &bytes);
	swap_note_moved(session, bytes.directory ? "is suspended, and its device memory in swap_directory"
						 : "is suspended, and its device memory in host memory");
	if (swap->manner == SWAP_PAUSED || swap->manner == SWAP_PAUSED_BY_US)
		session_pause(session, true, swap->manner == SWAP_PAUSED_BY_US);
	swap->refs++;
	swap_say(swap, CUDA_SUCCESS, "");
	/* The commands that were held are a reason to come back, after the session that needs the
	 * room. */
	if (swap->session && (session->drained || (!session_is_paused(session) && swap_has_work(session))))
		swap_want(swap);
	if (swap->session)
		swap_begin_return(session);
	swap_unref(swap);
}

void swap_stay(struct swap *swap, int32_t code, const char *text)
{
	struct session *session = swap->session;
	char what[256];

	snprintf(what, sizeof(what), "is not suspended: %s", text);
	swap_note(session, what);
	swap_be_here(session);
	/* A displacement that failed after holding the session is not repeated at once. */
	if (swap->manner == SWAP_NOW)
		swap_note_return(session, timer_now_us() - swap->begun_us);
	swap->refs++;
	swap_drop(swap);
	/* `done` may suspend another session, or this one again. */
	swap_say(swap, code, text);
	swap_unref(swap);
}

static void call_off(struct swap *swap, int32_t code, const char *text)
{
	struct session *session = swap->session;

	swap_stay(swap, code, text);
	due_session(session, SESSION_DUE_GO_ON);
}

static void copied(struct swap *swap)
{
	const struct session *session = swap->session;

	if (swap->manner == SWAP_AT_REST && !session_is_paused(session) && swap_has_work(session))
		call_off(swap, CUDA_ERROR_NOT_READY, SWAP_HAS_WORK);
	else
		gone_away(swap);
}

static const struct swap_way way_out = {.into = false, .copied = copied, .failed = call_off};

const char *swap_begin(struct session *session, enum swap_manner manner, swap_done_fn *done, void *context)
{
	const char *text = obstacle(session, manner);
	struct swap *swap;

	if (text)
		return text;
	swap = swap_new(session, swap_on_retry);
	swap->way = &way_out;
	swap->manner = manner;
	text = obstacle_of_memory(session, &swap->pieces);
	if (!text && !swap->pieces.count && manner != SWAP_DRAINED)
		text = "it has no device memory";
	if (!text)
		text = swap_make_files(session, swap->pieces.bytes);
	if (text) {
		swap_drop(swap);
		return text;
	}
	swap->done = done;
	swap->context = context;
	swap->refs++;
	session->drained = manner == SWAP_DRAINED;
	session_set_memory(session, SESSION_MEMORY_LEAVES);
	if (swap->session)
		swap_copy(swap);
	swap_unref(swap);
	return NULL;
}
