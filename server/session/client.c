// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Sessions. See session.h for the states. Each transition is one function: client_new, on_opened, client_end,
// and closing_done when the last executor has let go.

#include "server/session/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/config/config.h"
#include "server/failover/warm.h"
#include "server/failover/worker.h"
#include "server/log.h"
#include "server/loop/connection.h"
#include "server/loop/shared_fd.h"
#include "server/loop/timer.h"
#include "server/loop/watch.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/handshake.h"
#include "server/session/message.h"
#include "server/session/request.h"
#include "shm/doorbell.h"

/* How much longer than the patience it was given an executor may take to close a session. */
#define CLOSE_GRACE_MS 10000u

static unsigned long long name(const struct client *client)
{
	return (unsigned long long)client->number;
}

struct client *client_ref(struct client *client)
{
	client->refs++;
	return client;
}

static void let_go(struct client *client)
{
	window_give(&client->domain->windows, client->window);
	holdings_deinit(&client->holdings);
	doubt_deinit(&client->common);
	doubt_deinit(&client->latest);
	shm_view_unmap(&client->view);
	shared_fd_unref(client->client_fd);
	shared_fd_unref(client->server_fd);
	shared_fd_unref(client->doorbell_fd);
	timer_free(client->close_timer);
}

struct client *client_unref(struct client *client)
{
	struct daemon *daemon;
	struct domain *domain;
	bool opened;

	if (!client || --client->refs)
		return NULL;
	daemon = client->daemon;
	domain = client->domain;
	opened = client->opened;
	let_go(client);
	if (opened)
		log_info("session closed: %llu (process %d, %s)", name(client), (int)client->pid,
			client->program);
	TAILQ_REMOVE(&daemon->clients, client, link);
	TAILQ_REMOVE(&domain->clients, client, domain_link);
	free(client);
	daemon->client_count--;
	if (opened)
		daemon_reclaimed(daemon);
	domain_watch_idle(domain);
	domain_reap(domain);
	daemon_session_gone(daemon);
	return NULL;
}

/*
 * What the client sees
 */

bool client_is_live(const struct client *client)
{
	uint32_t state;

	if (!client->opened || client->state != CLIENT_SERVED)
		return false;
	state = word_acquire(&client->view.server->state);
	return state == SHM_SESSION_RUNNING || state == SHM_SESSION_HELD;
}

void client_hold(struct client *client)
{
	word_release(&client->view.server->state, SHM_SESSION_HELD);
	wake_all(&client->view.server->wake);
}

void client_finish(struct client *client, uint32_t state, int32_t code, const char *reason)
{
	struct shm_server_header *header = client->view.server;
	uint32_t now;

	if (!header)
		return;
	now = word_acquire(&header->state);
	if (now == SHM_SESSION_FAULTED || now == SHM_SESSION_CLOSED)
		return;
	snprintf(header->reason, sizeof(header->reason), "%s", reason);
	word_set(&header->error, (uint32_t)code);
	word_release(&header->state, state);
	wake_all(&header->wake);
	log_info("session %llu (process %d, %s) is told code %d: %s", name(client), (int)client->pid,
		client->program, (int)code, reason);
}

/*
 * Opening
 */

static void on_message(void *context, const struct wire_message *message, struct packet *packet);
static void on_closed(void *context, const char *reason);
static const struct connection_handlers handlers = {.message = on_message, .closed = on_closed};

static void on_process_gone(void *context)
{
	struct client *client = context;

	client->process = watch_free(client->process);
	client_end(client, (uint32_t)client->daemon->config->orphan_seconds * 1000);
}

