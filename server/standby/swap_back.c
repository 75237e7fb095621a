// Back: from AWAY by RETURNS to HERE, or AWAY again. See swap.c for states and rules.

#include <stdio.h>

#include "protocol/cuda_abi.h"
#include "server/config/config.h"
#include "server/loop/timer.h"
#include "server/resource/resource.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/due.h"
#include "server/session/guarantee.h"
#include "server/session/holding.h"
#include "server/session/holdings.h"
#include "server/session/reclaim.h"
#include "server/session/session.h"
#include "server/standby/swap.h"
#include "server/standby/swap_inside.h"
#include "server/standby/warm.h"

/* CreateChunk requests that are under way for a session. */
#define MAKES 64u
/* Pause before another try after a failed return; memory that comes back also causes a try. */
#define RETRY_MS 1000u
/* The same for a session that lets others come first. */
#define LATER_MS 100u

static void map_standbys(const struct piece *piece)
{
	for (uint32_t i = 0; i < piece->count; i++)
		if (piece->entries[i]->type == WIRE_MAP_MEMORY)
			warm_entry(session_of(piece->entries[i]->holdings), piece->entries[i]);
}

static void back_here(struct swap *swap)
{
	struct session *session;

	/* From now on standbys get changes again. The memory that they missed is sent before the
	 * record changes. */
	TAILQ_FOREACH (session, &swap->members, swap_link) {
		session->memory = SESSION_MEMORY_HERE;
		swap_note_return(session, timer_now_us() - swap->begun_us);
	}
	for (uint32_t i = 0; i < swap->pieces.count; i++)
		map_standbys(&swap->pieces.at[i]);
	swap_be_here(swap);
	swap_note_moved(swap, "goes on, and its device memory is on the device again");
	swap_say(swap, CUDA_SUCCESS, "");
	swap_drop(swap);
}

/* Releases the memory that has come already. */
void swap_fall_back(struct swap *swap)
{
	swap_round(swap);
	swap_empty_all(swap);
	swap_set_away(swap, true);
	swap_set_memory(swap, SESSION_MEMORY_AWAY);
	swap_release_all(swap);
}

/* There is no room: other sessions may make room. */
static void await_room(struct swap *swap, const char *text)
{
	uint64_t wait_ms = swap_make_room(swap_first(swap), swap->pieces.bytes, swap->wanted_us);

	swap->is_awaiting_room = wait_ms;
	timer_start(swap->retry, wait_ms ? wait_ms : RETRY_MS);
	if (!wait_ms)
		swap_say(swap, CUDA_ERROR_OUT_OF_MEMORY, text);
}

static void fail(struct swap *swap, int32_t code, const char *text)
{
	if (swap->step == SWAP_QUERIES)
		swap_set_memory(swap, SESSION_MEMORY_AWAY);
	else
		swap_fall_back(swap);
	if (code == CUDA_ERROR_OUT_OF_MEMORY) {
		await_room(swap, text);
		return;
	}
	timer_start(swap->retry, RETRY_MS);
	swap_say(swap, code, text);
}

static const struct swap_way way_back = {.into = true, .copied = back_here, .failed = fail};

static void make_next(struct swap *swap);

static void on_mapped(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	(void)worker;
	(void)packet;
	swap_go_on(context, reply, make_next);
}

/* The record names the memory before an executor maps it. */
static void map(struct swap *swap, struct piece *piece)
{
	const unsigned round = swap->round;
	struct wire_message message;

	for (uint32_t i = 0; i < piece->count; i++)
		holdings_save(piece->entries[i]->holdings, piece->entries[i]);
	for (uint32_t i = 0; swap->round == round && i < piece->count; i++) {
		const struct session *session = session_of(piece->entries[i]->holdings);

		if (piece->entries[i]->type != WIRE_MAP_MEMORY)
			continue;
		resource_again(piece->entries[i], session->number, &message);
		swap_ask(swap, session->domain->active, &message, &piece->chunk->fd, on_mapped, NULL);
	}
}

/* Made for an earlier try, or for an ended swap. */
static void give_back(struct worker *keeper, const struct wire_reply *reply, struct packet *packet)
{
	if (reply && !reply->code && reply->values.count)
		chunk_unref(chunk_new(keeper->daemon, reply->values.at[0], packet_take_fd(packet, 0)));
}

static void on_made(
	void *context, struct worker *keeper, const struct wire_reply *reply, struct packet *packet)
{
	struct ticket *ticket = context;
	struct swap *swap = ticket->swap;
	bool awaited = swap_take(ticket);

	if (!awaited)
		give_back(keeper, reply, packet);
	else if (!reply || reply->code || !reply->values.count)
		swap_fail_by(swap, reply);
	else if (!chunk_fill(ticket->piece->chunk, reply->values.at[0], packet_take_fd(packet, 0)))
		fail(swap, CUDA_ERROR_OUT_OF_MEMORY, "the service has no file descriptors left");
	else
		map(swap, ticket->piece);
	swap_drop_ticket(ticket);
}

static void make_next(struct swap *swap)
{
	struct worker *keeper = swap->daemon->keeper;

	/* The keeper is no executor: a failure to send to the keeper ends no round. */
	for (; swap->pending < MAKES && swap->next < swap->pieces.count; swap->next++) {
		struct piece *piece = &swap->pieces.at[swap->next];
		struct wire_message message = {.type = WIRE_CREATE_CHUNK, .chunk = {.bytes = piece->bytes}};

		if (!keeper || keeper->state != WORKER_WARM) {
			fail(swap, CUDA_ERROR_NOT_READY, "the keeper of the device memory is being replaced");
			return;
		}
		swap_ask(swap, keeper, &message, NULL, on_made, piece);
	}
	if (swap->pending)
		return;
	swap->step = SWAP_CARRIES;
	swap_copy(swap);
}

