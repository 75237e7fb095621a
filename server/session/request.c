// Requests: begin, keeper, executor, answer. See request.h for the path of one.

#include "server/session/request.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/backend/backend.h"
#include "server/config/config.h"
#include "server/failover/convict.h"
#include "server/failover/move.h"
#include "server/failover/worker.h"
#include "server/log.h"
#include "server/loop/connection.h"
#include "server/loop/shared_fd.h"
#include "server/session/check.h"
#include "server/session/chunk.h"
#include "server/session/client.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/effect.h"
#include "server/session/handout.h"
#include "server/session/linger.h"
#include "server/session/message.h"
#include "server/session/offender.h"
#include "server/session/placing.h"
#include "server/session/quota.h"
#include "server/session/reclaim.h"
#include "server/session/sharing.h"
#include "server/session/window.h"

/* Executors or keepers, one after the other, that may crash while they have a request: each time everybody waits, and
 * once may be for what somebody else did. */
#define DEATHS_MOST 2u

/*
 * Life
 */

static struct request *request_new(
	struct client *client, const struct wire_message *message, const struct packet *packet)
{
	struct request *request = calloc(1, sizeof(*request) + packet->length);

	log_bug_on(!request);
	request->client = client_ref(client);
	request->client_id = message->id;
	memcpy(request->bytes, packet->bytes, packet->length);
	/* The same bytes were decoded a moment ago. */
	log_bug_on(wire_decode(request->bytes, packet->length, &request->message));
	return request;
}

static struct request *request_free(struct request *request)
{
	reclaim_forget(request);
	effect_forget(request);
	shared_fd_unref(request->fd);
	chunk_unref(request->chunk);
	client_unref(request->client);
	free(request->refusal);
	free(request);
	return NULL;
}

void request_cancel(struct request *request)
{
	request->client->request = NULL;
	request->cancelled = true;
	/* Nobody records it any more. */
	if (request->chunk && !request->chunk->holders)
		chunk_doom(request->chunk);
	if (!request->sent)
		request_free(request);
}

/*
 * Answering
 */

static void send_reply(
	struct client *client, uint64_t id, const struct wire_reply *reply, struct shared_fd *fd)
{
	struct wire_message message = {.type = WIRE_REPLY, .id = id};
	int r;

	message.reply = *reply;
	r = connection_send(client->connection, &message, &fd, fd ? 1 : 0);
	if (r == CONNECTION_E_FULL)
		client_reject(client, "does not read its answers");
	else if (r && r != CONNECTION_E_CLOSED)
		client_reject(client, "an answer could not be sent");
}

/* What comes with the answer. What stays the service's is an open file of its own for the client, which takes an answer
 * without one for an error. */
static struct shared_fd *file_for_client(const struct request *request, const struct wire_reply *reply)
{
	enum wire_type type = request->message.type;

	if (reply->code || !request->fd)
		return NULL;
	if (type == WIRE_MAKE_FILE)
		return shared_fd_ref(request->fd);
	return type == WIRE_MAP_HOST || type == WIRE_LINK_COMPLETE ? shared_fd_new(handout_open(request->fd))
								   : NULL;
}

void request_finish(struct request *request, const struct wire_reply *reply)
{
	struct client *client = client_ref(request->client);
	struct shared_fd *file = file_for_client(request, reply);

	send_reply(client, request->client_id, reply, file);
	shared_fd_unref(file);
	/* The same request comes again with room for its variables. */
	if (reply->code != CUDA_ERROR_NOT_READY)
		uploads_drop(&client->uploads, &request->message);
	/* The client may just have been cut off, and its request with it. */
	if (client->request) {
		chunk_leave(request->chunk);
		client->request = NULL;
		client->answered = request->client_id;
		client->crashes = client->deaths = 0;
		client_keep(client);
		request_free(request);
		move_look(client);
		connection_resume(client->connection);
	}
	client_unref(client);
}

static void finish_with(struct request *request, CUresult code)
{
	const struct wire_reply reply = {.code = (int32_t)code};

	request_finish(request, &reply);
}

