// The record of a session. See records.h.

#include <string.h>

#include "server/holder/store.h"
#include "server/loop/shared_fd.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/request.h"
#include "server/session/session.h"

void session_keep(struct session *session)
{
	struct store *store = session->daemon->store;
	const struct request *request = session->request;
	struct session_record record = {
		.kept = {.domain = session->domain->number, .asked = session->again.asked}};
	struct kept_session *kept = &record.kept;

	if (!store)
		return;
	kept->client_fd = session->client_fd->key;
	kept->server_fd = session->server_fd->key;
	kept->doorbell = session->doorbell_fd->key;
	for (unsigned i = 0; i < KEPT_SWAP_FILES; i++)
		kept->swap_fds[i] = session->swap_files[i] ? session->swap_files[i]->key : 0;
	chunk_name(session->sink, &kept->sink);
	if (request) {
		kept->asked = request->session_id;
		kept->request = (struct kept_call){request->sent ? request->worker : 0, request->worker_id};
		kept->request_fd = request->fd ? request->fd->key : 0;
		kept->code_bytes = request->code_bytes;
		chunk_name(request->chunk, &kept->chunk);
		if (request->window != WINDOW_NONE)
			kept->window = (struct kept_window){request->window, request->message.window.bytes};
	}
	memcpy(record.head, session, sizeof(record.head));
	session->record =
		store_put(store, session->record, RECORD_SESSION, session->number, &record, sizeof(record));
}
