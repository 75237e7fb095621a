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
#include "server/failover/move.h"
#include "server/failover/probation.h"
#include "server/failover/warm.h"
#include "server/failover/worker.h"
#include "server/log.h"
#include "server/loop/connection.h"
#include "server/loop/shared_fd.h"
#include "server/loop/timer.h"
#include "server/session/check.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/linger.h"
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
	window_give_run(&request->client->domain->windows, request->window, request->windows);
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
		chunk_leave(request->chunk);
		client->request = NULL;
		client->answered = request->client_id;
		client->crashes = 0;
		client_keep(client);
		request_free(request);
		move_look(client);
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

static bool has_named(const struct holdings *holdings, const struct wire_message *message)
{
	switch (message->type) {
	case WIRE_UNLOAD_MODULE:
		return holdings_has_module(holdings, message->symbol.module);
	case WIRE_DROP_GRAPH:
		return holdings_has_graph(holdings, message->graph.graph);
	case WIRE_DROP_ARRAY:
		return holdings_has_array(holdings, message->array.array);
	default:
		return holdings_has_object(holdings, message->object.object);
	}
}

static void drop_named(struct holdings *holdings, const struct wire_message *message)
{
	switch (message->type) {
	case WIRE_UNLOAD_MODULE:
		holdings_drop_module(holdings, message->symbol.module);
		break;
	case WIRE_DROP_GRAPH:
		holdings_drop_graph(holdings, message->graph.graph);
		break;
	case WIRE_DROP_ARRAY:
		holdings_drop_array(holdings, message->array.array);
		break;
	default:
		holdings_drop_object(holdings, message->object.object);
		break;
	}
}

static void drop_range(struct client *client, const struct wire_message *message)
{
	enum wire_type type = message->type == WIRE_UNMAP_MEMORY ? WIRE_MAP_MEMORY : WIRE_MAP_HOST;
	struct holding *entry =
		holdings_find_range(&client->holdings, type, message->range.address, message->range.bytes);
	struct chunk *chunk = NULL;

	if (!entry)
		return;
	if (entry->chunk) {
		chunk = chunk_ref(entry->chunk);
		if (chunk->holders == 1)
			chunk_doom(chunk);
	}
	warm_drop(client, message, chunk);
	holdings_drop_range(&client->holdings, entry);
	chunk_unref(chunk);
}

/* What is not there any more was dropped before the daemon died: standbys of today have not got it. Standbys
 * first: what is recorded, those that are in step know. */
static void drop(struct request *request)
{
	struct client *client = request->client;
	const struct wire_message *message = &request->message;
	struct holding *entry;

	switch (message->type) {
	case WIRE_RELEASE_MEMORY:
		entry = holdings_find_memory(&client->holdings, message->memory.handle);
		if (entry)
			holdings_drop_range(&client->holdings, entry);
		break;
	case WIRE_UNMAP_MEMORY:
	case WIRE_UNMAP_HOST:
		drop_range(client, message);
		break;
	default:
		if (!has_named(&client->holdings, message))
			return;
		warm_drop(client, message, NULL);
		drop_named(&client->holdings, message);
		break;
	}
}

