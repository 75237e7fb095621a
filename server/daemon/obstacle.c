// See obstacle.h.

#include "server/daemon/obstacle.h"

#include <stdbool.h>
#include <stdio.h>

#include "server/daemon/requests.h"
#include "server/loop/connection.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/export.h"
#include "server/session/holdings.h"
#include "server/session/session.h"
#include "server/standby/leaving.h"
#include "server/standby/swap.h"

#define TEXT_BYTES 240u

/* @text: of a member. Return: the same, or named. Valid until the next call */
static const char *of_member(const struct swap_group *members, uint32_t i, const char *text)
{
	return i ? swap_name_obstacle(members->at[i]->number, members->at[i]->pid, text) : text;
}

static bool is_member(const struct swap_group *members, const struct session *session)
{
	for (uint32_t i = 0; i < members->count; i++)
		if (members->at[i] == session)
			return true;
	return false;
}

static bool is_of_events(const struct holding *entry)
{
	return entry->type == WIRE_MAP_HOST && entry->range.flags & WIRE_HOST_EVENTS;
}

/* True if both have the same pinned memory, or the same events. */
static bool is_same_memory(const struct holding *entry, const struct holding *other)
{
	if (is_of_events(entry))
		return is_of_events(other) && other->fd == entry->fd;
	return chunk_is_host(entry->chunk) && other->chunk == entry->chunk;
}

static bool has_too(const struct session *session, const struct holding *entry)
{
	const struct holding *other;

	TAILQ_FOREACH (other, &session->holdings.entries, link)
		if (is_same_memory(entry, other))
			return true;
	return false;
}

/* Return: the session, not of the set, that has what an entry is for; NULL: there is none */
static const struct session *find_sharer(const struct swap_group *members, const struct holding *entry)
{
	const struct session *session;

	if (!is_of_events(entry) && (!chunk_is_host(entry->chunk) || entry->chunk->holders == 1))
		return NULL;
	TAILQ_FOREACH (session, &members->at[0]->daemon->sessions, link)
		if (!is_member(members, session) && has_too(session, entry))
			return session;
	return NULL;
}

/* Memory that another device has lent counts there, whoever has it here. Memory that this device
 * has lent is found there by a handle, which only cuMemCreate() gives; other pinned memory is its
 * process's alone. */
static const char *refuses_host_memory(const struct swap_group *members, const struct session *session)
{
	static char text[TEXT_BYTES];
	const struct holding *entry;
	const struct session *sharer;

	TAILQ_FOREACH (entry, &session->holdings.entries, link) {
		if (entry->type == WIRE_CREATE_MEMORY && chunk_is_host(entry->chunk) &&
			!entry->chunk->lease && exports_is_lent(entry->chunk))
			return "it shares pinned memory with other devices";
		sharer = entry->chunk && entry->chunk->lease ? NULL : find_sharer(members, entry);
		if (!sharer)
			continue;
		snprintf(text, sizeof(text),
			"it shares events or pinned memory with session %llu (process %d), which shares no "
			"device memory with it, and would stay",
			(unsigned long long)sharer->number, (int)sharer->pid);
		return text;
	}
	return NULL;
}

/* Return: NULL, or why the session cannot leave */
static const char *refuses_session(const struct swap_group *members, const struct session *session)
{
	const char *text;

	if (!session_is_live(session) || session->daemon->phase >= DAEMON_STOPS ||
		!daemon_offers_device(session->daemon))
		return "it is not served now: it starts or ends, or its device is drained; try again";
	if (session->move)
		return "it is being moved to another executor";
	if (session->filled != SESSION_FILLED)
		return "it is being restored";
	text = leaving_refuses(session);
	return text ? text : refuses_host_memory(members, session);
}

const char *obstacle_of_set(const struct swap_group *members)
{
	const char *text;

	for (uint32_t i = 0; i < members->count; i++) {
		text = refuses_session(members, members->at[i]);
		if (text)
			return of_member(members, i, text);
	}
	return NULL;
}

const char *obstacle_by_order(const struct swap_group *members)
{
	for (uint32_t i = 0; i < members->count; i++)
		if (members->at[i]->order)
			return of_member(members, i, "an order before this one is under way");
	return NULL;
}

/* Return: the event that has to come first; NULL: none */
static const char *is_busy(const struct session *session)
{
	if (session->request && request_is_under_way(session->request))
		return "it waits for an answer of the service";
	if (session->sink_asked || session->attach.worker || session->let_go.worker ||
		!domain_serving(session->domain))
		return "its executor is being replaced";
	if (session->freeing)
		return "memory that it has freed is not back yet";
	if (connection_behind(session->connection))
		return "its program does not read its answers";
	return NULL;
}

const char *obstacle_of_moment(const struct swap_group *members)
{
	const char *text;

	for (uint32_t i = 0; i < members->count; i++) {
		text = is_busy(members->at[i]);
		if (text)
			return of_member(members, i, text);
	}
	return NULL;
}

const char *obstacle_by_change(const struct swap_group *members)
{
	struct swap_group now;
	const char *text = swap_find_group(members->at[0], &now);
	bool same = !text && now.count == members->count;

	for (uint32_t i = 0; same && i < now.count; i++)
		same = is_member(members, now.at[i]);
	swap_free_group(&now);
	if (text || same)
		return text;
	return "programs have begun or ceased to share its device memory meanwhile; try again";
}