/* Free and total memory as this session may see it. */
static void limit_memory(const struct client *client, const struct wire_reply *reply, uint64_t values[2])
{
	uint64_t limit = client->terms.memory_limit, held = client->holdings.memory_bytes;

	values[0] = reply->values.at[0];
	values[1] = reply->values.at[1];
	if (!limit || limit >= values[1])
		return;
	values[1] = limit;
	if (values[0] > limit - (held < limit ? held : limit))
		values[0] = limit - (held < limit ? held : limit);
}

static void succeed(
	struct request *request, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct wire_reply limited;
	uint64_t values[2];

	effect_note(request, reply, packet);
	if (request->message.type == WIRE_UNMAP_HOST && reply->values.count)
		linger_begin(request->client, worker, &request->message, reply->values.at[0]);
	if (request->message.type == WIRE_QUERY_MEMORY && reply->values.count >= 2) {
		limit_memory(request->client, reply, values);
		limited = *reply;
		limited.values = (struct wire_u64s){values, 2};
		request_finish(request, &limited);
	} else {
		request_finish(request, reply);
	}
}

/*
 * Forwarding
 */

/* Whether an answer speaks of a context that is lost, not of the request: the next executor will answer that.
 */
static bool is_void(struct worker *worker, const struct wire_reply *reply)
{
	if (!reply)
		return true;
	if (!reply->code)
		return false;
	if (backend_is_fatal((CUresult)reply->code))
		worker_take_lost(
			worker, reply->code, "a request was answered with the code of a lost context");
	return worker_is_failing(worker);
}

/* What it asks for crashes whoever does it, as far as anybody can tell: it is not asked for once more. */
static bool is_deadly(struct client *client, const struct worker *worker)
{
	return convict_is_crash(worker) && ++client->deaths >= DEATHS_MOST;
}

static void reject_deadly(struct client *client)
{
	offender_note(client->daemon, client);
	client_reject(client, "executors crash at its request");
}

static void on_answer(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct request *request = context;
	/* The session may end with it: so long the request counts as sent. */
	bool lost = !request->cancelled && is_void(worker, reply);

	request->sent = false;
	/* Before the loss is judged. */
	worker->asked |= !reply;
	if (request->cancelled)
		request_free(request);
	else if (!reply && is_deadly(request->client, worker))
		reject_deadly(request->client); /* frees the request */
	else if (lost)
		request_advance(request); /* does nothing before there is a next one */
	else if (reply->code == CUDA_ERROR_SYSTEM_NOT_READY)
		placing_begin(request, reply);
	else if (reply->code)
		request_finish(request, reply);
	else
		succeed(request, worker, reply, packet);
}

/* It is about to be sent as this worker's next request. */
static void record_sent(struct request *request, const struct worker *worker)
{
	request->worker = worker->number;
	request->worker_id = worker->next_request;
	client_keep(request->client);
}

static void send_to_active(struct request *request, struct worker *worker)
{
	CUresult code = effect_prepare(request);
	struct wire_message message = request->message;
	struct shared_fd *fd = request->chunk ? request->chunk->fd : request->fd;

	if (code) {
		finish_with(request, code);
		return;
	}
	message.session = request->client->number;
	request->sent = true;
	record_sent(request, worker);
	worker_request(worker, &message, &fd, fd ? 1 : 0, on_answer, request);
}

static void take_chunk(struct request *request, const struct wire_reply *reply, struct packet *packet)
{
	int fd = packet_take_fd(packet, 0);

	if (fd >= 0 && reply->values.count)
		request->chunk = chunk_new(request->client->daemon, reply->values.at[0], fd);
	else if (fd >= 0)
		close(fd);
}

static void on_chunk(
	void *context, struct worker *keeper, const struct wire_reply *reply, struct packet *packet)
{
	struct request *request = context;

	request->sent = false;
	if (reply && !reply->code)
		take_chunk(request, reply, packet);
	if (!request->cancelled)
		client_keep(request->client);
	else if (request->chunk)
		chunk_doom(request->chunk);
	if (request->cancelled)
		request_free(request);
	else if (!reply && is_deadly(request->client, keeper))
		finish_with(request, CUDA_ERROR_OUT_OF_MEMORY);
	else if (!reply)
		reclaim_await(request);
	else if (reply->code == CUDA_ERROR_OUT_OF_MEMORY && reclaim_hope(request))
		return;
	else if (reply->code || !request->chunk)
		finish_with(request, reply->code ? (CUresult)reply->code : CUDA_ERROR_OUT_OF_MEMORY);
	else
		request_advance(request);
}

