// Shared by both ways: life, requests and their answers, copies, unmapping. See swap_inside.h.

#include "server/session/events.h"
#include "server/session/holdings.h"
#include "server/standby/piece.h"
#include "server/standby/stash.h"
#include "server/standby/swap_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/cuda_abi.h"
#include "server/loop/shared_fd.h"
#include "server/loop/timer.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/due.h"
#include "server/session/reclaim.h"
#include "server/session/session.h"
#include "server/worker/worker.h"

/* Most bytes of a copy into the stash. A multiple of SWAP_CARRY_BYTES. */
#define STASH_BYTES (UINT64_C(1) << 30)

/*
 * Life
 */

struct swap *swap_unref(struct swap *swap)
{
	if (!--swap->refs) {
		pieces_deinit(&swap->pieces);
		free(swap);
	}
	return NULL;
}

struct swap *swap_new(struct session *session, void (*again)(void *context))
{
	struct swap *swap = calloc(1, sizeof(*swap));

	log_bug_on(!swap);
	swap->daemon = session->daemon;
	TAILQ_INIT(&swap->members);
	swap->again = again;
	swap->refs = 1;
	swap->begun_us = timer_now_us();
	swap->retry = timer_new(session->daemon->loop, again, swap);
	log_bug_on(!swap->retry);
	swap_join(swap, session);
	return swap;
}

/* Answers to come find nothing to do. */
void swap_round(struct swap *swap)
{
	swap->round++;
	swap->pending = 0;
	swap->next = 0;
	swap->at = 0;
}

void swap_drop(struct swap *swap)
{
	struct session *session;

	swap_round(swap);
	swap->retry = timer_free(swap->retry);
	while ((session = swap_first(swap))) {
		TAILQ_REMOVE(&swap->members, session, swap_link);
		session->swap = NULL;
	}
	swap_unref(swap);
}

void swap_say(struct swap *swap, int32_t code, const char *text)
{
	swap_done_fn *done = swap->done;

	swap->done = NULL;
	if (done)
		done(swap->context, code, text);
}

void swap_note(struct session *session, const char *what)
{
	const struct event_about about = events_about(session);

	events_note(session->daemon, EVENT_memory, LOG_LEVEL_INFO, &about, "session %llu (process %d, %s) %s",
		(unsigned long long)session->number, (int)session->pid, session->program, what);
}

/* Of the first member, with the figures of all. */
static void note_first_moved(const struct swap *swap, const char *where)
{
	const double took_us = (double)(timer_now_us() - swap->begun_us);
	struct session *session = swap_first(swap);
	char text[256];

	if (!swap->pieces.bytes) {
		swap_note(session, where);
		return;
	}
	snprintf(text, sizeof(text),
		"%s: %llu MiB in %.0f ms, %.1f GB/s (its threads: pages %.0f ms, device %.0f ms, files %.0f "
		"ms)",
		where, (unsigned long long)(swap->pieces.bytes / SWAP_MIB), took_us / 1000.0,
		(double)swap->pieces.bytes / 1000.0 / (took_us + 1), (double)swap->times[0] / 1e6,
		(double)swap->times[1] / 1e6, (double)swap->times[2] / 1e6);
	swap_note(session, text);
}

void swap_note_moved(struct swap *swap, const char *where)
{
	struct session *session = swap_first(swap);
	char text[256];

	note_first_moved(swap, where);
	snprintf(text, sizeof(text), "%s, with that of session %llu", where,
		(unsigned long long)session->number);
	while ((session = TAILQ_NEXT(session, swap_link)))
		swap_note(session, text);
}

void swap_be_here(struct swap *swap)
{
	struct session *session;

	TAILQ_FOREACH (session, &swap->members, swap_link) {
		session->drained = false;
		for (unsigned i = 0; i < KEPT_SWAP_FILES; i++)
			session->swap_files[i] = shared_fd_unref(session->swap_files[i]);
		session_set_memory(session, SESSION_MEMORY_HERE);
		due_session(session, SESSION_DUE_GO_ON);
	}
	/* Imports of other sessions wait for it, too. */
	due_daemon(swap->daemon, DAEMON_DUE_MEMORY);
}

