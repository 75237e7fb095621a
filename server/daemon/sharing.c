// See sharing.h.

#include "server/daemon/sharing.h"

#include <string.h>

#include "server/config/config.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/daemon/quota.h"
#include "server/session/export.h"
#include "server/session/holdings.h"
#include "server/session/session.h"
#include "server/standby/swap.h"

/* Pinned memory without a handle is a file, and has no token until somebody asks for one. Pages of
 * events are shared in another way. */
static bool needs_chunk(const struct holding *entry)
{
	return entry->type == WIRE_MAP_HOST && entry->fd && !(entry->range.flags & WIRE_HOST_EVENTS);
}

CUresult sharing_export(struct session *session, const struct wire_memory *wish, uint64_t ret_values[4],
	struct chunk **ret_chunk)
{
	struct holdings *holdings = &session->holdings;
	struct holding *entry = wish->handle ? holdings_find_memory(holdings, wish->handle)
					     : holdings_find_address(holdings, wish->address);

	if (entry && needs_chunk(entry))
		holdings_give_chunk(
			holdings, entry, chunk_new_host(session->daemon, entry->fd, entry->range.offset));
	/* A handle of an earlier life of the daemon may have lost its memory. */
	if (!entry || !entry->chunk)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(ret_values, entry->chunk->token, sizeof(entry->chunk->token));
	ret_values[2] = entry->range.bytes;
	ret_values[3] = entry->range.address;
	*ret_chunk = entry->chunk;
	return CUDA_SUCCESS;
}

/* @ret_owner: a session that has the memory */
static const struct holding *find_exported(
	const struct daemon *daemon, uid_t uid, const uint64_t token[2], struct session **ret_owner)
{
	const struct holding *entry = NULL;
	struct session *session;

	/* Also a session that is just ending. Other daemons answer for sessions of theirs. */
	TAILQ_FOREACH (session, &daemon->sessions, link) {
		if (session->uid == uid && !session_is_elsewhere(session))
			entry = holdings_find_token(&session->holdings, token);
		if (entry)
			break;
	}
	*ret_owner = session;
	return entry;
}

static bool is_within_limit(const struct session *session, bool is_host, uint64_t bytes)
{
	uint64_t limit = is_host ? session_pinned_limit(session) : session->terms.memory_limit;
	uint64_t held = is_host ? session->holdings.host_bytes : session->holdings.memory_bytes;

	return !limit || (held <= limit && bytes <= limit - held);
}

/* The memory of a session that leaves for another device may be that device's the next moment. */
static bool is_away(const struct session *owner, const struct chunk *chunk)
{
	return owner->departure || (owner->memory != SESSION_MEMORY_HERE && chunk_is_own(chunk));
}

/* Calls back memory that is away. @ret_owner: a session that has the memory; NULL: it is unheld */
static CUresult find_chunk(struct daemon *daemon, uid_t uid, const uint64_t token[2],
	struct session **ret_owner, struct chunk **ret_chunk, uint64_t *ret_bytes)
{
	const struct holding *entry = find_exported(daemon, uid, token, ret_owner);
	struct chunk *chunk = entry ? entry->chunk : exports_find(&daemon->exports, uid, token);

	if (!chunk)
		return CUDA_ERROR_INVALID_VALUE;
	if (*ret_owner && is_away(*ret_owner, chunk)) {
		swap_call(*ret_owner);
		return CUDA_ERROR_NOT_READY;
	}
	*ret_chunk = chunk;
	*ret_bytes = entry ? entry->range.bytes : exports_bytes_of(chunk);
	return CUDA_SUCCESS;
}

CUresult sharing_import(struct session *session, const struct wire_memory *wish, struct chunk **ret_chunk,
	uint64_t *ret_bytes)
{
	struct session *owner;
	CUresult code = find_chunk(session->daemon, session->uid, wish->token, &owner, ret_chunk, ret_bytes);

	/* Memory that another device's daemon has lent counts there. */
	if (code || (*ret_chunk)->lease || is_within_limit(session, chunk_is_host(*ret_chunk), *ret_bytes))
		return code;
	quota_note_limit(session, chunk_is_host(*ret_chunk) ? "pinned_limit" : "memory_limit", *ret_bytes);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sharing_lend(struct daemon *daemon, uid_t uid, const uint64_t token[2], struct chunk **ret_chunk,
	uint64_t *ret_bytes, struct shared_fd **ret_file)
{
	struct session *owner;
	CUresult code = find_chunk(daemon, uid, token, &owner, ret_chunk, ret_bytes);

	return code ? code : exports_lend(owner, *ret_chunk, *ret_bytes, ret_file);
}

const struct holding *sharing_find_events(const struct session *session, const struct wire_import *wish)
{
	const struct session *owner = daemon_find_session(session->daemon, wish->session);
	const struct holding *entry = NULL;

	if (owner && owner->uid == session->uid && owner->state == SESSION_SERVED)
		entry = holdings_find_range(&owner->holdings, WIRE_MAP_HOST, wish->source, wish->bytes);
	return entry && (entry->range.flags & WIRE_HOST_EVENTS) ? entry : NULL;
}
