// Files of a session that its program can have open. See session.h and handout.h.

#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/export.h"
#include "server/session/handout.h"
#include "server/session/holding.h"
#include "server/session/holdings.h"
#include "server/session/session.h"

struct shared_fd *session_file_of(const struct holding *entry)
{
	if (chunk_is_host(entry->chunk))
		return entry->chunk->fd;
	return entry->type == WIRE_MAP_HOST ? entry->fd : NULL;
}

bool session_hand_out(struct session *session, struct shared_fd *file)
{
	if (session_is_elsewhere(session))
		return true;
	return !handout_add(&session->daemon->handouts, session->owner, file);
}

void session_forget_files(struct session *session)
{
	const struct holding *entry;

	handout_forget(session->client_fd);
	handout_forget(session->server_fd);
	TAILQ_FOREACH (entry, &session->holdings.entries, link) {
		handout_forget(session_file_of(entry));
		exports_leave(entry->chunk);
	}
}
