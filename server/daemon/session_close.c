// CLOSING: every executor that knows the session closes it, or ends. See session.h.

#include "server/config/config.h"
#include "server/daemon/life.h"
#include "server/fault/endless.h"
#include "server/fault/promote.h"
#include "server/session/holdings.h"
#include "server/session/session.h"

#include "protocol/cuda_abi.h"
#include "server/holder/store.h"
#include "server/log.h"
#include "server/loop/connection.h"
#include "server/loop/timer.h"
#include "server/loop/watch.h"
#include "server/daemon/compiling.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/due.h"
#include "server/session/unpinning.h"
#include "server/session/reclaim.h"
#include "server/daemon/requests.h"
#include "server/session/userlog.h"
#include "server/session/window.h"
#include "server/standby/move.h"
#include "server/standby/swap.h"
#include "server/worker/worker.h"

static void closing_done(struct session *session)
{
	session->close_timer = timer_free(session->close_timer);
	session_unref(session);
}

static void close_answered(struct session *session, const struct worker *worker)
{
	for (unsigned i = 0; i < KEPT_CLOSES; i++)
		if (session->closes[i].worker == worker->number)
			session->closes[i] = (struct kept_call){0};
	session_changed(session);
}

static void on_session_closed(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct session *session = context;
	struct domain *domain = session->domain;
	bool orphan = reply && !reply->code && reply->values.count && !reply->values.at[0];

	(void)packet;
	if (orphan && worker == domain->active && !domain_worker_is_failing(worker))
		promote_orphan(domain, session);
	if (reply && !reply->code && reply->values.count > 2 && reply->values.at[2])
		endless_report_orphan(domain, session);
	if (reply && !reply->code && reply->values.count > 1 &&
		reply->values.at[1] > (1 + session->holdings.windows) * WINDOW_BYTES)
		worker_terminate(worker, "it says that more is pinned than a session can have");
	if (reply && !reply->code && reply->values.count > 1 && reply->values.at[1] &&
		worker->state != WORKER_TERMINATING)
		unpinning_begin(session, worker, &(struct wire_message){.type = WIRE_CLOSE_SESSION},
			reply->values.at[1]);
	worker_forget_session(worker, session->number);
	close_answered(session, worker);
	if (--session->closings == 0)
		closing_done(session);
	session_unref(session);
}

static void await_closing(struct session *session)
{
	if (session->close_timer)
		timer_start(session->close_timer, (uint64_t)session->patience_ms + SESSION_CLOSE_GRACE_MS);
}

/* An active executor that does not even answer is as bad as an executor whose work does not end:
 * the daemon halts it, so that the work of other sessions on the device can end. An executor that
 * is being replaced answers by its end, which other sessions may delay. A standby may have much
 * work before the request; overdue.c ends a standby that hangs. */
static void on_close_timer(void *context)
{
	struct session *session = context;
	struct domain *domain = session->domain;
	bool owed = domain->active && worker_owes(domain->active, session);

	/* Also for the executor that is active then. */
	await_closing(session);
	if (owed)
		promote_close_overdue(domain);
}

/* A dying executor has all memory mapped: its end is the answer. */
static bool is_to_be_told(const struct session *session, const struct worker *worker)
{
	return worker->told && (session->opened || session->opening == worker);
}

void session_close_again(struct session *session, struct worker *worker)
{
	struct wire_message message = {.type = WIRE_CLOSE_SESSION, .session = session->number};

	message.close_session.patience_ms = session->patience_ms;
	session->closings++;
	worker_request(worker, &message, NULL, 0, on_session_closed, session_ref(session));
}

static void send_close(struct session *session)
{
	struct worker *worker;
	unsigned count = 0;

	TAILQ_FOREACH (worker, &session->domain->workers, link) {
		if (!is_to_be_told(session, worker))
			continue;
		log_bug_on(count == KEPT_CLOSES);
		session->closes[count++] = (struct kept_call){worker->number, worker->next_request};
		session_close_again(session, worker);
	}
	session_changed(session);
}

void session_closing_again(struct session *session)
{
	holdings_disown(&session->holdings);
	if (!session->closings) {
		closing_done(session);
		return;
	}
	session->close_timer = timer_new(session->daemon->loop, on_close_timer, session);
	await_closing(session);
}

void session_end_given_up(struct session *session)
{
	session->given_up = false;
	/* An executor that was about to know the session gets CloseSession, too. */
	session->opened = true;
	session->state = SESSION_SERVED;
	session_finish(session, SHM_SESSION_CLOSED, CUDA_ERROR_MPS_CLIENT_TERMINATED,
		"the service ran out of file descriptors");
	session_end(session, 0);
}

static void let_peer_go(struct session *session)
{
	session->connection = connection_shutdown(session->connection);
	session->process = watch_free(session->process);
	/* An arriving session has no connection yet. */
	store_return(session->daemon->store, session->connection_key);
	store_return(session->daemon->store, session->process_key);
	store_forget(session->daemon->store, session->connection_key);
	store_forget(session->daemon->store, session->process_key);
	session->connection_key = session->process_key = 0;
}

void session_end(struct session *session, uint32_t patience_ms)
{
	if (session->state == SESSION_CLOSING)
		return;
	session->state = SESSION_CLOSING;
	session->patience_ms = patience_ms;
	if (session->request) {
		move_forget(session, session->request);
		request_cancel(session->request);
	}
	compiling_leave(session);
	move_abandon(session);
	swap_abandon(session);
	if (session->order)
		due_session(session, SESSION_DUE_ABANDON);
	let_peer_go(session);
	if (session->opened)
		reclaim_begin(session->daemon);
	send_close(session);
	session_closing_again(session);
}

void session_leave(struct session *session)
{
	session->connection = connection_leave(session->connection);
	session_forget_files(session);
	session->is_detached = true;
	session_end(session, 0);
}

void session_terminate(struct session *session, const char *reason)
{
	/* The refusal may free an OPENING session. */
	if (session->state == SESSION_OPENING) {
		session_refuse(session, CUDA_ERROR_MPS_CLIENT_TERMINATED, reason);
		return;
	}
	session_finish(session, SHM_SESSION_CLOSED, CUDA_ERROR_MPS_CLIENT_TERMINATED, reason);
	session_end(session, 0);
}

void session_reject(struct session *session, const char *reason)
{
	if (session->state == SESSION_CLOSING)
		return;
	userlog_event(session->daemon, session->uid, USERLOG_rejected, LOG_LEVEL_WARNING,
		"session rejected: %llu (process %d, %s): %s", (unsigned long long)session->number,
		(int)session->pid, session->program, reason);
	session->daemon->counters.sessions_rejected++;
	session_finish(session, SHM_SESSION_CLOSED, CUDA_ERROR_MPS_CLIENT_TERMINATED, reason);
	session_end(session, (uint32_t)session->daemon->config->orphan_seconds * 1000);
}

/* A session that no executor knows is freed at the first step, and such an end may free others. */
void sessions_end_all(
	struct daemon *daemon, const struct domain *domain, uint32_t state, int32_t code, const char *reason)
{
	struct session *session = TAILQ_FIRST(&daemon->sessions), *next;

	if (session)
		session_ref(session);
	for (; session; session = next) {
		next = TAILQ_NEXT(session, link);
		if (next)
			session_ref(next);
		if (!domain || session->domain == domain) {
			session_refuse(session, code, reason);
			session_finish(session, state, code, reason);
			session_end(session, 0);
		}
		session_unref(session);
	}
}