/*
 * Requests
 */

static struct ticket *ticket_new(struct swap *swap, struct piece *piece, struct chunk *old)
{
	struct ticket *ticket = malloc(sizeof(*ticket));

	log_bug_on(!ticket);
	*ticket = (struct ticket){swap, swap->round, piece, old};
	swap->refs++;
	return ticket;
}

/* A failure to send is trouble, and may end the round at once. */
void swap_ask(struct swap *swap, struct worker *worker, struct wire_message *message,
	struct shared_fd *const *fd, worker_reply_fn *reply, struct piece *piece)
{
	swap->pending++;
	worker_request(worker, message, fd, fd ? 1 : 0, reply, ticket_new(swap, piece, NULL));
}

/* Return: false: ignore the answer */
bool swap_take(struct ticket *ticket)
{
	bool awaited = swap_first(ticket->swap) && ticket->round == ticket->swap->round;

	if (awaited)
		ticket->swap->pending--;
	return awaited;
}

void swap_drop_ticket(struct ticket *ticket)
{
	swap_unref(ticket->swap);
	free(ticket);
}

void swap_fail_by(struct swap *swap, const struct wire_reply *reply)
{
	if (reply)
		swap->way->failed(swap, reply->code ? reply->code : CUDA_ERROR_UNKNOWN,
			reply->text && reply->text[0] ? reply->text : "its device memory cannot be moved");
	else
		swap->way->failed(swap, CUDA_ERROR_NOT_READY, "a process of the service has ended");
}

void swap_go_on(struct ticket *ticket, const struct wire_reply *reply, void (*next)(struct swap *swap))
{
	bool awaited = swap_take(ticket);

	if (awaited && (!reply || reply->code))
		swap_fail_by(ticket->swap, reply);
	else if (awaited)
		next(ticket->swap);
	swap_drop_ticket(ticket);
}

/*
 * Copies
 */

static void feed(struct swap *swap);

static void on_carried(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct ticket *ticket = context;

	(void)worker;
	(void)packet;
	for (uint32_t i = 0; reply && i < reply->values.count && i < SWAP_TIMES; i++)
		ticket->swap->times[i] += reply->values.at[i];
	swap_go_on(context, reply, feed);
}

/* Return: how many bytes of a piece the stash takes, in whole requests to files; 0: none */
static uint64_t stashable(const struct swap *swap, const struct piece *piece)
{
	const struct stash *stash =
		swap->manner == SWAP_COPIED && !swap->way->into ? swap->daemon->stash : NULL;
	const struct worker *executor = session_of(piece_mapping(piece)->holdings)->domain->active;
	const uint64_t left = piece->bytes - swap->at, place = piece->chunk->place + swap->at;
	uint64_t bytes = left < STASH_BYTES ? left : STASH_BYTES;

	while (bytes && !stash_has_room(stash, executor, place, bytes))
		bytes = (bytes - 1) / SWAP_CARRY_BYTES * SWAP_CARRY_BYTES;
	return bytes;
}

static uint64_t bytes_of_next(const struct swap *swap)
{
	const uint64_t left = swap->pieces.at[swap->next].bytes - swap->at;

	return left < SWAP_CARRY_BYTES ? left : SWAP_CARRY_BYTES;
}

/* True if there is something to copy, and the files have it. */
static bool has_next(const struct swap *swap)
{
	return swap->next < swap->pieces.count &&
	       swap->pieces.at[swap->next].chunk->place + swap->at + bytes_of_next(swap) <=
		       swap_first(swap)->filled;
}

