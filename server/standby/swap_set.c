// Sets: sessions that share device memory leave together and come back together, because a copy of
// shared memory is whole only while none of them has work on the device. A set is one struct swap,
// and one group of files that all members have; so a later life of the daemon finds the set again.
// A shared chunk is one piece of the set: it is copied once, and mapped again by each member. See
// swap.c.

#include <stdio.h>
#include <stdlib.h>

#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/holdings.h"
#include "server/standby/swap_inside.h"

void swap_list(struct swap *swap)
{
	const struct holdings **sessions;
	const struct session *session;
	uint32_t count = 0;

	TAILQ_FOREACH (session, &swap->members, swap_link)
		count++;
	sessions = calloc(count, sizeof(*sessions));
	log_bug_on(!sessions);
	count = 0;
	TAILQ_FOREACH (session, &swap->members, swap_link)
		sessions[count++] = &session->holdings;
	pieces_deinit(&swap->pieces);
	pieces_init(&swap->pieces, sessions, count);
	free(sessions);
}

void swap_join(struct swap *swap, struct session *session)
{
	session->swap = swap;
	TAILQ_INSERT_TAIL(&swap->members, session, swap_link);
}

/* Adds the sessions that have a chunk. Return: false if one of them has another swap */
static bool join_owners(struct swap *swap, const struct chunk *chunk)
{
	const struct holding *entry;

	TAILQ_FOREACH (entry, &chunk->owners, owners_link) {
		struct session *session = session_of(entry->holdings);

		if (!session->swap)
			swap_join(swap, session);
		else if (session->swap != swap)
			return false;
	}
	return true;
}

const char *swap_gather(struct swap *swap)
{
	const struct holding *entry;
	const struct session *session;

	/* Those who join are looked at as well: they are behind the others. */
	TAILQ_FOREACH (session, &swap->members, swap_link)
		TAILQ_FOREACH (entry, &session->holdings.entries, link)
			if (chunk_is_own(entry->chunk) && !join_owners(swap, entry->chunk))
				return "a program that shares its device memory is suspended already";
	return NULL;
}

void swap_gather_by_files(struct swap *swap)
{
	const struct shared_fd *file = swap_first(swap)->swap_files[0];
	struct session *session;

	TAILQ_FOREACH (session, &swap->daemon->sessions, link)
		if (!session->swap && session->swap_files[0] == file && session->state == SESSION_SERVED &&
			!session->given_up)
			swap_join(swap, session);
}

/* The chunks that only this member has end with it. */
static void empty_files_of(const struct session *session)
{
	const struct holdings *holdings = &session->holdings;
	struct pieces pieces;

	pieces_init(&pieces, &holdings, 1);
	for (uint32_t i = 0; i < pieces.count; i++)
		if (pieces.at[i].chunk->holders == pieces.at[i].count)
			swap_empty_files(session, &pieces.at[i]);
	pieces_deinit(&pieces);
}

void swap_remove(struct swap *swap, struct session *session)
{
	TAILQ_REMOVE(&swap->members, session, swap_link);
	session->swap = NULL;
	/* Another device's daemon may have the files by now, and serve the session. */
	if (!session->transfer.number)
		empty_files_of(session);
	swap_list(swap);
}

const char *swap_name_obstacle(uint64_t session, pid_t pid, const char *text)
{
	static char named[400];

	snprintf(named, sizeof(named), "session %llu (process %d), which shares device memory with it: %s",
		(unsigned long long)session, (int)pid, text);
	return named;
}

const char *swap_obstacle_of(const struct session *member, const char *text)
{
	return member == swap_first(member->swap) ? text
						  : swap_name_obstacle(member->number, member->pid, text);
}

bool swap_is_held(const struct swap *swap)
{
	const struct session *session;

	TAILQ_FOREACH (session, &swap->members, swap_link)
		if (session->checkpointed)
			return true;
	return false;
}

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

static bool needs(const struct session *session)
{
	return session->drained ||
	       (!session_is_paused(session) && (session->request || swap_has_work(session)));
}

bool swap_is_needed(const struct swap *swap)
{
	const struct session *session;

	TAILQ_FOREACH (session, &swap->members, swap_link)
		if (needs(session))
			return true;
	return false;
}

void swap_set_memory(struct swap *swap, enum session_memory memory)
{
	struct session *session, *next;

	for (session = swap_first(swap); session; session = next) {
		next = TAILQ_NEXT(session, swap_link);
		session_set_memory(session, memory);
	}
}

void swap_set_away(struct swap *swap, bool away)
{
	struct session *session;

	TAILQ_FOREACH (session, &swap->members, swap_link)
		holdings_set_away(&session->holdings, away);
}
