// What executors are told of a session. See session.h.

#include "protocol/command.h"
#include "server/config/config.h"
#include "server/role.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/due.h"
#include "server/session/session.h"
#include "server/session/window.h"
#include "server/worker/worker.h"
#include "shm/text.h"

void session_open_message(const struct session *session, struct wire_message *message)
{
	*message = (struct wire_message){.type = WIRE_OPEN_SESSION, .session = session->number};
	message->open_session = (struct wire_open_session){.window_base = session->window,
		.device_bytes = WINDOW_DEVICE_BYTES,
		.host_bytes = WINDOW_HOST_BYTES,
		.shape = session->view.shape,
		.recovery = session->recovery,
		.program = session->program,
		.pid = session->pid,
		.text = shm_text_address(session->window, WINDOW_DEVICE_BYTES, WINDOW_HOST_BYTES),
		.user = session->daemon->heritage->run_as == RUN_AS_USER ? session->uid : 0};
}

void session_open_fds(const struct session *session, struct shared_fd *ret_fds[3])
{
	ret_fds[0] = session->client_fd;
	ret_fds[1] = session->server_fd;
	ret_fds[2] = session->doorbell_fd;
}

/* The active executor serves a session from Activate on; standbys only mirror the session. */
static void on_attached(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct session *session = context;

	(void)packet;
	session->attach = (struct kept_call){0};
	session_changed(session);
	/* Ignore a dying executor's answer: the next executor's Activate covers all sessions. */
	if (reply && reply->code && !domain_worker_is_failing(worker))
		due_session(session, SESSION_DUE_REJECT);
	else
		due_session(session, SESSION_DUE_GO_ON);
	session_unref(session);
}

void session_attach(struct session *session, struct worker *worker)
{
	/* A session that another executor served and detached comes with its resources
	 * (standby/move.c). */
	bool is_new = word_acquire(&session->view.server->generation) == worker->generation;
	const uint32_t recover = is_new ? SESSION_RECOVER_NOTHING : session_policy(session);
	struct wire_message message = {.type = WIRE_ACTIVATE,
		.activate = {.generation = worker->generation,
			.sessions = {&session->number, 1},
			.recover = {&recover, 1},
			.reason = "",
			.canary_ms = (uint32_t)session->daemon->config->canary_patience_ms}};

	session->attach = (struct kept_call){worker->number, worker->next_request};
	session_changed(session);
	worker_request(worker, &message, NULL, 0, on_attached, session_ref(session));
}
