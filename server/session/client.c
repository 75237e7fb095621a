// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Sessions. See client.h for the states. Each transition is one function: client_new, on_opened, client_end,
// and closing_done when the last executor has let go.

#include "server/session/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/adopt/records.h"
#include "server/adopt/store.h"
#include "server/config/config.h"
#include "server/failover/move.h"
#include "server/failover/overrun.h"
#include "server/failover/probation.h"
#include "server/failover/warm.h"
#include "server/failover/worker.h"
#include "server/log.h"
#include "server/loop/connection.h"
#include "server/loop/shared_fd.h"
#include "server/loop/timer.h"
#include "server/loop/watch.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/handshake.h"
#include "server/session/linger.h"
#include "server/session/message.h"
#include "server/session/request.h"
#include "server/session/shared_event.h"
#include "server/session/sink.h"
#include "server/session/visitor.h"
#include "shm/doorbell.h"
#include "shm/text.h"

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
	shared_event_release(&client->holdings, client->number);
	holdings_deinit(&client->holdings);
	sink_drop(client);
	shared_fd_unref(client->again.fd);
	chunk_unref(client->again.chunk);
	/* Records name no descriptor that is given up. */
	store_drop(client->daemon->store, client->record);
	doubt_deinit(&client->common);
	doubt_deinit(&client->latest);
	promote_note_gone(client->domain, client);
	overrun_forget(client);
	probation_gone(client);
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
		reclaim_done(daemon);
	domain_watch_idle(domain);
	domain_reap(domain);
	daemon_session_gone(daemon);
	return NULL;
}

