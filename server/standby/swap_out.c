// Out: from HERE by LEAVES to AWAY, or back to HERE. See swap.c for states and rules.

#include <stdio.h>

#include "protocol/cuda_abi.h"
#include "server/loop/timer.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/export.h"
#include "server/session/holdings.h"
#include "server/session/request.h"
#include "server/session/session.h"
#include "server/standby/piece.h"
#include "server/standby/stash.h"
#include "server/standby/swap.h"
#include "server/standby/swap_inside.h"
#include "server/standby/warm.h"

/*
 * May the memory go?
 */

/* By any session. */
static bool is_mapped(const struct piece *piece)
{
	const struct holding *entry;

	if (piece_mapping(piece))
		return true;
	TAILQ_FOREACH (entry, &piece->chunk->owners, owners_link)
		if (holdings_find_mapping(entry->holdings, piece->chunk))
			return true;
	return false;
}

static const char *obstacle_of_memory(const struct pieces *pieces)
{
	for (uint32_t i = 0; i < pieces->count; i++) {
		const struct piece *piece = &pieces->at[i];

		if (exports_is_lent(piece->chunk) || !chunk_is_own(piece->chunk))
			return "it shares device memory with other devices";
		if (!is_mapped(piece))
			return "it has device memory that is mapped nowhere (cuMemCreate)";
	}
	return NULL;
}

const char *swap_refuses(const struct session *session)
{
	const struct holdings *holdings = &session->holdings;
	struct pieces pieces;
	const char *text;

	if (holdings->backed_count)
		return "it has CUDA arrays, whose memory cannot move";
	pieces_init(&pieces, &holdings, 1);
	text = obstacle_of_memory(&pieces);
	pieces_deinit(&pieces);
	return text;
}

/* A session that ends, or that an executor has not closed yet, may still write to a chunk. */
static bool is_shared_beyond(const struct pieces *pieces)
{
	for (uint32_t i = 0; i < pieces->count; i++)
		if (pieces->at[i].chunk->holders != pieces->at[i].count)
			return true;
	return false;
}

/* The drain of a device waits for requests that a worker has (daemon/device_drain.c). */
static const char *obstacle(const struct session *session, enum swap_manner manner)
{
	if (session->move)
		return "it is being moved to another executor";
	if (session->memory != SESSION_MEMORY_HERE)
		return "it is suspended already, or comes back";
	if (!session_is_live(session) || session->attach.worker || !domain_serving(session->domain) ||
		session->domain->life == DOMAIN_RETIRES || session->daemon->phase >= DAEMON_STOPS)
		return "it is not served now: it starts or ends, or its executor is being replaced; try "
		       "again";
	if (session->request && (!swap_is_of_all(manner) || request_is_under_way(session->request)))
		return "it waits for an answer of the service; try again";
	return session->holdings.backed_count ? "it has CUDA arrays, whose memory cannot move" : NULL;
}

/* Finds the members. Return: NULL, or the obstacle */
static const char *gather(struct swap *swap)
{
	const struct session *session;
	const char *text = swap_gather(swap);

	TAILQ_FOREACH (session, &swap->members, swap_link) {
		if (!text)
			text = obstacle(session, swap->manner);
		if (text)
			return swap_obstacle_of(session, text);
	}
	swap_list(swap);
	text = obstacle_of_memory(&swap->pieces);
	if (text)
		return text;
	if (is_shared_beyond(&swap->pieces))
		return "a program that shares its device memory ends; try again";
	if (!swap->pieces.count && !swap_is_of_all(swap->manner))
		return "it has no device memory";
	return NULL;
}

/*
 * The way
 */

static void unmap_standbys(const struct piece *piece)
{
	struct wire_message message;

	for (uint32_t i = 0; i < piece->count; i++) {
		if (piece->entries[i]->type != WIRE_MAP_MEMORY)
			continue;
		swap_unmap_message(piece->entries[i], &message);
		warm_drop(session_of(piece->entries[i]->holdings), &message, piece->old);
	}
}

static void note_away(struct swap *swap)
{
	struct session *session;
	struct swap_bytes bytes = {0};

	TAILQ_FOREACH (session, &swap->members, swap_link) {
		swap->daemon->counters.sessions_suspended++;
		session->left_us = timer_now_us() - swap->begun_us;
		swap_add_bytes(session, &bytes);
	}
	swap_note_moved(swap, bytes.directory ? "is suspended, and its device memory in swap_directory"
					      : "is suspended, and its device memory in host memory");
}