/* Shared memory: regions, our view of them, doorbell. Return: 0, SHM_E_* or -errno. */
static int make_regions(struct client *client)
{
	struct wire_shape shape;
	int client_fd, server_fd, r;

	shm_shape_init(&shape, SHM_RING_BYTES, client->daemon->config->arena_bytes, SHM_BLOCKS);
	r = shm_region_new(&shape, &client_fd, &server_fd);
	if (r)
		return r;
	client->client_fd = shared_fd_new(client_fd);
	client->server_fd = shared_fd_new(server_fd);
	client->doorbell_fd = shared_fd_new(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (!client->client_fd || !client->server_fd || !client->doorbell_fd)
		return SHM_E_NOSPACE;
	return shm_view_map(
		&client->view, &shape, client->client_fd->fd, client->server_fd->fd, SHM_SIDE_SERVER);
}

static void watch_process(struct client *client)
{
	int fd = client->pid > 0 ? (int)syscall(SYS_pidfd_open, client->pid, 0) : -1;

	/* A process that cannot be seen from here (another pid namespace) is watched by its socket alone. */
	if (fd >= 0)
		client->process = watch_new(client->daemon->loop, fd, on_process_gone, client);
}

static struct client *allocate(struct domain *domain, const struct client_peer *peer)
{
	struct client *client = calloc(1, sizeof(*client));

	if (!client)
		return NULL;
	client->daemon = domain->daemon;
	client->domain = domain;
	client->refs = 1;
	client->number = ++domain->daemon->next_session;
	client->uid = peer->uid;
	client->pid = peer->pid;
	client->window = WINDOW_NONE;
	client->view = SHM_VIEW_NULL;
	holdings_init(&client->holdings);
	TAILQ_INSERT_TAIL(&domain->daemon->clients, client, link);
	TAILQ_INSERT_TAIL(&domain->clients, client, domain_link);
	domain->daemon->client_count++;
	domain_watch_idle(domain);
	return client;
}

static int refuse_new(
	struct client *client, int32_t code, const char *text, int32_t *ret_code, const char **ret_text)
{
	*ret_code = code;
	*ret_text = text;
	client_unref(client);
	return CLIENT_E_REFUSED;
}

static void take_hello(struct client *client, const struct wire_hello *hello)
{
	const struct config *config = client->daemon->config;

	handshake_copy_name(client->program, sizeof(client->program), hello->program);
	client->features = hello->features & HANDSHAKE_FEATURES;
	client->recovery = hello->recovery ? hello->recovery - 1 : (uint32_t)config->recovery;
	if (getrandom(&client->token, sizeof(client->token), 0) < 0)
		client->token = 0;
}

int client_new(struct domain *domain, struct connection *connection, const struct client_peer *peer,
	const struct wire_hello *hello, int32_t *ret_code, const char **ret_text)
{
	struct client *client = allocate(domain, peer);
	int r;

	if (!client) {
		*ret_code = CUDA_ERROR_OUT_OF_MEMORY;
		*ret_text = "the service is out of memory";
		return CLIENT_E_REFUSED;
	}
	take_hello(client, hello);
	client->window = window_take(&domain->windows, &hello->free_windows);
	if (client->window == WINDOW_NONE)
		return refuse_new(client, CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
			"no window of the address space is free both in the program and in the service",
			ret_code, ret_text);
	r = make_regions(client);
	if (r) {
		log_error("cannot make the shared memory of a session: %s",
			r < 0 ? strerror(-r) : "no memory or no file descriptors left");
		return refuse_new(client, CUDA_ERROR_OUT_OF_MEMORY,
			"the service cannot get shared memory for one more client (memory limit of the "
			"service, or "
			"its limit of open files)",
			ret_code, ret_text);
	}
	watch_process(client);
	client->connection = connection;
	connection_set_owner(connection, &handlers, client);
	client_open(client);
	return 0;
}

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
	log_warning("process %d (%s) is refused: %s", (int)client->pid, client->program, text);
	client->daemon->counters.sessions_refused++;
	send_refuse(client->connection, code, text);
	client_end(client, 0);
}

static void serve(struct client *client)
{
	int r;

	warm_session(client);
	r = handshake_welcome(client);
	if (r) {
		client_end(client, 0);
		return;
	}
	client->state = CLIENT_SERVED;
	client->daemon->counters.sessions_opened++;
	log_info("session opened: %llu (process %d, %s) of uid %lld", name(client), (int)client->pid,
		client->program, (long long)client->uid);
}

/* The active executor serves a session from Activate on; a standby only knows it. */
static void on_attached(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct client *client = context;

	(void)packet;
	/* A dying executor's answer means nothing: the next one is told to serve all sessions. */
	if (reply && reply->code && worker->state != WORKER_CONDEMNED)
		client_reject(client, "its session cannot be served");
	client_unref(client);
}

static void attach(struct client *client, struct worker *worker)
{
	const uint32_t nothing = 0;
	struct wire_message message = {.type = WIRE_ACTIVATE,
		.activate = {.generation = worker->generation,
			.sessions = {&client->number, 1},
			.recover = {&nothing, 1},
			.reason = ""}};

	worker_request(worker, &message, NULL, 0, on_attached, client_ref(client));
}

