// How a session comes to be: from a Hello, or again from the record that an earlier life of the daemon kept
// of it. With that its program's end: what the program sends and that it goes away is heard here. See
// client.h.

#include "server/session/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/adopt/records.h"
#include "server/adopt/store.h"
#include "server/config/config.h"
#include "server/log.h"
#include "server/loop/connection.h"
#include "server/loop/shared_fd.h"
#include "server/loop/watch.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/handshake.h"
#include "server/session/message.h"
#include "server/session/request.h"
#include "server/session/visitor.h"

/*
 * The program's end
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
	if (!message_allowed(message->type, FROM_CLIENT))
		client_reject(client, "sent a message that is not its to send");
	else if (client->state != CLIENT_SERVED)
		client_reject(client, "sent a request before it was welcome");
	else
		request_begin(client, message, packet);
}

static void on_closed(void *context, const char *reason)
{
	struct client *client = context;

	log_debug("session %llu %s", (unsigned long long)client->number, reason);
	client_end(client, (uint32_t)client->daemon->config->orphan_seconds * 1000);
}

static const struct connection_handlers handlers = {
	.message = on_message, .closed = on_closed, .outside = true};

static void on_process_gone(void *context)
{
	struct client *client = context;

	client->process = watch_free(client->process);
	client_end(client, (uint32_t)client->daemon->config->orphan_seconds * 1000);
}

/* Return: as store_deposit() */
static int watch_process(struct client *client)
{
	int fd = client->pid > 0 ? (int)syscall(SYS_pidfd_open, client->pid, 0) : -1, r;

	/* A process that cannot be seen from here (another pid namespace) is watched by its socket alone. */
	if (fd < 0)
		return 0;
	r = store_deposit(client->daemon->store, fd, &client->process_key);
	if (r)
		close(fd);
	else
		client->process = watch_new(client->daemon->loop, fd, on_process_gone, client);
	return r;
}

/* What another life of the daemon needs. Return: as store_deposit() */
static int deposit_all(struct client *client, struct connection *connection)
{
	struct store *store = client->daemon->store;
	int r = shared_fd_keep(client->client_fd, store);

	r = r ? r : shared_fd_keep(client->server_fd, store);
	r = r ? r : shared_fd_keep(client->doorbell_fd, store);
	r = r ? r : store_deposit(store, connection_socket(connection), &client->connection_key);
	r = r ? r : watch_process(client);
	if (r)
		store_forget(store, client->connection_key);
	return r;
}

/*
 * A new one
 */

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
	client->subject = peer->subject;
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

/* Takes the three descriptors over and maps our view. Return: 0, SHM_E_* or -errno. */
static int take_regions(struct client *client, int client_fd, int server_fd, int doorbell_fd)
{
	struct wire_shape shape;

	shm_shape_init(&shape, SHM_RING_BYTES, client->daemon->config->arena_bytes, SHM_BLOCKS);
	client->client_fd = shared_fd_new(client_fd);
	client->server_fd = shared_fd_new(server_fd);
	client->doorbell_fd = shared_fd_new(doorbell_fd);
	if (!client->client_fd || !client->server_fd || !client->doorbell_fd ||
		handout_add(&client->daemon->handouts, client->uid, client->client_fd) ||
		handout_add(&client->daemon->handouts, client->uid, client->server_fd))
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
	handshake_copy_name(client->program, sizeof(client->program), hello->program);
	handshake_identity(client->identity, hello);
	client->features = hello->features & HANDSHAKE_FEATURES;
	client->memory_wish = hello->memory_limit;
	client_set_terms(client);
	client->recovery = hello->recovery ? hello->recovery - 1 : (uint32_t)client->terms.recovery;
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
	r = r ? r : deposit_all(client, connection);
	if (r) {
		userlog_event(client->daemon, client->uid, USERLOG_memory, LOG_LEVEL_ERROR,
			"cannot make the shared memory of a session: %s",
			r < 0 ? strerror(-r) : "no memory or no file descriptors left");
		return refuse_new(client, CUDA_ERROR_OUT_OF_MEMORY,
			"the service cannot get shared memory for one more client (memory limit of the "
			"service, or its limit of open files)",
			ret_code, ret_text);
	}
	client->connection = connection;
	connection_set_owner(connection, &handlers, client);
	daemon_keep(domain->daemon);
	client_keep(client);
	client_open(client);
	return 0;
}

/*
 * Its record, and the same session in another life of the daemon
 */