static uint64_t chunk_bytes(const struct wire_message *message)
{
	return message->type == WIRE_CREATE_MEMORY ? message->memory.bytes : message->range.bytes;
}

static void ask_keeper(struct request *request)
{
	struct daemon *daemon = request->client->daemon;
	struct wire_message message = {
		.type = WIRE_CREATE_CHUNK, .chunk = {.bytes = chunk_bytes(&request->message)}};

	if (!daemon->keeper || daemon->keeper->state != WORKER_WARM) {
		/* It may have been with one that is dying, which a new daemon finds out when it sends it again. */
		request->sent = false;
		reclaim_await(request);
		return;
	}
	request->sent = true;
	record_sent(request, daemon->keeper);
	worker_request(daemon->keeper, &message, NULL, 0, on_chunk, request);
}

static void forgo(void *context)
{
	struct request *request = context;

	request->sent = false;
	if (request->cancelled)
		request_free(request);
}

void request_forgo_all(struct worker *worker)
{
	worker_forgo(worker, on_answer, forgo);
}

void request_send_again(struct request *request, struct worker *worker)
{
	if (worker->role == ROLE_KEEPER)
		ask_keeper(request);
	else
		send_to_active(request, worker);
}

/*
 * What no executor hears of
 */

static void succeed_here(struct request *request, const uint64_t *values, uint32_t count)
{
	const struct wire_reply reply = {.values = {values, count}};

	effect_note(request, &reply, NULL);
	request_finish(request, &reply);
}

static void export_memory(struct request *request)
{
	uint64_t values[4];
	CUresult code = sharing_export(request->client, &request->message.memory, values);

	if (code)
		finish_with(request, code);
	else
		succeed_here(request, values, 4);
}

static void import_memory(struct request *request)
{
	struct wire_memory *wish = &request->message.memory;
	const struct holding *shared;
	CUresult code = sharing_import(request->client, wish, &shared);

	if (code) {
		finish_with(request, code);
		return;
	}
	wish->bytes = shared->range.bytes;
	request->chunk = chunk_ref(shared->chunk);
	succeed_here(request, &wish->bytes, 1);
}

static void make_file(struct request *request)
{
	struct client *client = request->client;
	uint64_t number;
	struct shared_fd *file = uploads_make(&client->uploads, client->daemon->epoch, &number);

	if (!file) {
		finish_with(request, CUDA_ERROR_OUT_OF_MEMORY);
		return;
	}
	request->fd = shared_fd_ref(file);
	succeed_here(request, &number, 1);
}

static void serve_here(struct request *request)
{
	switch (request->message.type) {
	case WIRE_MAKE_FILE:
		make_file(request);
		break;
	case WIRE_EXPORT_MEMORY:
		export_memory(request);
		break;
	case WIRE_IMPORT_MEMORY:
		import_memory(request);
		break;
	default:
		succeed_here(request, NULL, 0);
		break;
	}
}

void request_advance(struct request *request)
{
	struct worker *worker = domain_serving(request->client->domain);
	enum message_route route = message_row(request->message.type)->route;

	if (request->sent || request->client->daemon->adopting)
		return;
	reclaim_forget(request);
	if (move_holds(request->client))
		return;
	if (route == ROUTE_DAEMON)
		serve_here(request);
	else if (route != ROUTE_ACTIVE && !request->chunk)
		ask_keeper(request);
	else if (route == ROUTE_KEEPER)
		succeed_here(request, NULL, 0);
	else if (request->message.type == WIRE_SET_LIMIT && !request->client->domain->alone)
		placing_begin_limit(request);
	else if (worker && (request->message.type != WIRE_QUERY_MEMORY || !reclaim_defer(request)))
		send_to_active(request, worker);
}

/*
 * Beginning
 */

/* Client and executors map pinned memory, writable all of them: no write seal can be added. The client cannot open a file
 * once more (handout.h), or change its size. */
static int make_host_memory(uint64_t bytes)
{
	int fd = memfd_create("frmps-host", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)bytes) < 0 || fchmod(fd, 0600) < 0 ||
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
		int error = errno;

		close(fd);
		return -error;
	}
	return fd;
}

