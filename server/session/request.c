// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Requests. See request.h for the path of one.

#include "server/session/request.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/backend/backend.h"
#include "server/config/config.h"
#include "server/failover/warm.h"
#include "server/failover/worker.h"
#include "server/log.h"
#include "server/loop/connection.h"
#include "server/loop/shared_fd.h"
#include "server/session/check.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/message.h"
#include "server/session/client.h"
#include "server/session/window.h"

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
	if (request->thirsty)
		TAILQ_REMOVE(&request->client->daemon->thirsty, request, link);
	shared_fd_unref(request->fd);
	chunk_unref(request->chunk);
	client_unref(request->client);
	free(request);
	return NULL;
}

void request_cancel(struct request *request)
{
	request->client->request = NULL;
	request->cancelled = true;
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

static void send_code(struct client *client, uint64_t id, CUresult code)
{
	struct wire_reply *reply = calloc(1, sizeof(*reply));

	log_bug_on(!reply);
	reply->code = (int32_t)code;
	send_reply(client, id, reply, NULL);
	free(reply);
}

/* The request is over; the client may send its next one. */
static void finish(struct request *request, const struct wire_reply *reply)
{
	struct client *client = client_ref(request->client);
	bool hands_out = request->message.type == WIRE_MAP_HOST && !reply->code;

	send_reply(client, request->client_id, reply, hands_out ? request->fd : NULL);
	/* The client may just have been cut off, and its request with it. */
	if (client->request) {
		client->request = NULL;
		request_free(request);
		connection_resume(client->connection);
	}
	client_unref(client);
}

static void finish_with(struct request *request, CUresult code)
{
	struct wire_reply *reply = calloc(1, sizeof(*reply));

	log_bug_on(!reply);
	reply->code = (int32_t)code;
	finish(request, reply);
	free(reply);
}

/*
 * Success
 */

static void drop(struct request *request)
{
	struct client *client = request->client;
	const struct wire_message *message = &request->message;
	struct holding *entry;
	struct chunk *chunk = NULL;

	if (message->type == WIRE_UNLOAD_MODULE) {
		holdings_drop_module(&client->holdings, message->symbol.module);
	} else {
		entry = holdings_find_range(&client->holdings,
			message->type == WIRE_UNMAP_MEMORY ? WIRE_MAP_MEMORY : WIRE_MAP_HOST,
			message->range.address, message->range.bytes);
		log_bug_on(!entry); /* checked when the request came; one request at a time */
		if (entry->chunk) {
			chunk = chunk_ref(entry->chunk);
			chunk_doom(chunk);
		}
		holdings_drop_range(&client->holdings, entry);
	}
	warm_drop(client, message, chunk);
	chunk_unref(chunk);
}

static void keep(struct request *request, const struct wire_reply *reply)
{
	struct client *client = request->client;
	struct holding *entry;
	int r = holdings_note(
		&client->holdings, &request->message, &reply->values, request->fd, request->chunk, &entry);

	log_bug_on(r < 0);
	if (entry)
		warm_entry(client, entry);
}

/* Free and total memory as this session may see it. */
static void limit_memory(const struct client *client, const struct wire_reply *reply, uint64_t values[2])
{
	uint64_t limit = client->daemon->config->memory_limit, held = client->holdings.memory_bytes;

	values[0] = reply->values.at[0];
	values[1] = reply->values.at[1];
	if (!limit || limit >= values[1])
		return;
	values[1] = limit;
	if (values[0] > limit - (held < limit ? held : limit))
		values[0] = limit - (held < limit ? held : limit);
}

static void succeed(struct request *request, const struct wire_reply *reply)
{
	const struct message_row *row = message_row(request->message.type);
	struct wire_reply limited;
	uint64_t values[2];

	if (row->keep == KEEP_IT)
		keep(request, reply);
	else if (row->keep == KEEP_DROP)
		drop(request);
	if (request->message.type == WIRE_QUERY_MEMORY && reply->values.count >= 2) {
		limit_memory(request->client, reply, values);
		limited = *reply;
		limited.values = (struct wire_u64s){values, 2};
		finish(request, &limited);
	} else {
		finish(request, reply);
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
	if (worker->state != WORKER_CONDEMNED && backend_is_fatal((CUresult)reply->code)) {
		worker->lost = true;
		worker->lost_code = reply->code;
		worker_condemn(worker, "answered a request with the code of a lost context");
	}
	return worker->state == WORKER_CONDEMNED;
}

static void on_answer(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct request *request = context;

	(void)packet;
	request->sent = false;
	if (request->cancelled)
		request_free(request);
	else if (is_void(worker, reply))
		request_advance(request); /* does nothing before there is a next one */
	else if (reply->code)
		finish(request, reply);
	else
		succeed(request, reply);
}

static void send_to_active(struct request *request, struct worker *worker)
{
	struct wire_message message = request->message;
	struct shared_fd *fd = request->chunk ? request->chunk->fd : request->fd;

	message.session = request->client->number;
	request->sent = true;
	worker_request(worker, &message, &fd, fd ? 1 : 0, on_answer, request);
}

static void become_thirsty(struct request *request)
{
	request->thirsty = true;
	TAILQ_INSERT_TAIL(&request->client->daemon->thirsty, request, link);
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

	(void)keeper;
	request->sent = false;
	if (reply && !reply->code)
		take_chunk(request, reply, packet);
	if (request->cancelled)
		request_free(request);
	else if (!reply)
		finish_with(request, CUDA_ERROR_OUT_OF_MEMORY);
	else if (reply->code == CUDA_ERROR_OUT_OF_MEMORY && request->client->daemon->reclaiming)
		become_thirsty(request);
	else if (reply->code || !request->chunk)
		finish_with(request, reply->code ? (CUresult)reply->code : CUDA_ERROR_OUT_OF_MEMORY);
	else
		request_advance(request);
}

static void ask_keeper(struct request *request)
{
	struct daemon *daemon = request->client->daemon;
	struct wire_message message = {
		.type = WIRE_CREATE_CHUNK, .chunk = {.bytes = request->message.range.bytes}};

	if (!daemon->keeper || daemon->keeper->state != WORKER_WARM) {
		finish_with(request, CUDA_ERROR_OUT_OF_MEMORY);
		return;
	}
	request->sent = true;
	worker_request(daemon->keeper, &message, NULL, 0, on_chunk, request);
}

void request_advance(struct request *request)
{
	struct worker *worker = domain_serving(request->client->domain);

	if (request->sent)
		return;
	if (request->thirsty)
		TAILQ_REMOVE(&request->client->daemon->thirsty, request, link);
	request->thirsty = false;
	if (message_row(request->message.type)->route == ROUTE_CHUNK && !request->chunk)
		ask_keeper(request);
	else if (worker)
		send_to_active(request, worker);
}

/*
 * Beginning
 */

/* Pinned memory is a file that client and executors map. */
static int make_host_memory(struct request *request)
{
	uint64_t bytes = request->message.range.bytes;
	int fd = memfd_create("frmps-host", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)bytes) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0) {
		int error = errno;

		close(fd);
		return -error;
	}
	request->fd = shared_fd_new(fd);
	return request->fd ? 0 : -ENOMEM;
}