static void on_opened(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct client *client = context;
	bool ok = reply && !reply->code, dying = !reply || worker->state == WORKER_CONDEMNED;

	(void)packet;
	client->opening = NULL;
	if (ok && !client->opened) {
		client->opened = true;
		client->daemon->reclaiming += client->state == CLIENT_CLOSING;
	}
	if (client->state == CLIENT_OPENING && ok) {
		attach(client, worker);
		serve(client);
	} else if (client->state == CLIENT_OPENING && !dying)
		client_refuse(client, reply->code,
			reply->text[0] ? reply->text : "the executor cannot take one more client");
	/* else: a dying executor's session is opened by the next one, a closing one's CloseSession is on its
	 * way */
	client_unref(client);
}

void client_open(struct client *client)
{
	struct worker *worker = domain_serving(client->domain);
	struct wire_message message;
	struct shared_fd *fds[3];

	if (client->state != CLIENT_OPENING || client->opening || !worker)
		return;
	client_open_message(client, &message);
	client_open_fds(client, fds);
	word_release(&client->view.server->generation, worker->generation);
	client->opening = worker;
	worker_request(worker, &message, fds, 3, on_opened, client_ref(client));
}

/*
 * Serving
 */

static void on_message(void *context, const struct wire_message *message, struct packet *packet)
{
	struct client *client = context;

	if (!message_allowed(message->type, FROM_CLIENT, packet->fd_count))
		client_reject(client, "sent a message that is not its to send");
	else if (client->state != CLIENT_SERVED)
		client_reject(client, "sent a request before it was welcome");
	else
		request_begin(client, message, packet);
}

static void on_closed(void *context, const char *reason)
{
	struct client *client = context;

	log_debug("session %llu %s", name(client), reason);
	client_end(client, (uint32_t)client->daemon->config->orphan_seconds * 1000);
}

void client_reject(struct client *client, const char *reason)
{
	if (client->state == CLIENT_CLOSING)
		return;
	log_warning("session rejected: %llu (process %d, %s): %s", name(client), (int)client->pid,
		client->program, reason);
	client->daemon->counters.sessions_rejected++;
	client_finish(client, SHM_SESSION_CLOSED, CUDA_ERROR_MPS_CLIENT_TERMINATED, reason);
	client_end(client, (uint32_t)client->daemon->config->orphan_seconds * 1000);
}

/*
 * Closing
 */

static void closing_done(struct client *client)
{
	client->close_timer = timer_free(client->close_timer);
	client_unref(client);
}

static void on_session_closed(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct client *client = context;
	struct domain *domain = client->domain;
	bool orphan = reply && !reply->code && reply->values.count && !reply->values.at[0];

	(void)packet;
	if (orphan && worker == domain->active && worker->state == WORKER_ACTIVE)
		promote_orphan(domain, client);
	if (--client->closings == 0)
		closing_done(client);
	client_unref(client);
}

/* An executor that does not even answer is as bad as one whose work does not end. */
static void on_close_timer(void *context)
{
	struct client *client = context;

	if (client->domain->active)
		worker_condemn(client->domain->active, "did not close a session in time");
}

static void send_close(struct client *client, uint32_t patience_ms)
{
	struct wire_message message = {.type = WIRE_CLOSE_SESSION, .session = client->number};
	struct worker *worker;

	message.close_session.patience_ms = patience_ms;
	TAILQ_FOREACH (worker, &client->domain->workers, link) {
		if (!worker_knows_sessions(worker) || (!client->opened && client->opening != worker))
			continue;
		client->closings++;
		worker_request(worker, &message, NULL, 0, on_session_closed, client_ref(client));
	}
}

void client_end(struct client *client, uint32_t patience_ms)
{
	if (client->state == CLIENT_CLOSING)
		return;
	client->state = CLIENT_CLOSING;
	client->connection = connection_shutdown(client->connection);
	client->process = watch_free(client->process);
	if (client->request)
		request_cancel(client->request);
	client->daemon->reclaiming += client->opened;
	send_close(client, patience_ms);
	if (!client->closings) {
		closing_done(client);
		return;
	}
	client->close_timer = timer_new(client->daemon->loop, on_close_timer, client);
	if (client->close_timer)
		timer_start(client->close_timer, (uint64_t)patience_ms + CLOSE_GRACE_MS);
}