/* Where an executor writes what it has linked. */
static int make_target(void)
{
	int fd = memfd_create("frmps-linked", MFD_CLOEXEC);

	if (fd >= 0 && fchmod(fd, 0600) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -errno;
}

/* Under way when the daemon died: what it had then. */
static void take_kept(struct request *request)
{
	struct client *client = request->client;

	if (client->again.asked != request->client_id)
		return;
	request->fd = client->again.fd;
	request->chunk = client->again.chunk;
	client->again = (struct client_again){0};
}

/* From here on it is pinned memory like any other, in a file that there is already. */
static bool become_mapping(struct request *request)
{
	const struct wire_import wish = request->message.import;
	const struct holding *entry = request->fd ? NULL : sharing_find_events(request->client, &wish);

	if (entry)
		request->fd = shared_fd_ref(entry->fd);
	request->message.type = WIRE_MAP_HOST;
	request->message.range = (struct wire_range){wish.address, wish.bytes, WIRE_HOST_EVENTS};
	return request->fd;
}

/* The file of what is asked for, where it was not kept from before the daemon died: the client has filled it, or it is
 * made, and counts as the client's. Return: 0 or -errno */
static int take_file(struct request *request)
{
	struct client *client = request->client;
	enum wire_type type = request->message.type;
	struct shared_fd *file = uploads_find(&client->uploads, &request->message);
	int fd;

	if (!request->fd && file)
		request->fd = shared_fd_ref(file);
	if (type != WIRE_MAP_HOST && type != WIRE_LINK_COMPLETE)
		return 0;
	if (!request->fd) {
		fd = type == WIRE_MAP_HOST ? make_host_memory(request->message.range.bytes) : make_target();
		if (fd < 0)
			return fd;
		request->fd = shared_fd_new(fd);
	}
	return request->fd ? handout_add(&client->daemon->handouts, client->uid, request->fd) : -ENOMEM;
}

static void start(struct client *client, const struct wire_message *message, const struct packet *packet)
{
	struct request *request = request_new(client, message, packet);
	int r;

	client->request = request;
	client->daemon->counters.requests++;
	connection_pause(client->connection);
	take_kept(request);
	if (message->type == WIRE_IMPORT_HOST && !become_mapping(request)) {
		finish_with(request, CUDA_ERROR_INVALID_HANDLE);
		return;
	}
	r = take_file(request);
	if (!r && request->fd)
		r = shared_fd_keep(request->fd, client->daemon->store);
	if (r < 0) {
		userlog_event(client->daemon, client->uid, USERLOG_memory, LOG_LEVEL_ERROR,
			"session %llu gets no memory file: %s", (unsigned long long)client->number,
			strerror(-r));
		finish_with(request, CUDA_ERROR_OUT_OF_MEMORY);
		return;
	}
	request_advance(request);
}

static void refuse(struct client *client, const struct wire_message *message, CUresult code)
{
	const struct wire_reply reply = {.code = (int32_t)code};

	uploads_drop(&client->uploads, message);
	send_reply(client, message->id, &reply, NULL);
}

void request_begin(struct client *client, const struct wire_message *message, const struct packet *packet)
{
	struct check_scope scope = {.window_base = window_base(client->window),
		.device_bytes = WINDOW_DEVICE_BYTES,
		.host_bytes = WINDOW_HOST_BYTES,
		.memory_limit = client->terms.memory_limit,
		.pinned_limit = client->terms.pinned_limit,
		.image_limit = client->terms.image_limit,
		.kept_bytes = message->type == WIRE_MAP_HOST
				      ? handouts_bytes(&client->daemon->handouts, client->uid)
				      : 0,
		.holdings = &client->holdings};
	const struct shared_fd *file = uploads_find(&client->uploads, message);
	struct check_finding finding;
	int r;

	/* What was under way when the daemon died has been checked, and may have been carried out. */
	if (client->again.asked && client->again.asked == message->id) {
		start(client, message, packet);
		return;
	}
	r = check_request(&scope, message, file ? file->fd : -1, &finding);
	if (r == CHECK_E_BROKEN)
		client_reject(client, finding.reason);
	else if (r == CHECK_E_ANSWER)
		refuse(client, message, finding.code);
	else if (!quota_allows(client, message))
		refuse(client, message, CUDA_ERROR_OUT_OF_MEMORY);
	else
		start(client, message, packet);
}