static void keep(struct request *request, const struct wire_reply *reply)
{
	struct client *client = request->client;
	struct holding *entry;
	int r;

	if (holdings_has(&client->holdings, &request->message)) /* the daemon has died since */
		return;
	r = holdings_note(
		&client->holdings, &request->message, &reply->values, request->fd, request->chunk, &entry);
	log_bug_on(r < 0);
	request->windows = 0; /* the holding's now */
	if (!entry)
		return;
	/* Standbys first: what is recorded, those that are in step know. */
	warm_entry(client, entry);
	holdings_keep(&client->holdings, entry);
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

/* Executors know no handles: they map a chunk. It was checked that the handle is there. */
static void resolve_handle(struct request *request)
{
	const struct wire_memory wish = request->message.memory;
	const struct holdings *holdings = &request->client->holdings;
	struct chunk *chunk = holdings_find_memory(holdings, wish.handle)->chunk;

	request->message.type = WIRE_MAP_MEMORY;
	request->message.range =
		(struct wire_range){wish.address, wish.bytes, holdings_find_mapping(holdings, chunk) ? 1 : 0};
	if (!request->chunk)
		request->chunk = chunk_ref(chunk);
}

/* It was checked that the array's memory is a part of one mapping. */
static void find_backing(struct request *request)
{
	struct wire_back_array *wish = &request->message.back_array;
	const struct holding *mapping = holdings_find_address(&request->client->holdings, wish->address);

	wish->offset = wish->address - mapping->range.address;
	wish->span = mapping->range.bytes;
	if (!request->chunk)
		request->chunk = chunk_ref(mapping->chunk);
}

static CUresult take_windows(struct request *request)
{
	struct wire_window *wish = &request->message.window;
	uint32_t count = (uint32_t)(wish->bytes / WINDOW_BYTES);
	uint32_t first = window_take_run(&request->client->domain->windows, count, &wish->free_windows);

	if (first == WINDOW_NONE)
		return CUDA_ERROR_OUT_OF_MEMORY;
	request->window = first;
	request->windows = count;
	wish->address = window_base(first);
	wish->free_windows = (struct wire_u64s){0};
	return CUDA_SUCCESS;
}

/* What the daemon adds to a request before an executor gets it. */
static CUresult complete(struct request *request)
{
	if (request->message.type == WIRE_MAP_HANDLE)
		resolve_handle(request);
	if (request->message.type == WIRE_BACK_ARRAY)
		find_backing(request);
	if (request->message.type == WIRE_RESERVE_WINDOW && !request->windows)
		return take_windows(request);
	return CUDA_SUCCESS;
}

/* An executor that had carried the request out before the daemon died answers for the windows of then. */
static void settle_windows(struct request *request, const struct wire_reply *reply)
{
	struct window_set *set = &request->client->domain->windows;
	struct wire_window *window = &request->message.window;

	if (reply->values.count < 2 || reply->values.at[0] == window->address)
		return;
	window_give_run(set, request->window, request->windows);
	window->address = reply->values.at[0];
	request->window = window_at(window->address);
	window_take_again(set, request->window, request->windows);
}

/* A text that was compiled (executor/load.c): from now on its code is the image, and needs no compiler. */
static void take_code(struct request *request, const struct wire_reply *reply, struct packet *packet)
{
	struct shared_fd *code = shared_fd_new(packet_take_fd(packet, 0));

	if (!code)
		return;
	shared_fd_unref(request->fd);
	request->fd = code;
	request->message.load_module.bytes = reply->values.count > 2 ? reply->values.at[2] : 0;
	request->message.load_module.options = (struct wire_options){0};
}

static void succeed(
	struct request *request, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	const struct message_row *row = message_row(request->message.type);
	struct wire_reply limited;
	uint64_t values[2];

	if (request->message.type == WIRE_RESERVE_WINDOW)
		settle_windows(request, reply);
	if (request->message.type == WIRE_LOAD_MODULE)
		take_code(request, reply, packet);
	if (row->keep == KEEP_IT)
		keep(request, reply);
	else if (row->keep == KEEP_DROP)
		drop(request);
	if (request->message.type == WIRE_UNMAP_HOST && reply->values.count)
		linger_begin(request->client, worker, &request->message, reply->values.at[0]);
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
	if (backend_is_fatal((CUresult)reply->code))
		worker_take_lost(
			worker, reply->code, "a request was answered with the code of a lost context");
	return worker_is_failing(worker);
}

/*
 * Code that cannot be loaded beside what others run
 */

/* How exactly is known when a command began. */
#define SAME_WORK_US 1000000u

static bool is_late(const struct request *request)
{
	return timer_now_us() - request->refused_us >= request->client->daemon->config->load_place_ms * 1000;
}

static void refuse_load(struct request *request)
{
	struct wire_reply *reply = calloc(1, sizeof(*reply));

	log_bug_on(!reply);
	reply->code = CUDA_ERROR_SYSTEM_NOT_READY;
	reply->text = request->refusal ? request->refusal : "";
	log_warning("session %llu (process %d, %s) cannot load its code: %s",
		(unsigned long long)request->client->number, (int)request->client->pid,
		request->client->program, reply->text);
	finish(request, reply);
	free(reply);
}

/* request_advance() comes behind this: the request goes to the executor that its session has then. */
static void on_placed(void *context, int32_t code, const char *text)
{
	struct request *request = context;

	(void)text;
	if (code && domain_serving(request->client->domain) && is_late(request))
		refuse_load(request);
}

/* Why it needs a domain of its own. */
static void describe_runner(
	const struct client *client, const struct wire_u64s *values, char *text, size_t size)
{
	const char *program = "another program";
	const struct client *runner;

	TAILQ_FOREACH (runner, &client->domain->clients, domain_link)
		if (values->count && runner->number == values->at[0])
			program = runner->program;
	snprintf(text, size, "code cannot be loaded beside a kernel of %.80s that runs for %.1f s", program,
		values->count > 1 ? (double)values->at[1] / 1000.0 : 0.0);
}

/* The same work as at the latest refusal, by when it began. Answers are late by what a message takes. */
static bool is_same_work(const struct client_refusal *refusal, uint64_t runner, uint64_t began_us)
{
	uint64_t apart =
		began_us > refusal->began_us ? began_us - refusal->began_us : refusal->began_us - began_us;

	return refusal->since_us && runner == refusal->runner && apart < SAME_WORK_US;
}

/* The first time that this request is refused. A session has load_place_ms beside the same work of somebody
 * else, not for each of its loads. */
static void begin_placing(struct request *request, const struct wire_u64s *values)
{
	struct client_refusal *refusal = &request->client->refusal;
	uint64_t now_us = timer_now_us(), runner = values->count ? values->at[0] : 0;
	uint64_t began_us = now_us - (values->count > 1 ? values->at[1] * 1000 : 0);

	if (!is_same_work(refusal, runner, began_us))
		*refusal = (struct client_refusal){.runner = runner,
			.since_us = now_us,
			.obstacle = refusal->obstacle,
			.stuck = refusal->stuck};
	refusal->began_us = began_us;
	request->refused_us = refusal->since_us;
}

static void tell_obstacle(struct client *client, const char *obstacle)
{
	/* It tries again and again: that is said once. */
	if (client->refusal.obstacle && !strcmp(client->refusal.obstacle, obstacle))
		return;
	client->refusal.obstacle = obstacle;
	log_info("session %llu (process %d, %s) cannot have an executor of its own: %s",
		(unsigned long long)client->number, (int)client->pid, client->program, obstacle);
}

/* The session goes on in an executor of its own, or tries again for a while where that cannot be. When its
 * time is over, a load gets one move more, for what was in the way may be over as well. */
static void place(struct request *request, const struct wire_reply *reply)
{
	struct client *client = request->client;
	uint64_t limit_ms = client->daemon->config->load_place_ms;
	bool is_first = !request->refused_us;
	const char *obstacle;
	char why[160];

	if (is_first)
		begin_placing(request, &reply->values);
	free(request->refusal);
	request->refusal = strdup(reply->text);
	if (!limit_ms || (is_late(request) && !is_first)) {
		refuse_load(request);
		return;
	}
	/* It is with nobody now: another daemon must not wait for this answer again. */
	client_keep(client);
	describe_runner(client, &reply->values, why, sizeof(why));
	obstacle = move_begin(client, MOVE_LOAD, why, limit_ms, on_placed, request);
	if (!obstacle)
		return;
	tell_obstacle(client, obstacle);
	if (is_late(request))
		refuse_load(request);
	else
		request_advance(request);
}

static void on_answer(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct request *request = context;

	request->sent = false;
	if (request->cancelled)
		request_free(request);
	else if (is_void(worker, reply))
		request_advance(request); /* does nothing before there is a next one */
	else if (reply->code == CUDA_ERROR_SYSTEM_NOT_READY)
		place(request, reply);
	else if (reply->code)
		finish(request, reply);
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
	CUresult code = complete(request);
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
	if (!request->cancelled)
		client_keep(request->client);
	else if (request->chunk)
		chunk_doom(request->chunk);
	if (request->cancelled)
		request_free(request);
	else if (!reply || (reply->code == CUDA_ERROR_OUT_OF_MEMORY && request->client->daemon->reclaiming))
		become_thirsty(request);
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
		become_thirsty(request);
		return;
	}
	request->sent = true;
	record_sent(request, daemon->keeper);
	worker_request(daemon->keeper, &message, NULL, 0, on_chunk, request);
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

/* The reply of a request that nobody else answers. */
static void succeed_here(struct request *request, const uint64_t *values, uint32_t count)
{
	const struct message_row *row = message_row(request->message.type);
	struct wire_reply *reply = calloc(1, sizeof(*reply));

	log_bug_on(!reply);
	reply->values = (struct wire_u64s){values, count};
	if (row->keep == KEEP_IT)
		keep(request, reply);
	else if (row->keep == KEEP_DROP)
		drop(request);
	finish(request, reply);
	free(reply);
}

static void export_memory(struct request *request)
{
	const struct wire_memory *wish = &request->message.memory;
	const struct holdings *holdings = &request->client->holdings;
	const struct holding *entry = wish->handle ? holdings_find_memory(holdings, wish->handle)
						   : holdings_find_address(holdings, wish->address);
	uint64_t values[4];

	if (!entry) {
		finish_with(request, CUDA_ERROR_INVALID_VALUE);
		return;
	}
	memcpy(values, entry->chunk->token, sizeof(entry->chunk->token));
	values[2] = entry->range.bytes;
	values[3] = entry->range.address;
	succeed_here(request, values, 4);
}

/* Memory of any session of the same user, whatever executors it has; those of other users never see it. */
static const struct holding *find_exported(const struct client *importer, const uint64_t token[2])
{
	const struct holding *entry = NULL;
	const struct client *client;

	TAILQ_FOREACH (client, &importer->daemon->clients, link) {
		if (client->uid == importer->uid && client->state == CLIENT_SERVED)
			entry = holdings_find_token(&client->holdings, token);
		if (entry)
			break;
	}
	return entry;
}

static bool is_within_limit(const struct client *client, uint64_t bytes)
{
	uint64_t limit = client->daemon->config->memory_limit, held = client->holdings.memory_bytes;

	return !limit || (held <= limit && bytes <= limit - held);
}

static void import_memory(struct request *request)
{
	struct wire_memory *wish = &request->message.memory;
	const struct holding *entry = find_exported(request->client, wish->token);

	if (!entry) {
		finish_with(request, CUDA_ERROR_INVALID_VALUE);
		return;
	}
	if (!is_within_limit(request->client, entry->range.bytes)) {
		finish_with(request, CUDA_ERROR_OUT_OF_MEMORY);
		return;
	}
	wish->bytes = entry->range.bytes;
	request->chunk = chunk_ref(entry->chunk);
	succeed_here(request, &entry->range.bytes, 1);
}

static void serve_here(struct request *request)
{
	switch (request->message.type) {
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
	if (request->thirsty)
		TAILQ_REMOVE(&request->client->daemon->thirsty, request, link);
	request->thirsty = false;
	if (move_holds(request->client))
		return;
	if (probation_waits(request->client)) {
		/* The keeper may just have answered. */
		move_look(request->client);
		return;
	}
	if (route == ROUTE_DAEMON)
		serve_here(request);
	else if (route != ROUTE_ACTIVE && !request->chunk)
		ask_keeper(request);
	else if (route == ROUTE_KEEPER)
		succeed_here(request, NULL, 0);
	else if (worker)
		send_to_active(request, worker);
}

/*
 * Beginning
 */

/* Pinned memory is a file that client and executors map, writable all of them: no seal can be added. */
static int make_host_memory(struct request *request)
{
	uint64_t bytes = request->message.range.bytes;
	int fd = memfd_create("frmps-host", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)bytes) < 0 ||
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
		int error = errno;

		close(fd);
		return -error;
	}
	request->fd = shared_fd_new(fd);
	return request->fd ? 0 : -ENOMEM;
}