static void carry_next(struct swap *swap)
{
	const struct piece *piece = &swap->pieces.at[swap->next];
	const struct holding *mapping = piece_mapping(piece);
	struct session *session = session_of(mapping->holdings);
	uint64_t bytes = bytes_of_next(swap), stashed = stashable(swap, piece);
	struct wire_message message = {.type = WIRE_CARRY_MEMORY,
		.session = session->number,
		.carry = {.address = mapping->range.address + swap->at,
			.bytes = bytes,
			.offset = piece->chunk->place + swap->at,
			.into = swap->way->into}};

	if (stashed) {
		message.carry.bytes = bytes = stashed;
		message.carry.aside = stash_address(swap->daemon->stash, message.carry.offset);
		swap->is_stashed = true;
	}
	swap->at += bytes;
	if (swap->at == piece->bytes) {
		swap->next++;
		swap->at = 0;
	}
	swap_ask(swap, session->domain->active, &message,
		stashed ? NULL : swap_file_at(session->swap_files, message.carry.offset), on_carried, NULL);
}

static void feed(struct swap *swap)
{
	const unsigned round = swap->round;

	while (swap->round == round && swap->pending < SWAP_REQUESTS && has_next(swap))
		carry_next(swap);
	if (swap->round == round && !swap->pending && swap->next == swap->pieces.count)
		swap->way->copied(swap);
}

void swap_fill(struct session *session, uint64_t place)
{
	struct swap *swap = session->swap;

	session->filled = place;
	if (place == SESSION_FILLED)
		session_changed(session);
	if (swap && session->memory == SESSION_MEMORY_RETURNS && swap->step == SWAP_CARRIES)
		feed(swap);
}

void swap_copy(struct swap *swap)
{
	memset(swap->times, 0, sizeof(swap->times));
	swap->is_stashed = false;
	swap->next = 0;
	swap->at = 0;
	feed(swap);
}

/*
 * Unmapping
 */

void swap_unmap_message(const struct holding *entry, struct wire_message *ret)
{
	*ret = (struct wire_message){
		.type = WIRE_UNMAP_MEMORY, .session = entry->holdings->session, .range = entry->range};
}

static void on_unmapped(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct ticket *ticket = context;
	struct swap *swap = ticket->swap;

	(void)worker;
	(void)reply;
	(void)packet;
	chunk_unref(ticket->old);
	if (!--swap->unmapping && swap_first(swap) && swap->is_awaiting_unmap)
		swap->again(swap);
	swap_drop_ticket(ticket);
}

/* Active executors have the piece mapped, or answer that they have not. */
static void unmap_active(struct swap *swap, const struct piece *piece)
{
	struct wire_message message;

	for (uint32_t i = 0; i < piece->count; i++) {
		struct worker *active = session_of(piece->entries[i]->holdings)->domain->active;

		if (piece->entries[i]->type != WIRE_MAP_MEMORY || !active)
			continue;
		swap_unmap_message(piece->entries[i], &message);
		swap->unmapping++;
		worker_request(active, &message, NULL, 0, on_unmapped,
			ticket_new(swap, NULL, piece->old ? chunk_ref(piece->old) : NULL));
	}
}

static void release(struct swap *swap, struct piece *piece)
{
	unmap_active(swap, piece);
	if (!piece->old)
		return;
	reclaim_note_freed(swap_first(swap), piece->old);
	chunk_doom(piece->old);
	for (uint32_t i = 0; i < piece->count; i++)
		holdings_save(piece->entries[i]->holdings, piece->entries[i]);
	piece->old = chunk_unref(piece->old);
}

void swap_empty_all(struct swap *swap)
{
	for (uint32_t i = 0; i < swap->pieces.count; i++) {
		struct piece *piece = &swap->pieces.at[i];

		if (piece->chunk->fd)
			piece->old = chunk_split(piece->chunk);
	}
}

void swap_release_all(struct swap *swap)
{
	for (uint32_t i = 0; i < swap->pieces.count; i++)
		release(swap, &swap->pieces.at[i]);
}