#define RESERVED                                                                                             \
	"what its device memory needs is guaranteed to other programs, or theirs. It comes back when there " \
	"is room"

/* True if the memory, once it is back, leaves others what is reserved for them. */
static bool is_allowed(struct swap *swap)
{
	const struct session *session;
	bool fits = true;

	swap_set_away(swap, false);
	TAILQ_FOREACH (session, &swap->members, swap_link)
		fits &= guarantee_fits(session);
	swap_set_away(swap, true);
	return fits;
}

static void on_free_memory(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct ticket *ticket = context;
	struct swap *swap = ticket->swap;
	bool awaited = swap_take(ticket);
	char text[160];

	(void)worker;
	(void)packet;
	if (awaited && (!reply || reply->code || !reply->values.count)) {
		swap_fail_by(swap, reply);
	} else if (awaited && !is_allowed(swap)) {
		fail(swap, CUDA_ERROR_OUT_OF_MEMORY, RESERVED);
	} else if (awaited && reply->values.at[0] < swap->pieces.bytes) {
		snprintf(text, sizeof(text),
			"its device memory, %llu MiB, does not fit: %llu MiB are free. It comes back when "
			"there is room",
			(unsigned long long)(swap->pieces.bytes / SWAP_MIB),
			(unsigned long long)(reply->values.at[0] / SWAP_MIB));
		fail(swap, CUDA_ERROR_OUT_OF_MEMORY, text);
	} else if (awaited) {
		swap->step = SWAP_MAPS;
		swap_set_away(swap, false);
		make_next(swap);
	}
	swap_drop_ticket(ticket);
}

void swap_want(struct swap *swap)
{
	if (!swap->wanted)
		swap->wanted_us = timer_now_us();
	swap->wanted = true;
}

/* True if others have waited for longer: room that is being made is theirs. */
static bool comes_later(const struct swap *swap)
{
	const struct session *other;

	if (swap_first(swap)->terms.memory_policy != CONFIG_MEMORY_POLICY_SWAP)
		return false;
	TAILQ_FOREACH (other, &swap->daemon->sessions, link)
		if (other->swap && other->swap != swap && other->swap->is_awaiting_room &&
			other->swap->wanted_us < swap->wanted_us && domain_serving(other->domain))
			return true;
	return swap_is_displacing(swap->daemon) && reclaim_is_short(swap->daemon);
}

static bool has_keeper(const struct daemon *daemon)
{
	return daemon->keeper && daemon->keeper->state == WORKER_WARM;
}

/* True if executors serve all members. */
static bool is_served(const struct swap *swap)
{
	const struct session *session;

	TAILQ_FOREACH (session, &swap->members, swap_link)
		if (!domain_serving(session->domain) || session->departure || session->is_detached)
			return false;
	return true;
}

static void query_memory(struct swap *swap)
{
	const struct session *session = swap_first(swap);
	struct wire_message message = {.type = WIRE_QUERY_MEMORY, .session = session->number};

	swap_ask(swap, domain_serving(session->domain), &message, NULL, on_free_memory, NULL);
}

/* Return: a session with device memory that no program of the set has mapped: the one that had has
 * ended. NULL: there is none */
static struct session *find_lost(const struct swap *swap)
{
	for (uint32_t i = 0; i < swap->pieces.count; i++)
		if (!piece_mapping(&swap->pieces.at[i]))
			return session_of(swap->pieces.at[i].entries[0]->holdings);
	return NULL;
}

/* Executors copy into mappings alone. The session must not go on without what was in its memory. */
static void lose(struct session *session)
{
	if (!(session->due & SESSION_DUE_REJECT))
		swap_note(session,
			"cannot go on: only a program that has ended had mapped some of its device memory");
	due_session(session, SESSION_DUE_REJECT);
}

void swap_begin_return(struct swap *swap)
{
	struct session *lost;

	if (swap_first(swap)->memory != SESSION_MEMORY_AWAY || !swap->wanted)
		return;
	if (!daemon_offers_device(swap->daemon)) {
		swap_say(swap, CUDA_ERROR_NOT_READY, SWAP_DEVICE_DRAINED);
		return;
	}
	if (swap_is_held(swap)) {
		swap_say(swap, CUDA_ERROR_NOT_READY, SWAP_HELD);
		return;
	}
	if (!is_served(swap))
		return;
	lost = find_lost(swap);
	if (lost) {
		lose(lost);
		return;
	}
	/* A keeper that starts calls swap_retry() when it is ready. */
	if (!has_keeper(swap->daemon)) {
		swap->step = SWAP_QUERIES;
		return;
	}
	/* Mapping before the end of unmapping would be an error. */
	swap->is_awaiting_unmap = swap->unmapping;
	if (swap->is_awaiting_unmap)
		return;
	if (comes_later(swap)) {
		timer_start(swap->retry, LATER_MS);
		return;
	}
	if (!is_allowed(swap)) {
		await_room(swap, RESERVED);
		return;
	}
	timer_stop(swap->retry);
	swap_round(swap);
	swap->begun_us = timer_now_us();
	swap->way = &way_back;
	swap->step = SWAP_QUERIES;
	swap_set_memory(swap, SESSION_MEMORY_RETURNS);
	query_memory(swap);
}

void swap_on_retry(void *context)
{
	swap_begin_return(context);
}