static void start(struct client *client, const struct wire_message *message, struct packet *packet)
{
	struct request *request = request_new(client, message, packet);
	int fd = packet_take_fd(packet, 0), r = 0;

	client->request = request;
	client->daemon->counters.requests++;
	connection_pause(client->connection);
	if (fd >= 0) {
		request->fd = shared_fd_new(fd);
		r = request->fd ? 0 : -ENOMEM;
	} else if (message->type == WIRE_MAP_HOST) {
		r = make_host_memory(request);
	}
	if (r < 0) {
		log_error("session %llu gets no memory file: %s", (unsigned long long)client->number,
			strerror(-r));
		finish_with(request, CUDA_ERROR_OUT_OF_MEMORY);
		return;
	}
	request_advance(request);
}

void request_begin(struct client *client, const struct wire_message *message, struct packet *packet)
{
	struct check_scope scope = {.window_base = window_base(client->window),
		.device_bytes = WINDOW_DEVICE_BYTES,
		.host_bytes = WINDOW_HOST_BYTES,
		.memory_limit = client->daemon->config->memory_limit,
		.holdings = &client->holdings};
	struct check_finding finding;
	int r = check_request(&scope, message, packet, &finding);

	if (r == CHECK_E_BROKEN)
		client_reject(client, finding.reason);
	else if (r == CHECK_E_ANSWER)
		send_code(client, message->id, finding.code);
	else
		start(client, message, packet);
}
