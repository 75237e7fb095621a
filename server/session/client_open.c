// OPENING to SERVED: executors get to know the session, the active one serves it. See client.h.

#include "server/session/client.h"

#include <string.h>

#include "protocol/cuda_abi.h"
#include "server/config/config.h"
#include "server/failover/formers.h"
#include "server/failover/warm.h"
#include "server/failover/worker.h"
#include "server/log.h"
#include "server/loop/connection.h"
#include "server/loop/shared_fd.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/handshake.h"
#include "server/session/reclaim.h"
#include "server/session/request.h"
#include "server/session/sink.h"
#include "server/session/window.h"
#include "shm/text.h"

void client_open_message(const struct client *client, struct wire_message *message)
{
	*message = (struct wire_message){.type = WIRE_OPEN_SESSION, .session = client->number};
	message->open_session = (struct wire_open_session){.window_base = window_base(client->window),
		.device_bytes = WINDOW_DEVICE_BYTES,
		.host_bytes = WINDOW_HOST_BYTES,
		.shape = client->view.shape,
		.recovery = client->recovery,
		.program = client->program,
		.pid = client->pid};
	if (client->features & FRMPS_FEATURE_TEXT)
		message->open_session.text =
			shm_text_address(window_base(client->window), WINDOW_DEVICE_BYTES, WINDOW_HOST_BYTES);
}

void client_open_fds(const struct client *client, struct shared_fd *ret_fds[3])
{
	ret_fds[0] = client->client_fd;
	ret_fds[1] = client->server_fd;
	ret_fds[2] = client->doorbell_fd;
}

static void send_refuse(struct connection *connection, int32_t code, const char *text)
{
	struct wire_message message = {.type = WIRE_REFUSE, .refuse = {.code = code, .text = text}};

	connection_send(connection, &message, NULL, 0);
}

void client_refuse(struct client *client, int32_t code, const char *text)
{
	if (client->state != CLIENT_OPENING)
		return;
	userlog_event(client->daemon, client->uid, USERLOG_refused, LOG_LEVEL_WARNING,
		"process %d (%s) is refused: %s", (int)client->pid, client->program, text);
	client->daemon->counters.sessions_refused++;
	send_refuse(client->connection, code, text);
	client_end(client, 0);
}

/* The active executor serves a session from Activate on; a standby only knows it. */
static void on_attached(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct client *client = context;

	(void)packet;
	client->attach = (struct kept_call){0};
	client_keep(client);
	/* A dying executor's answer means nothing: the next one is told to serve all sessions. */
	if (reply && reply->code && !worker_is_failing(worker))
		client_reject(client, "its session cannot be served");
	else if (client->request)
		request_advance(client->request);
	client_unref(client);
}

void client_attach(struct client *client, struct worker *worker)
{
	/* One that another executor served, and let go of, comes with what it has (failover/move.c). */
	bool is_new = word_acquire(&client->view.server->generation) == worker->generation;
	const uint32_t recover = is_new ? CLIENT_RECOVER_NOTHING : client_policy(client);
	struct wire_message message = {.type = WIRE_ACTIVATE,
		.activate = {.generation = worker->generation,
			.sessions = {&client->number, 1},
			.recover = {&recover, 1},
			.reason = "",
			.canary_ms = (uint32_t)client->daemon->config->canary_patience_ms}};
	struct formers formers;

	formers_list(worker, &formers);
	message.activate.formers = (struct wire_u32s){formers.pids, formers.count};
	client->attach = (struct kept_call){worker->number, worker->next_request};
	client_keep(client);
	worker_request(worker, &message, NULL, 0, on_attached, client_ref(client));
}

static void serve(struct client *client)
{
	int r;

	warm_session(client);
	r = handshake_welcome(client);
	if (r) {
		userlog_event(client->daemon, client->uid, USERLOG_session, LOG_LEVEL_ERROR,
			"session %llu (process %d, %s) cannot be welcomed: %s",
			(unsigned long long)client->number, (int)client->pid, client->program,
			r < 0 ? strerror(-r) : "its program is gone, or does not read");
		client_end(client, 0);
		return;
	}
	client->state = CLIENT_SERVED;
	sink_request(client);
	client->daemon->counters.sessions_opened++;
	userlog_event(client->daemon, client->uid, USERLOG_session, LOG_LEVEL_INFO,
		"session opened: %llu (process %d, %s) of uid %lld", (unsigned long long)client->number,
		(int)client->pid, client->program, (long long)client->uid);
}

static void on_opened(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct client *client = context;
	/* One that is not to serve any more may still answer well. */
	bool dying = !reply || worker_is_failing(worker) || worker != client->domain->active;
	bool ok = !dying && !reply->code;

	(void)packet;
	client->opening = NULL;
	client->open = (struct kept_call){0};
	if (ok && !client->opened) {
		client->opened = true;
		if (client->state == CLIENT_CLOSING)
			reclaim_begin(client->daemon);
	}
	if (client->state == CLIENT_OPENING && ok) {
		serve(client);
		/* Recorded with this: a Welcome that went out is sent again rather than never. */
		if (client->state == CLIENT_SERVED)
			client_attach(client, worker);
	} else if (client->state == CLIENT_OPENING && !dying)
		client_refuse(client, reply->code,
			reply->text[0] ? reply->text : "the executor cannot take one more client");
	else
		client_keep(client);
	/* A dying executor's session is opened by the next one, which may serve already. */
	if (client->state == CLIENT_OPENING)
		client_open(client);
	client_unref(client);
}

void client_open(struct client *client)
{
	struct worker *worker = domain_serving(client->domain);

	if (client->state == CLIENT_OPENING && !client->opening && worker)
		client_open_again(client, worker);
}

void client_open_again(struct client *client, struct worker *worker)
{
	struct wire_message message;
	struct shared_fd *fds[3];

	client_open_message(client, &message);
	client_open_fds(client, fds);
	word_release(&client->view.server->generation, worker->generation);
	client->opening = worker;
	client->open = (struct kept_call){worker->number, worker->next_request};
	client_keep(client);
	worker_request(worker, &message, fds, 3, on_opened, client_ref(client));
}
