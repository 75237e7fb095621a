// See sharing.h.

#include "server/session/sharing.h"

#include <string.h>

#include "server/config/config.h"
#include "server/session/chunk.h"
#include "server/session/client.h"
#include "server/session/daemon.h"

CUresult sharing_export(const struct client *client, const struct wire_memory *wish, uint64_t ret_values[4])
{
	const struct holdings *holdings = &client->holdings;
	const struct holding *entry = wish->handle ? holdings_find_memory(holdings, wish->handle)
						   : holdings_find_address(holdings, wish->address);

	/* One that an earlier life of the daemon left may have lost it. */
	if (!entry || !entry->chunk)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(ret_values, entry->chunk->token, sizeof(entry->chunk->token));
	ret_values[2] = entry->range.bytes;
	ret_values[3] = entry->range.address;
	return CUDA_SUCCESS;
}

static bool may_share(const struct client *owner, const struct client *importer)
{
	return owner->uid == importer->uid && owner->state == CLIENT_SERVED;
}

static const struct holding *find_exported(const struct client *importer, const uint64_t token[2])
{
	const struct holding *entry = NULL;
	const struct client *client;

	TAILQ_FOREACH (client, &importer->daemon->clients, link) {
		if (may_share(client, importer))
			entry = holdings_find_token(&client->holdings, token);
		if (entry)
			break;
	}
	return entry;
}

static bool is_within_limit(const struct client *client, uint64_t bytes)
{
	uint64_t limit = client->terms.memory_limit, held = client->holdings.memory_bytes;

	return !limit || (held <= limit && bytes <= limit - held);
}

CUresult sharing_import(
	const struct client *client, const struct wire_memory *wish, const struct holding **ret_entry)
{
	const struct holding *entry = find_exported(client, wish->token);

	if (!entry)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_within_limit(client, entry->range.bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret_entry = entry;
	return CUDA_SUCCESS;
}

const struct holding *sharing_find_events(const struct client *client, const struct wire_import *wish)
{
	const struct client *owner = daemon_find_client(client->daemon, wish->session);
	const struct holding *entry = NULL;

	if (owner && may_share(owner, client))
		entry = holdings_find_range(&owner->holdings, WIRE_MAP_HOST, wish->source, wish->bytes);
	return entry && (entry->range.flags & WIRE_HOST_EVENTS) ? entry : NULL;
}