static void gone_away(struct swap *swap)
{
	swap_empty_all(swap);
	for (uint32_t i = 0; i < swap->pieces.count; i++)
		unmap_standbys(&swap->pieces.at[i]);
	swap_set_away(swap, true);
	swap_set_memory(swap, SESSION_MEMORY_AWAY);
	swap_release_all(swap);
	swap_round(swap);
	note_away(swap);
	if (swap->manner == SWAP_PAUSED || swap->manner == SWAP_PAUSED_BY_US)
		session_pause(swap_first(swap), true, swap->manner == SWAP_PAUSED_BY_US);
	swap->refs++;
	swap_say(swap, CUDA_SUCCESS, "");
	/* Held commands and requests are a reason to come back, after the session that needs the
	 * room. */
	if (swap_is_needed(swap))
		swap_want(swap);
	swap_begin_return(swap);
	swap_unref(swap);
}

void swap_stay(struct swap *swap, int32_t code, const char *text)
{
	struct session *session;
	char what[256];

	snprintf(what, sizeof(what), "is not suspended: %s", text);
	if (swap->manner != SWAP_COPIED)
		swap_note(swap_first(swap), what);
	/* A displacement that failed after holding the session is not repeated at once. */
	TAILQ_FOREACH (session, &swap->members, swap_link)
		if (swap->manner == SWAP_NOW)
			swap_note_return(session, timer_now_us() - swap->begun_us);
	swap_be_here(swap);
	swap->refs++;
	swap_drop(swap);
	/* `done` may suspend another session, or this one again. */
	swap_say(swap, code, text);
	swap_unref(swap);
}

/* A stash that was given back meanwhile has taken nothing: all goes to the files. */
static void all_copied(struct swap *swap)
{
	struct stash *stash = swap->daemon->stash;

	if (swap->is_stashed && stash_is_lost(stash)) {
		swap_copy(swap);
		return;
	}
	if (swap->is_stashed)
		stash_store(stash, &swap->pieces, swap_first(swap)->swap_files);
	swap_say(swap, CUDA_SUCCESS, "");
}

static void copied(struct swap *swap)
{
	const struct session *session;

	if (swap->manner == SWAP_COPIED) {
		all_copied(swap);
		return;
	}
	TAILQ_FOREACH (session, &swap->members, swap_link)
		if (swap->manner == SWAP_AT_REST && !session_is_paused(session) && swap_has_work(session)) {
			swap_stay(swap, CUDA_ERROR_NOT_READY, swap_obstacle_of(session, SWAP_HAS_WORK));
			return;
		}
	gone_away(swap);
}

bool swap_copy_again(struct session *session, swap_done_fn *done, void *context)
{
	struct swap *swap = session->swap;

	if (!swap || session->memory != SESSION_MEMORY_LEAVES || swap->manner != SWAP_COPIED)
		return false;
	swap->done = done;
	swap->context = context;
	swap_copy(swap);
	return true;
}

static const struct swap_way way_out = {.into = false, .copied = copied, .failed = swap_stay};

/* Work of one member may write to memory of another: all work ends before the first copy. */
static void stopped(struct swap *swap)
{
	if (!swap->pending)
		swap_copy(swap);
}

/* A member whose work has not ended. */
static const struct session *find_working(const struct swap *swap)
{
	const struct session *session;

	TAILQ_FOREACH (session, &swap->members, swap_link)
		if (shm_view_in_doubt(&session->view))
			return session;
	return swap_first(swap);
}

static void on_stopped(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct ticket *ticket = context;
	struct swap *swap = ticket->swap;
	bool awaited = swap_take(ticket);

	(void)worker;
	(void)packet;
	if (awaited && reply && reply->code == CUDA_ERROR_NOT_READY)
		swap_stay(swap, reply->code, swap_obstacle_of(find_working(swap), reply->text));
	else if (awaited && (!reply || reply->code))
		swap_fail_by(swap, reply);
	else if (awaited)
		stopped(swap);
	swap_drop_ticket(ticket);
}

static void stop_all(struct swap *swap)
{
	const struct session *session;

	TAILQ_FOREACH (session, &swap->members, swap_link) {
		struct wire_message nothing = {.type = WIRE_CARRY_MEMORY, .session = session->number};

		swap_ask(swap, session->domain->active, &nothing, NULL, on_stopped, NULL);
	}
}

const char *swap_begin(struct session *session, enum swap_manner manner, swap_done_fn *done, void *context)
{
	struct swap *swap;
	const char *text;

	if (session->memory != SESSION_MEMORY_HERE || session->swap)
		return "it is suspended already, or comes back";
	swap = swap_new(session, swap_on_retry);
	swap->way = &way_out;
	swap->manner = manner;
	text = gather(swap);
	if (!text)
		text = swap_make_files(swap);
	if (text) {
		swap_drop(swap);
		return text;
	}
	swap->done = done;
	swap->context = context;
	pieces_place(&swap->pieces);
	TAILQ_FOREACH (session, &swap->members, swap_link)
		session->drained = manner == SWAP_DRAINED;
	swap_set_memory(swap, SESSION_MEMORY_LEAVES);
	stop_all(swap);
	return NULL;
}
