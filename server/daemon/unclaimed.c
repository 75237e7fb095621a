// Late answers: the keeper may make memory for a request of an earlier life that no record knows.
// See children.h.

#include "server/daemon/children.h"

#include <stdlib.h>

#include "protocol/socket.h"
#include "protocol/wire.h"
#include "server/holder/store.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/reclaim.h"
#include "server/session/records.h"
#include "server/daemon/requests.h"
#include "server/session/session.h"
#include "server/worker/worker.h"

static bool is_chunk(const struct chunk *chunk, uint64_t handle, uint32_t keeper)
{
	return chunk && chunk->handle == handle && chunk->keeper == keeper;
}

static bool is_doomed(struct daemon *daemon, uint64_t handle)
{
	const struct record **records;
	size_t count = store_list(daemon->store, RECORD_DOOMED, &records);
	struct kept_doomed kept;
	bool found = false;

	for (size_t i = 0; i < count; i++)
		found |= record_read(records[i], &kept, sizeof(kept)) && kept.chunk.handle == handle &&
			 kept.chunk.keeper == daemon->keeper_number;
	free(records);
	return found;
}

static bool is_known(struct daemon *daemon, uint64_t handle)
{
	const struct holding *entry;
	const struct session *session;

	TAILQ_FOREACH (session, &daemon->sessions, link) {
		if (session->request && is_chunk(session->request->chunk, handle, daemon->keeper_number))
			return true;
		if (is_chunk(session->sink, handle, daemon->keeper_number))
			return true;
		TAILQ_FOREACH (entry, &session->holdings.entries, link)
			if (is_chunk(entry->chunk, handle, daemon->keeper_number))
				return true;
	}
	return is_doomed(daemon, handle);
}

void children_take_unclaimed(struct worker *worker, const struct wire_reply *reply)
{
	struct daemon *daemon = worker->daemon;
	struct kept_chunk chunk = {.keeper = daemon->keeper_number};

	if (worker != daemon->keeper || reply->code || !reply->values.count)
		return;
	chunk.handle = reply->values.at[0];
	if (is_known(daemon, chunk.handle))
		return;
	reclaim_begin(daemon);
	chunk_release(daemon, &chunk, NULL);
}
