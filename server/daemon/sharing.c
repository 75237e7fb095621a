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
#include "server/session/window.h"

CUresult sharing_export(const struct session *session, const struct wire_memory *wish, uint64_t ret_values[4],
	struct chunk **ret_chunk)
{
	const struct holdings *holdings = &session->holdings;
	const struct holding *entry = wish->handle ? holdings_find_memory(holdings, wish->handle)
						   : holdings_find_address(holdings, wish->address);

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
	const struct session *importer, const uint64_t token[2], const struct session **ret_owner)
{
	const struct holding *entry = NULL;
	const struct session *session;

	/* Also a session that is just ending. */
	TAILQ_FOREACH (session, &importer->daemon->sessions, link) {
		if (session->uid == importer->uid)
			entry = holdings_find_token(&session->holdings, token);
		if (entry)
			break;
	}
	*ret_owner = session;
	return entry;
}

static bool is_within_limit(const struct session *session, bool is_host, uint64_t bytes)
{
	uint64_t limit = is_host ? session->terms.pinned_limit : session->terms.memory_limit;
	uint64_t held = is_host ? session->holdings.host_bytes : session->holdings.memory_bytes;

	if (is_host && !limit)
		limit = WINDOW_HOST_BYTES;
	return !limit || (held <= limit && bytes <= limit - held);
}

CUresult sharing_import(struct session *session, const struct wire_memory *wish, struct chunk **ret_chunk,
	uint64_t *ret_bytes)
{
	const struct session *owner;
	const struct holding *entry = find_exported(session, wish->token, &owner);
	struct chunk *chunk =
		entry ? entry->chunk : exports_find(&session->daemon->exports, session->uid, wish->token);
	uint64_t bytes;

	if (!chunk)
		return CUDA_ERROR_INVALID_VALUE;
	if (owner && owner->memory != SESSION_MEMORY_HERE && !chunk_is_host(chunk))
		return CUDA_ERROR_NOT_READY;
	bytes = entry ? entry->range.bytes : exports_bytes_of(chunk);
	if (!is_within_limit(session, chunk_is_host(chunk), bytes)) {
		quota_note_limit(session, chunk_is_host(chunk) ? "pinned_limit" : "memory_limit", bytes);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret_chunk = chunk;
	*ret_bytes = bytes;
	return CUDA_SUCCESS;
}

const struct holding *sharing_find_events(const struct session *session, const struct wire_import *wish)
{
	const struct session *owner = daemon_find_session(session->daemon, wish->session);
	const struct holding *entry = NULL;

	if (owner && owner->uid == session->uid && owner->state == SESSION_SERVED)
		entry = holdings_find_range(&owner->holdings, WIRE_MAP_HOST, wish->source, wish->bytes);
	return entry && (entry->range.flags & WIRE_HOST_EVENTS) ? entry : NULL;
}
