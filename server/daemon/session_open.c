// OPENING to SERVED: executors get to know the session, the active executor serves it. See
// session.h.

#include "server/daemon/life.h"
#include "server/daemon/sink_make.h"
#include "server/session/events.h"
#include "server/session/session.h"

#include <string.h>

#include "protocol/cuda_abi.h"
#include "server/config/config.h"
#include "server/log.h"
#include "server/loop/connection.h"
#include "server/loop/shared_fd.h"
#include "server/daemon/compiling.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/due.h"
#include "server/session/guarantee.h"
#include "server/daemon/handshake.h"
#include "server/session/reclaim.h"
#include "server/session/userlog.h"
#include "server/standby/warm.h"
#include "server/worker/worker.h"
#include "shm/text.h"

static void send_refuse(struct connection *connection, int32_t code, const char *text)
{
	struct wire_message message = {.type = WIRE_REFUSE, .refuse = {.code = code, .text = text}};

	connection_send(connection, &message, NULL, 0);
}

void session_refuse(struct session *session, int32_t code, const char *text)
{
	const struct event_about about = events_about(session);

	if (session->state != SESSION_OPENING)
		return;
	events_note(session->daemon, EVENT_refused, LOG_LEVEL_WARNING, &about,
		"process %d (%s) is refused: %s", (int)session->pid, session->program, text);
	session->daemon->counters.sessions_refused++;
	send_refuse(session->connection, code, text);
	session_end(session, 0);
}

static void serve(struct session *session)
{
	char text[256];
	int r;

	if (guarantee_refuses(session, text, sizeof(text))) {
		session_refuse(session, CUDA_ERROR_OUT_OF_MEMORY, text);
		return;
	}
	/* The session may have come before the device, and so the number of multiprocessors, was
	 * known. */
	session_tell_share(session);
	warm_session(session);
	r = handshake_welcome(session);
	if (r) {
		userlog_event(session->daemon, session->uid, USERLOG_session, LOG_LEVEL_ERROR,
			"session %llu (process %d, %s) cannot be welcomed: %s",
			(unsigned long long)session->number, (int)session->pid, session->program,
			r < 0 ? strerror(-r) : "its program is gone, or does not read");
		session_end(session, 0);
		return;
	}
	due_answer(session, SESSION_ANSWER_WELCOME);
}

/* The executor that has opened the session, if it serves still. */
static struct worker *find_opener(const struct session *session)
{
	struct worker *worker = domain_serving(session->domain);

	return worker && worker->generation == word_acquire(&session->view.server->generation) ? worker
											       : NULL;
}

void session_welcomed(struct session *session)
{
	struct worker *worker = find_opener(session);

	if (session->state != SESSION_OPENING)
		return;
	session->open = (struct kept_call){0};
	session_changed(session);
	if (!worker) {
		/* The next executor opens the session, and the program gets Welcome twice. */
		session_open(session);
		return;
	}
	session->state = SESSION_SERVED;
	session_read_next(session);
	session_attach(session, worker);
	sink_request(session);
	compiling_await(session);
	session->daemon->counters.sessions_opened++;
	userlog_event(session->daemon, session->uid, USERLOG_session, LOG_LEVEL_INFO,
		"session opened: %llu (process %d, %s) of uid %lld", (unsigned long long)session->number,
		(int)session->pid, session->program, (long long)session->uid);
}

static void on_opened(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct session *session = context;
	/* An executor that is not to serve any more may still answer well. */
	bool dying = !reply || domain_worker_is_failing(worker) || worker != session->domain->active;
	bool ok = !dying && !reply->code;
	const struct kept_call open = session->open;

	(void)packet;
	session->opening = NULL;
	session->open = (struct kept_call){0};
	if (ok && !session->opened) {
		session->opened = true;
		if (session->state == SESSION_CLOSING)
			reclaim_begin(session->daemon);
	}
	if (session->state == SESSION_OPENING && ok) {
		serve(session);
		/* Recorded until Welcome is sent: the next life of the daemon sends it again. */
		if (session->answer == SESSION_ANSWER_WELCOME)
			session->open = open;
	} else if (session->state == SESSION_OPENING && !dying)
		session_refuse(session, reply->code,
			reply->text[0] ? reply->text : "the executor cannot take one more client");
	session_changed(session);
	/* The next executor opens a dying executor's session, and may serve already. */
	if (session->state == SESSION_OPENING)
		session_open(session);
	session_unref(session);
}

void session_open(struct session *session)
{
	struct worker *worker = domain_serving(session->domain);

	if (session->state == SESSION_OPENING && !session->opening && !session->answer && worker &&
		daemon_offers_device(session->daemon))
		session_open_again(session, worker);
}

void session_open_again(struct session *session, struct worker *worker)
{
	struct wire_message message;
	struct shared_fd *fds[3];

	session_open_message(session, &message);
	session_open_fds(session, fds);
	word_release(&session->view.server->generation, worker->generation);
	session->opening = worker;
	session->open = (struct kept_call){worker->number, worker->next_request};
	session_changed(session);
	worker_request(worker, &message, fds, 3, on_opened, session_ref(session));
}