void client_keep(struct client *client)
{
	struct store *store = client->daemon->store;
	const struct request *request = client->request;
	struct kept_client kept = {.features = client->features,
		.memory_wish = client->memory_wish,
		.subject = client->subject,
		.uid = client->uid,
		.pid = client->pid,
		.domain = client->domain->number,
		.window = client->window,
		.recovery = client->recovery,
		.state = client->state,
		.recover = client->recover,
		.opened = client->opened,
		.connection = client->connection_key,
		.process = client->process_key,
		.open = client->open,
		.attach = client->attach,
		.let_go = client->let_go,
		.let_go_to = client->let_go_to,
		.patience_ms = client->patience_ms,
		.asked = client->again.asked,
		.answered = client->answered,
		.crashes = client->crashes,
		.deaths = client->deaths};

	if (!store)
		return;
	kept.client_fd = client->client_fd->key;
	kept.server_fd = client->server_fd->key;
	kept.doorbell = client->doorbell_fd->key;
	memcpy(kept.closes, client->closes, sizeof(kept.closes));
	memcpy(kept.program, client->program, sizeof(kept.program));
	memcpy(kept.identity, client->identity, sizeof(kept.identity));
	for (int i = 0; i < 2; i++)
		chunk_name(client->sinks[i], &kept.sinks[i]);
	if (request) {
		kept.asked = request->client_id;
		kept.request = (struct kept_call){request->sent ? request->worker : 0, request->worker_id};
		kept.request_fd = request->fd ? request->fd->key : 0;
		chunk_name(request->chunk, &kept.chunk);
	}
	client->record = store_put(store, client->record, RECORD_CLIENT, client->number, &kept, sizeof(kept));
}

static void take_kept(struct client *client, const struct kept_client *kept)
{
	client->state = (enum client_state)kept->state;
	client->features = kept->features;
	client->memory_wish = kept->memory_wish;
	client->recovery = kept->recovery;
	client->recovery_set = true;
	client->recover = (enum client_recover)kept->recover;
	client->opened = kept->opened;
	client->connection_key = kept->connection;
	client->process_key = kept->process;
	client->patience_ms = kept->patience_ms;
	client->answered = kept->answered;
	client->crashes = kept->crashes;
	client->deaths = kept->deaths;
	client->adopted = true;
	client->open = kept->open;
	client->attach = kept->attach;
	client->let_go = kept->let_go;
	client->let_go_to = kept->let_go_to;
	memcpy(client->closes, kept->closes, sizeof(client->closes));
	memcpy(client->program, kept->program, sizeof(client->program));
	memcpy(client->identity, kept->identity, sizeof(client->identity));
	client->window = kept->window;
	window_adopt(&client->domain->windows, kept->window);
}

/* Its connection and its process. Return: whether they are there. */
static bool adopt_peer(struct client *client)
{
	struct daemon *daemon = client->daemon;
	int socket = store_take(daemon->store, client->connection_key);
	int process = store_take(daemon->store, client->process_key);

	/* The key of what is not there may be somebody else's from now on. */
	if (process >= 0)
		client->process = watch_new(daemon->loop, process, on_process_gone, client);
	else
		client->process_key = 0;
	if (socket < 0) {
		client->connection_key = 0;
		return false;
	}
	client->connection = connection_new(daemon->loop, socket, VISITOR_QUEUE_MAX, &handlers, client);
	return client->connection;
}

static void take_key(struct shared_fd *shared, struct store *store, uint32_t key)
{
	if (!shared)
		return;
	shared->store = store;
	shared->key = key;
}

static bool adopt_regions(struct client *client, const struct kept_client *kept)
{
	struct store *store = client->daemon->store;
	int client_fd = store_take(store, kept->client_fd), server_fd = store_take(store, kept->server_fd);
	int r = take_regions(client, client_fd, server_fd, store_take(store, kept->doorbell));

	take_key(client->client_fd, store, kept->client_fd);
	take_key(client->server_fd, store, kept->server_fd);
	take_key(client->doorbell_fd, store, kept->doorbell);
	return !r;
}

/* Its executors still know it, and have it closed as any other. Its program sees that its connection is closed. */
static void give_up(struct client *client, bool has_regions)
{
	log_error("session %llu (process %d, %s) cannot be taken over: its descriptors are not there",
		(unsigned long long)client->number, (int)client->pid, client->program);
	if (!has_regions) {
		/* Nobody sees those that it has instead. */
		client->client_fd = shared_fd_unref(client->client_fd);
		client->server_fd = shared_fd_unref(client->server_fd);
		client->doorbell_fd = shared_fd_unref(client->doorbell_fd);
		log_bug_on(make_regions(client) != 0);
	}
	client->given_up = client->state != CLIENT_CLOSING;
	client->state = CLIENT_CLOSING;
}

struct client *client_adopt(struct domain *domain, uint64_t number, const struct kept_client *kept)
{
	const struct client_peer peer = {.uid = (uid_t)kept->uid, .pid = kept->pid, .subject = kept->subject};
	struct client *client = allocate(domain, &peer, number);
	bool has_regions, has_peer;

	log_bug_on(!client);
	take_kept(client, kept);
	client_set_terms(client);
	has_regions = adopt_regions(client, kept);
	has_peer = client->state == CLIENT_CLOSING || adopt_peer(client);
	if (!has_regions || !has_peer)
		give_up(client, has_regions);
	return client;
}
