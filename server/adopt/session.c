// Sessions and their holdings from records. See adoption.h.

#include "server/adopt/adoption.h"
#include "server/daemon/depart.h"
#include "server/daemon/life.h"
#include "server/daemon/requests.h"
#include "server/holder/store.h"
#include "server/log.h"
#include "server/loop/connection.h"
#include "server/loop/shared_fd.h"
#include "server/resource/resource.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/holdings.h"
#include "server/session/reclaim.h"
#include "server/session/records.h"
#include "server/session/saved.h"
#include "server/session/session.h"
#include "server/session/window.h"
#include "server/standby/move.h"
#include "server/worker/worker.h"

struct worker *adoption_worker(const struct daemon *daemon, uint32_t number)
{
	struct domain *domain;
	struct worker *worker;

	if (!number)
		return NULL;
	if (daemon->keeper && daemon->keeper->number == number)
		return daemon->keeper;
	TAILQ_FOREACH (domain, &daemon->domains, link)
		TAILQ_FOREACH (worker, &domain->workers, link)
			if (worker->number == number)
				return worker;
	return NULL;
}

static void open_again(struct worker *worker, void *context)
{
	session_open_again(context, worker);
}

static void attach_again(struct worker *worker, void *context)
{
	session_attach(context, worker);
}

static void close_again(struct worker *worker, void *context)
{
	session_close_again(context, worker);
}

static void let_go_again(struct worker *worker, void *context)
{
	struct session *session = context;

	if (session->let_go_to)
		move_let_go_again(session, worker);
	else
		depart_let_go_again(session, worker);
}

static void ask_again(struct worker *worker, void *context)
{
	struct session *session = context;

	request_send_again(session->request, worker);
}

static void repeat_call(
	struct adoption *adoption, struct session *session, struct kept_call *call, repeat_fn *send)
{
	struct worker *worker = adoption_worker(adoption->daemon, call->worker);

	/* A damaged record may name anybody. */
	if (worker && worker->domain && worker->domain->identity.uid == session->domain->identity.uid)
		repeat_later(&adoption->repetitions, worker, call->id, send, session);
	else
		*call = (struct kept_call){0};
}

/* Reads the request that was under way from the program's socket, where its message still is. */
static void read_request(struct adoption *adoption, struct session *session, const struct kept_session *kept)
{
	struct worker *worker = adoption_worker(adoption->daemon, kept->request.worker);

	if (!kept->asked || session->state == SESSION_CLOSING)
		return;
	session->again.asked = kept->asked;
	session->again.fd = inventory_fd(&adoption->inventory, kept->request_fd);
	session->again.code_bytes = kept->code_bytes;
	session->again.chunk = inventory_chunk(&adoption->inventory, &kept->chunk, false);
	if (!window_is_possible(&session->domain->windows, kept->window.address, kept->window.bytes)) {
		session_give_up(session, "its request cannot be read");
		return;
	}
	session->again.window = kept->window.address;
	window_hold(&session->domain->windows, kept->window.address, kept->window.bytes);
	connection_deliver(session->connection);
	if (!session->request || session->request->place != REQUEST_HERE || !worker)
		return;
	session->request->place = REQUEST_AT_WORKER;
	session->request->worker = worker->number;
	session->request->worker_id = kept->request.id;
	repeat_later(&adoption->repetitions, worker, kept->request.id, ask_again, session);
}

void adoption_read_session(struct adoption *adoption, const struct record *record)
{
	struct daemon *daemon = adoption->daemon;
	struct session_record copy;
	const struct kept_session *kept = &copy.kept;
	struct domain *domain;
	struct session *session;

	if (!record_read(record, &copy, sizeof(copy)) ||
		!(domain = daemon_find_domain(daemon, kept->domain))) {
		/* The program sees the hang-up. */
		store_drop(daemon->store, record);
		return;
	}
	session = session_adopt(domain, record_key(record), &copy);
	session->record = record;
	saved_give(session);
	session->crashes += adoption->crashed && kept->asked;
	if (session->opened && session->state == SESSION_CLOSING && !session->given_up)
		reclaim_begin(daemon);
	session->sink = inventory_chunk(&adoption->inventory, &kept->sink, false);
	for (unsigned i = 0; session->memory != SESSION_MEMORY_HERE && i < KEPT_SWAP_FILES; i++) {
		session->swap_files[i] = inventory_fd(&adoption->inventory, kept->swap_fds[i]);
		if (!session->swap_files[i] && !session->given_up)
			session_give_up(session, "a file with its memory is missing");
	}
	/* The tool that filled the files knows an earlier life of the daemon. */
	if (session->filled != SESSION_FILLED && session->state == SESSION_SERVED)
		session_give_up(session, "it was being restored");
	read_request(adoption, session, kept);
	if (session->given_up)
		return;
	repeat_call(adoption, session, &session->open, open_again);
	repeat_call(adoption, session, &session->attach, attach_again);
	repeat_call(adoption, session, &session->let_go, let_go_again);
	if (session->let_go.worker)
		move_adopt(session, session->let_go_to);
	for (unsigned i = 0; i < KEPT_CLOSES; i++)
		repeat_call(adoption, session, &session->closes[i], close_again);
}

void adoption_read_holding(struct adoption *adoption, const struct record *record)
{
	size_t bytes;
	const struct kept_holding *kept = record_payload(record, &bytes);
	struct session *session =
		bytes < sizeof(*kept) ? NULL : daemon_find_session(adoption->daemon, kept->session);
	struct shared_fd *file, *handed;
	struct chunk *chunk;

	/* A session's record goes after those of its resources. */
	if (!session) {
		store_drop(adoption->daemon->store, record);
		return;
	}
	file = inventory_fd(&adoption->inventory, kept->fd);
	chunk = inventory_chunk(&adoption->inventory, &kept->chunk, session->holdings.away);
	if (file && kept->type == WIRE_MAP_HOST && kept->flags & WIRE_HOST_FILE)
		file->is_programs = true;
	handed = chunk_is_host(chunk) ? chunk->fd : kept->type == WIRE_MAP_HOST ? file : NULL;
	log_bug_on(!session_hand_out(session, handed));
	if (resource_adopt(&session->holdings, record, kept, bytes, file, chunk) < 0) {
		shared_fd_unref(file);
		chunk_unref(chunk);
		store_drop(adoption->daemon->store, record);
		session_give_up(session, "its resources cannot be read");
	}
}