void client_keep(struct client *client)
{
	struct store *store = client->daemon->store;
	const struct request *request = client->request;
	struct kept_client kept = {.features = client->features,
		.uid = client->uid,
		.pid = client->pid,
		.domain = client->domain->number,
		.window = client->window,
		.recovery = client->recovery,
		.state = client->state,
		.recover = client->recover,
		.opened = client->opened,
		.worked = client->worked,
		.connection = client->connection_key,
		.process = client->process_key,
		.open = client->open,
		.attach = client->attach,
		.let_go = client->let_go,
		.let_go_to = client->let_go_to,
		.patience_ms = client->patience_ms,
		.asked = client->again.asked,
		.answered = client->answered,
		.crashes = client->crashes};

	if (!store)
		return;
	kept.client_fd = shared_fd_keep(client->client_fd, store);
	kept.server_fd = shared_fd_keep(client->server_fd, store);
	kept.doorbell = shared_fd_keep(client->doorbell_fd, store);
	memcpy(kept.closes, client->closes, sizeof(kept.closes));
	memcpy(kept.program, client->program, sizeof(kept.program));
	for (int i = 0; i < 2; i++)
		chunk_name(client->sinks[i], &kept.sinks[i]);
	if (request) {
		kept.asked = request->client_id;
		kept.request = (struct kept_call){request->sent ? request->worker : 0, request->worker_id};
		kept.request_fd = request->fd ? shared_fd_keep(request->fd, store) : 0;
		chunk_name(request->chunk, &kept.chunk);
	}
	client->record = store_put(store, client->record, RECORD_CLIENT, client->number, &kept, sizeof(kept));
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

uint32_t client_policy(const struct client *client)
{
	if (!client->recovery_set)
		return CLIENT_RECOVER_BY_POLICY;
	return client->recovery ? CLIENT_RECOVER_BY_REPLAY : CLIENT_RECOVER_BY_FAIL;
}

void client_set_recovery(struct client *client, bool replay)
{
	client->recovery = replay;
	client->recovery_set = true;
	client_keep(client);
	log_info("session %llu (process %d, %s): recovery is %s from now on", name(client), (int)client->pid,
		client->program, replay ? "replay" : "fail");
}

void client_hold(struct client *client)
{
	uint32_t running = SHM_SESSION_RUNNING;

	/* What the executor has just said to be over stays so. */
	atomic_compare_exchange_strong(&client->view.server->state, &running, SHM_SESSION_HELD);
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

/* Takes the three descriptors over and maps our view. Return: 0, SHM_E_* or -errno. */
static int take_regions(struct client *client, int client_fd, int server_fd, int doorbell_fd)
{
	struct wire_shape shape;

	shm_shape_init(&shape, SHM_RING_BYTES, client->daemon->config->arena_bytes, SHM_BLOCKS);
	client->client_fd = shared_fd_new(client_fd);
	client->server_fd = shared_fd_new(server_fd);
	client->doorbell_fd = shared_fd_new(doorbell_fd);
	if (!client->client_fd || !client->server_fd || !client->doorbell_fd)
		return SHM_E_NOSPACE;
	return shm_view_map(
		&client->view, &shape, client->client_fd->fd, client->server_fd->fd, SHM_SIDE_SERVER);
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
	return take_regions(client, client_fd, server_fd, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

static void watch_process(struct client *client)
{
	int fd = client->pid > 0 ? (int)syscall(SYS_pidfd_open, client->pid, 0) : -1;

	/* A process that cannot be seen from here (another pid namespace) is watched by its socket alone. */
	if (fd < 0)
		return;
	client->process_key = store_deposit(client->daemon->store, fd);
	client->process = watch_new(client->daemon->loop, fd, on_process_gone, client);
}

static struct client *allocate(struct domain *domain, const struct client_peer *peer, uint64_t number)
{
	struct client *client = calloc(1, sizeof(*client));

	if (!client)
		return NULL;
	client->daemon = domain->daemon;
	client->domain = domain;
	client->refs = 1;
	client->number = number;
	client->uid = peer->uid;
	client->pid = peer->pid;
	client->window = WINDOW_NONE;
	client->view = SHM_VIEW_NULL;
	holdings_init(&client->holdings);
	client->holdings.store = domain->daemon->store;
	client->holdings.session = number;
	client->holdings.window_set = &domain->windows;
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
}

int client_new(struct domain *domain, struct connection *connection, const struct client_peer *peer,
	const struct wire_hello *hello, int32_t *ret_code, const char **ret_text)
{
	struct client *client = allocate(domain, peer, ++domain->daemon->next_session);
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
	client->connection_key = store_deposit(domain->daemon->store, connection_socket(connection));
	connection_set_owner(connection, &handlers, client);
	daemon_keep(domain->daemon);
	client_keep(client);
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
		log_error("session %llu (process %d, %s) cannot be welcomed: %s", name(client),
			(int)client->pid, client->program,
			r < 0 ? strerror(-r) : "its program is gone, or does not read");
		client_end(client, 0);
		return;
	}
	client->state = CLIENT_SERVED;
	sink_request(client);
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
	client->attach = (struct kept_call){0};
	client_keep(client);
	/* A dying executor's answer means nothing: the next one is told to serve all sessions. */
	if (reply && reply->code && !worker_is_failing(worker))
		client_reject(client, "its session cannot be served");
	client_unref(client);
}

void client_attach(struct client *client, struct worker *worker)
{
	/* One that another executor served comes with what it has; something of it is in doubt only if it
	 * was held back after a fault (failover/probation.c). */
	bool is_new = word_acquire(&client->view.server->generation) == worker->generation;
	const uint32_t recover = is_new ? CLIENT_RECOVER_NOTHING : client_policy(client);
	struct wire_message message = {.type = WIRE_ACTIVATE,
		.activate = {.generation = worker->generation,
			.sessions = {&client->number, 1},
			.recover = {&recover, 1},
			.reason = "",
			.canary_ms = (uint32_t)client->daemon->config->canary_patience_ms}};

	client->attach = (struct kept_call){worker->number, worker->next_request};
	client_keep(client);
	worker_request(worker, &message, NULL, 0, on_attached, client_ref(client));
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

/*
 * Serving
 */

static void on_message(void *context, const struct wire_message *message, struct packet *packet)
{
	struct client *client = context;

	if (client->adopted) {
		client->adopted = false;
		/* The daemon died between an answer and taking what it answers off the socket. Where a
		 * request was under way, that one is first: whatever number it has. */
		if (message->type == WIRE_HELLO || (message->id == client->answered && !client->again.asked))
			return;
	}
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

static void close_answered(struct client *client, const struct worker *worker)
{
	for (unsigned i = 0; i < KEPT_CLOSES; i++)
		if (client->closes[i].worker == worker->number)
			client->closes[i] = (struct kept_call){0};
	domain_keep(client->domain);
	client_keep(client);
}

static void on_session_closed(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct client *client = context;
	struct domain *domain = client->domain;
	bool orphan = reply && !reply->code && reply->values.count && !reply->values.at[0];

	(void)packet;
	if (orphan && worker == domain->active && !worker_is_failing(worker))
		promote_orphan(domain, client);
	if (reply && !reply->code && reply->values.count > 1 && worker->state != WORKER_CONDEMNED)
		linger_begin(client, worker, &(struct wire_message){.type = WIRE_CLOSE_SESSION},
			reply->values.at[1]);
	close_answered(client, worker);
	if (--client->closings == 0)
		closing_done(client);
	client_unref(client);
}

static void await_closing(struct client *client)
{
	if (client->close_timer)
		timer_start(client->close_timer, (uint64_t)client->patience_ms + CLOSE_GRACE_MS);
}

/* An executor that does not even answer is as bad as one whose work does not end; but one that has contained
 * a fault answers by its end, which others may put off. */
static void on_close_timer(void *context)
{
	struct client *client = context;
	struct domain *domain = client->domain;

	if (!domain->active || !worker_owes(domain->active, client))
		return;
	if (domain->promotion.worn)
		await_closing(client);
	else
		worker_condemn(domain->active, "did not close a session in time");
}

/* One that is dying has everything mapped: it answers by being reaped. */
static bool is_to_be_told(const struct client *client, const struct worker *worker)
{
	return worker->told && (client->opened || client->opening == worker);
}

void client_close_again(struct client *client, struct worker *worker)
{
	struct wire_message message = {.type = WIRE_CLOSE_SESSION, .session = client->number};

	message.close_session.patience_ms = client->patience_ms;
	client->closings++;
	worker_request(worker, &message, NULL, 0, on_session_closed, client_ref(client));
}

/* Records to whom the end is told, before it is. */
static void record_closing(struct client *client)
{
	struct worker *worker;
	unsigned count = 0;

	TAILQ_FOREACH (worker, &client->domain->workers, link)
		if (is_to_be_told(client, worker) && count < KEPT_CLOSES)
			client->closes[count++] = (struct kept_call){worker->number, worker->next_request};
	client_keep(client);
}

static void send_close(struct client *client)
{
	struct worker *worker;

	TAILQ_FOREACH (worker, &client->domain->workers, link)
		if (is_to_be_told(client, worker))
			client_close_again(client, worker);
}

void client_closing_again(struct client *client)
{
	if (!client->closings) {
		closing_done(client);
		return;
	}
	client->close_timer = timer_new(client->daemon->loop, on_close_timer, client);
	await_closing(client);
}

/* The record says that it is closing and names the peer no more; then the peer's things go. */
static void let_peer_go(struct client *client)
{
	uint32_t connection = client->connection_key, process = client->process_key;

	client->connection_key = client->process_key = 0;
	record_closing(client);
	client->connection = connection_shutdown(client->connection);
	client->process = watch_free(client->process);
	store_forget(client->daemon->store, connection);
	store_forget(client->daemon->store, process);
}

void client_end(struct client *client, uint32_t patience_ms)
{
	if (client->state == CLIENT_CLOSING)
		return;
	client->state = CLIENT_CLOSING;
	client->patience_ms = patience_ms;
	if (client->request) {
		move_forget(client, client->request);
		request_cancel(client->request);
	}
	move_abandon(client);
	probation_end(client);
	let_peer_go(client);
	if (client->opened)
		reclaim_begin(client->daemon);
	send_close(client);
	client_closing_again(client);
}

/*
 * Another life of the daemon
 */

static void take_kept(struct client *client, const struct kept_client *kept)
{
	client->state = (enum client_state)kept->state;
	client->features = kept->features;
	client->recovery = kept->recovery;
	client->recovery_set = true;
	client->recover = (enum client_recover)kept->recover;
	client->opened = kept->opened;
	client->worked = kept->worked;
	client->connection_key = kept->connection;
	client->process_key = kept->process;
	client->patience_ms = kept->patience_ms;
	client->answered = kept->answered;
	client->crashes = kept->crashes;
	client->adopted = true;
	client->open = kept->open;
	client->attach = kept->attach;
	client->let_go = kept->let_go;
	client->let_go_to = kept->let_go_to;
	memcpy(client->closes, kept->closes, sizeof(client->closes));
	memcpy(client->program, kept->program, sizeof(client->program));
	client->window = kept->window;
	window_adopt(&client->domain->windows, kept->window);
}

/* Its connection and its process. Return: whether they are there. */
static bool adopt_peer(struct client *client)
{
	struct daemon *daemon = client->daemon;
	int socket = store_take(daemon->store, client->connection_key);
	int process = store_take(daemon->store, client->process_key);

	if (process >= 0)
		client->process = watch_new(daemon->loop, process, on_process_gone, client);
	if (socket < 0)
		return false;
	client->connection = connection_new(daemon->loop, socket, VISITOR_QUEUE_MAX, &handlers, client);
	return client->connection;
}

struct client *client_adopt(struct domain *domain, uint64_t number, const struct kept_client *kept)
{
	const struct client_peer peer = {.uid = (uid_t)kept->uid, .pid = kept->pid};
	struct store *store = domain->daemon->store;
	struct client *client = allocate(domain, &peer, number);
	int client_fd = store_take(store, kept->client_fd), server_fd = store_take(store, kept->server_fd);

	log_bug_on(!client);
	take_kept(client, kept);
	if (take_regions(client, client_fd, server_fd, store_take(store, kept->doorbell)) ||
		(client->state != CLIENT_CLOSING && !adopt_peer(client))) {
		log_error("session %llu cannot be taken over: its descriptors are not there", name(client));
		return NULL;
	}
	client->client_fd->store = client->server_fd->store = client->doorbell_fd->store = store;
	client->client_fd->key = kept->client_fd;
	client->server_fd->key = kept->server_fd;
	client->doorbell_fd->key = kept->doorbell;
	return client;
}
