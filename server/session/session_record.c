// The record of a session. See records.h.

#include <string.h>

#include "server/holder/store.h"
#include "server/loop/shared_fd.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/request.h"
#include "server/session/session.h"

void session_changed(struct session *session)
{
	session->is_changed = session->daemon->has_changes = true;
}

/* The worker whose answer the request waits for, or got in this turn: the answer is on the worker's
 * socket until the program has its own. */
static struct kept_call call_of(const struct request *request)
{
	return request->place == REQUEST_AT_WORKER || request->place == REQUEST_ANSWERED
		       ? (struct kept_call){request->worker, request->worker_id}
		       : (struct kept_call){0};
}

void session_save(struct session *session)
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
		kept->request = call_of(request);
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