/* Under way when the daemon died: what it had then. */
static void request_take_kept(struct request *request)
{
	struct client *client = request->client;

	if (client->again.asked != request->client_id)
		return;
	request->fd = client->again.fd;
	request->chunk = client->again.chunk;
	client->again = (struct client_again){0};
}

/* A page of events that another session of the same user has mapped, whatever executor that is in; NULL if
 * there is none. */
static const struct holding *find_shared_page(const struct client *client, const struct wire_import *wish)
{
	const struct client *owner = daemon_find_client(client->daemon, wish->session);
	const struct holding *entry = NULL;

	if (owner && owner->state == CLIENT_SERVED && owner->uid == client->uid)
		entry = holdings_find_range(&owner->holdings, WIRE_MAP_HOST, wish->source, wish->bytes);
	return entry && (entry->range.flags & WIRE_HOST_EVENTS) ? entry : NULL;
}

/* From here on it is pinned memory like any other, in a file that there is already. */
static bool become_mapping(struct request *request)
{
	const struct wire_import wish = request->message.import;
	const struct holding *entry = request->fd ? NULL : find_shared_page(request->client, &wish);

	if (entry)
		request->fd = shared_fd_ref(entry->fd);
	request->message.type = WIRE_MAP_HOST;
	request->message.range = (struct wire_range){wish.address, wish.bytes, WIRE_HOST_EVENTS};
	return request->fd;
}

static void start(struct client *client, const struct wire_message *message, struct packet *packet)
{
	struct request *request = request_new(client, message, packet);
	int fd = packet_take_fd(packet, 0), r = 0;

	client->request = request;
	client->daemon->counters.requests++;
	connection_pause(client->connection);
	request_take_kept(request);
	if (message->type == WIRE_IMPORT_HOST && !become_mapping(request)) {
		finish_with(request, CUDA_ERROR_INVALID_HANDLE);
		return;
	}
	if (request->fd) {
		if (fd >= 0)
			close(fd);
	} else if (fd >= 0) {
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

/* Whether a success leaves the session a descriptor more. */
static bool takes_fd(const struct wire_message *message)
{
	const struct message_row *row = message_row(message->type);

	return row->keep == KEEP_IT && (row->fds || row->route == ROUTE_CHUNK || row->route == ROUTE_KEEPER ||
					       message->type == WIRE_MAP_HOST);
}

/* Descriptors are the one thing that all users share: a user gets half of them, and an eighth stays for
 * executors, and for whoever comes. */
static bool has_fds(const struct client *client)
{
	const struct daemon *daemon = client->daemon;
	uint64_t own = 0, all = 0, most = daemon->fds_max;
	const struct client *other;

	TAILQ_FOREACH (other, &daemon->clients, link) {
		all += other->holdings.fds;
		own += other->uid == client->uid ? other->holdings.fds : 0;
	}
	return own < most / 2 && all < most - most / 8;
}

void request_begin(struct client *client, const struct wire_message *message, struct packet *packet)
{
	struct check_scope scope = {.window_base = window_base(client->window),
		.device_bytes = WINDOW_DEVICE_BYTES,
		.host_bytes = WINDOW_HOST_BYTES,
		.memory_limit = client->daemon->config->memory_limit,
		.pinned_limit = client->daemon->config->pinned_limit,
		.holdings = &client->holdings};
	struct check_finding finding;
	int r;

	/* What was under way when the daemon died has been checked, and may have been carried out. */
	if (client->again.asked && client->again.asked == message->id) {
		start(client, message, packet);
		return;
	}
	r = check_request(&scope, message, packet, &finding);
	if (r == CHECK_E_BROKEN)
		client_reject(client, finding.reason);
	else if (r == CHECK_E_ANSWER)
		send_code(client, message->id, finding.code);
	else if (takes_fd(message) && !has_fds(client))
		send_code(client, message->id, CUDA_ERROR_OUT_OF_MEMORY);
	else
		start(client, message, packet);
}
