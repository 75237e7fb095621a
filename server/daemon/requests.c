// Requests: begin, keeper, compiler, executor, answer. See request.h for the path of a request.

#include "server/daemon/requests.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/backend/backend.h"
#include "server/bytes.h"
#include "server/config/config.h"
#include "server/daemon/effect.h"
#include "server/daemon/life.h"
#include "server/log.h"
#include "server/loop/connection.h"
#include "server/loop/shared_fd.h"
#include "server/loop/timer.h"
#include "server/resource/check.h"
#include "server/resource/resource.h"
#include "server/session/chunk.h"
#include "server/daemon/compiling.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/due.h"
#include "server/session/export.h"
#include "server/session/guarantee.h"
#include "server/session/handout.h"
#include "server/daemon/lending.h"
#include "server/daemon/limit.h"
#include "server/session/unpinning.h"
#include "server/session/message.h"
#include "server/session/fault_history.h"
#include "server/daemon/quota.h"
#include "server/session/reclaim.h"
#include "server/session/session.h"
#include "server/daemon/sharing.h"
#include "server/session/upload.h"
#include "server/session/userlog.h"
#include "server/session/window.h"
#include "server/standby/move.h"
#include "server/standby/stash.h"
#include "server/standby/swap.h"
#include "server/worker/words.h"
#include "server/worker/worker.h"

/* Executors or keepers, one after the other, that may crash while they have a request: each crash
 * makes all programs wait, and a single crash may have another program's fault as its cause. */
#define DEATHS_MOST 2u

/*
 * Life
 */

static struct request *request_new(
	struct session *session, const struct wire_message *message, const struct packet *packet)
{
	struct request *request = calloc(1, sizeof(*request) + packet->length);

	log_bug_on(!request);
	request->session = session_ref(session);
	request->session_id = message->id;
	memcpy(request->bytes, packet->bytes, packet->length);
	/* The same bytes were decoded a moment ago. */
	log_bug_on(wire_decode(request->bytes, packet->length, &request->message));
	return request;
}

static struct request *request_free(struct request *request)
{
	reclaim_forget(request);
	effect_forget(request);
	compiling_forget(request);
	lending_forget(request);
	shared_fd_unref(request->fd);
	chunk_unref(request->chunk);
	session_unref(request->session);
	free(request->log);
	free(request);
	return NULL;
}

void request_cancel(struct request *request)
{
	request->session->request = NULL;
	/* No holding will record the chunk. */
	if (request->chunk && !request->chunk->holders)
		chunk_doom(request->chunk);
	if (request->place == REQUEST_AT_WORKER)
		request->place = REQUEST_CANCELLED;
	else
		request_free(request);
}

/*
 * Answering
 */

static void send_reply(
	struct session *session, uint64_t id, const struct wire_reply *reply, struct shared_fd *fd)
{
	struct wire_message message = {.type = WIRE_REPLY, .id = id};
	int r;

	message.reply = *reply;
	r = connection_send(session->connection, &message, &fd, fd ? 1 : 0);
	if (r == CONNECTION_E_FULL)
		session_reject(session, "does not read its answers");
	else if (r && r != CONNECTION_E_CLOSED)
		session_reject(session, "an answer could not be sent");
}

/* The file of the request: for a mapping with a handle, the handle's. */
static struct shared_fd *file_of(const struct request *request)
{
	return chunk_is_host(request->chunk) && request->message.type == WIRE_MAP_HOST ? request->chunk->fd
										       : request->fd;
}

/* The descriptor that comes with the answer. For a file that stays the service's, the program gets
 * an open file of its own; the program takes an answer without descriptor for an error. None comes
 * for a program's own file. */
static struct shared_fd *file_for_session(const struct request *request, const struct wire_reply *reply)
{
	enum wire_type type = request->message.type;

	struct shared_fd *fd = file_of(request);

	if (reply->code || !fd || fd->is_programs)
		return NULL;
	if (type == WIRE_MAKE_FILE || type == WIRE_TAKE_FILE)
		return shared_fd_ref(fd);
	return type == WIRE_MAP_HOST || type == WIRE_LINK_COMPLETE || type == WIRE_EXPORT_MEMORY ||
			       (type == WIRE_LOAD_MODULE && request->code_bytes)
		       ? shared_fd_new(handout_open(fd))
		       : NULL;
}

/* Adds the compiler's log to the final answer, unless there is a worse error. */
static struct wire_reply with_log(const struct request *request, const struct wire_reply *reply)
{
	struct wire_reply all = *reply;

	if (request->log && !(all.text && all.text[0]))
		all.text = request->log;
	return all;
}

/* The same request comes again with room for its variables. */
static void keep_code(struct request *request)
{
	if (!request->code_bytes)
		return;
	uploads_put_code(&request->session->uploads, &request->message,
		(struct compiled){shared_fd_ref(request->fd), request->code_bytes, request->log});
	request->log = NULL;
}

void request_finish(struct request *request, const struct wire_reply *reply)
{
	struct session *session = session_ref(request->session);
	struct shared_fd *file = file_for_session(request, reply);
	const struct wire_reply all = with_log(request, reply);

	request->place = REQUEST_ANSWERED;
	send_reply(session, request->session_id, &all, file);
	shared_fd_unref(file);
	if (!reply->code && message_is_kept(request->message.type))
		session->refused_limit = NULL;
	if (reply->code == CUDA_ERROR_NOT_READY)
		keep_code(request);
	else
		uploads_drop(&session->uploads, &request->message);
	/* The program may just have been disconnected, and its request freed. */
	if (session->request)
		due_answer(session, SESSION_ANSWER_REPLY);
	session_unref(session);
}

void request_answered(struct session *session)
{
	struct request *request = session->request;

	/* The session has ended. */
	if (!request)
		return;
	chunk_leave(request->chunk);
	session->request = NULL;
	session->answered = request->session_id;
	session->asked_us = timer_now_us();
	session->crashes = session->deaths = 0;
	session_changed(session);
	session_ref(session);
	request_free(request);
	move_look(session);
	session_read_next(session);
	session_unref(session);
}

static void finish_with(struct request *request, CUresult code)
{
	const struct wire_reply reply = {.code = (int32_t)code};

	request_finish(request, &reply);
}

/* Free and total memory as this session may see them. */
static void limit_memory(const struct session *session, const struct wire_reply *reply, uint64_t values[2])
{
	uint64_t limit = session->terms.memory_limit, held = session->holdings.memory_bytes;
	uint64_t room = guarantee_room(session);

	values[0] = reply->values.at[0] + stash_bytes(session->daemon);
	values[1] = terms_lower(reply->values.at[1], guarantee_device_bytes(session->daemon));
	if (values[0] > room)
		values[0] = room;
	values[0] += swap_spare(session);
	if (values[0] > values[1])
		values[0] = values[1];
	if (!limit || limit >= values[1])
		return;
	values[1] = limit;
	if (values[0] > limit - (held < limit ? held : limit))
		values[0] = limit - (held < limit ? held : limit);
}

static void succeed(struct request *request, struct worker *worker, const struct wire_reply *reply)
{
	struct wire_reply limited;
	uint64_t values[2];

	effect_note(request, reply);
	if (request->message.type == WIRE_UNMAP_HOST && reply->values.count)
		unpinning_begin(request->session, worker, &request->message, reply->values.at[0]);
	if (request->message.type == WIRE_QUERY_MEMORY && reply->values.count >= 2) {
		limit_memory(request->session, reply, values);
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

/* True if an answer is about a lost context, not about the request: then the next executor answers
 * the request. After a hand-over, the next executor serves already, but does not have the
 * result. */
static bool is_void(const struct request *request, struct worker *worker, const struct wire_reply *reply)
{
	if (!reply)
		return true;
	if (!reply->code)
		return worker != request->session->domain->active;
	if (backend_is_fatal((CUresult)reply->code))
		worker_take_lost(
			worker, reply->code, "a request was answered with the code of a lost context");
	return domain_worker_is_failing(worker);
}

/* True if the request seems to crash each worker that executes it: do not send it again. */
static bool is_deadly(struct session *session, const struct worker *worker)
{
	return words_is_unexplained(worker) && ++session->deaths >= DEATHS_MOST;
}

static void reject_deadly(struct session *session)
{
	fault_history_note(session->daemon, session);
	session_reject(session, "executors crash at its request");
}

/* Counts as a crash: the program of the request may be the cause. Return: true if the answer is
 * flawed */
static bool is_flawed(const struct request *request, struct worker *worker, const struct wire_reply *reply,
	const struct packet *packet)
{
	const char *flaw = resource_flaw(request, reply, packet);

	if (flaw)
		worker_terminate(worker, flaw);
	return flaw;
}

/* Executors take code alone, and say so. */
static bool is_text(const struct request *request, const struct wire_reply *reply)
{
	return request->message.type == WIRE_LOAD_MODULE && !request->code_bytes &&
	       reply->code == CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
}

static void become_text(struct request *request)
{
	request->is_text = true;
	request_advance(request);
}

static void become_code(struct request *request, const struct compiled *code)
{
	struct wire_load_module *wish = &request->message.load_module;

	shared_fd_unref(request->fd);
	request->fd = code->fd;
	free(request->log);
	request->log = code->log;
	request->code_bytes = wish->bytes = code->bytes;
	/* The compiler has used the options. */
	wish->options = (struct wire_options){0};
	request->is_text = false;
}

void request_compiled(struct request *request, const struct compiled *code)
{
	become_code(request, code);
	request_advance(request);
}

static void on_answer(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct request *request = context;
	/* These checks may end the session, and with the session the request. */
	bool lost = request->place == REQUEST_AT_WORKER && is_void(request, worker, reply);
	bool flawed =
		request->place == REQUEST_AT_WORKER && !lost && is_flawed(request, worker, reply, packet);

	/* Before the loss is judged. */
	worker->asked |= !reply;
	if (request->place == REQUEST_CANCELLED) {
		request_free(request);
		return;
	}
	request->place = REQUEST_HERE;
	if (flawed ? ++request->session->deaths >= DEATHS_MOST
		   : !reply && is_deadly(request->session, worker))
		reject_deadly(request->session); /* frees the request */
	else if (flawed)
		request_advance(request);
	else if (lost)
		request_advance(request); /* does nothing without a next executor */
	else if (is_text(request, reply))
		become_text(request);
	else if (reply->code)
		request_finish(request, reply);
	else
		succeed(request, worker, reply);
}

/* Call before the request goes to this worker as its next. */
static void be_sent(struct request *request, const struct worker *worker)
{
	request->place = REQUEST_AT_WORKER;
	request->worker = worker->number;
	request->worker_id = worker->next_request;
	session_changed(request->session);
}

/* No worker has the request now: the next life of the daemon must not wait for an answer again that
 * this one has taken. */
static void be_nowhere(struct request *request)
{
	request->place = REQUEST_HERE;
	request->worker = 0;
	session_changed(request->session);
}

static void send_to_active(struct request *request, struct worker *worker)
{
	CUresult code = resource_prepare(request);
	struct wire_message message = request->message;
	struct shared_fd *fd = request->chunk ? request->chunk->fd : request->fd;

	if (code) {
		finish_with(request, code);
		return;
	}
	message.session = request->session->number;
	be_sent(request, worker);
	worker_request(worker, &message, &fd, fd ? 1 : 0, on_answer, request);
}

static void take_chunk(struct request *request, const struct wire_reply *reply, struct packet *packet)
{
	int fd = packet_take_fd(packet, 0);

	if (reply->values.count)
		request->chunk = chunk_new(request->session->daemon, reply->values.at[0], fd);
	else if (fd >= 0)
		close(fd);
}

/* Return: whether the request waits for somebody's memory. */
static bool displace_for(struct request *request)
{
	struct session *session = request->session;
	uint64_t wait_ms = swap_make_room(
		session, guarantee_wish(session, &request->message), request->refused_memory_us);

	if (wait_ms)
		reclaim_await_for(request, wait_ms);
	return wait_ms;
}

/* Return: whether there will be more memory. */
static bool evict_for(struct request *request)
{
	const struct session *session = request->session;
	uint64_t wish = guarantee_wish(session, &request->message);
	struct session *victim;
	char reason[200];

	/* Unheld memory goes first. */
	if (guarantee_covers(session, wish) && exports_release_one(&session->daemon->exports)) {
		request->refused_memory_us = 0;
		return reclaim_hope(request);
	}
	victim = guarantee_victim(session, wish);
	if (!victim)
		return false;
	snprintf(reason, sizeof(reason),
		"its device memory, %s, is needed for what is guaranteed to session %llu (process %d)",
		BYTES_OF(victim->holdings.memory_bytes), (unsigned long long)session->number,
		(int)session->pid);
	log_warning("session %llu (process %d, %s) is evicted: %s", (unsigned long long)victim->number,
		(int)victim->pid, victim->program, reason);
	session->daemon->counters.sessions_evicted++;
	session_terminate(victim, reason);
	/* This is another wait. */
	request->refused_memory_us = 0;
	return reclaim_hope(request);
}

/* The device has none. Return: whether the request waits for some */
static bool may_get_more(struct request *request)
{
	stash_give_back(request->session->daemon);
	return reclaim_hope(request) || displace_for(request) || evict_for(request);
}

static void on_chunk(
	void *context, struct worker *keeper, const struct wire_reply *reply, struct packet *packet)
{
	struct request *request = context;

	if (reply && !reply->code)
		take_chunk(request, reply, packet);
	if (request->place == REQUEST_CANCELLED) {
		if (request->chunk)
			chunk_doom(request->chunk);
		request_free(request);
		return;
	}
	be_nowhere(request);
	if (!reply && is_deadly(request->session, keeper))
		finish_with(request, CUDA_ERROR_OUT_OF_MEMORY);
	else if (!reply)
		reclaim_await(request);
	else if (reply->code == CUDA_ERROR_OUT_OF_MEMORY && may_get_more(request))
		return;
	else if (reply->code || !request->chunk)
		finish_with(request, reply->code ? (CUresult)reply->code : CUDA_ERROR_OUT_OF_MEMORY);
	else
		request_advance(request);
}

static void ask_keeper(struct request *request)
{
	struct daemon *daemon = request->session->daemon;
	struct wire_message message = {.type = WIRE_CREATE_CHUNK,
		.chunk = {.bytes = guarantee_wish(request->session, &request->message)}};

	if (!daemon->keeper || daemon->keeper->state != WORKER_WARM) {
		/* The request may have been with a dying keeper, which a new daemon notices when it
		 * repeats the request. */
		be_nowhere(request);
		reclaim_await(request);
		return;
	}
	be_sent(request, daemon->keeper);
	worker_request(daemon->keeper, &message, NULL, 0, on_chunk, request);
}

/* Also makes room for memory that is reserved for others, or that is not the device's. */
static void get_chunk(struct request *request)
{
	stash_give_way(request->session->daemon);
	if (guarantee_fits(request->session))
		ask_keeper(request);
	else if (!may_get_more(request))
		finish_with(request, CUDA_ERROR_OUT_OF_MEMORY);
}

void request_send_again(struct request *request, struct worker *worker)
{
	if (worker->role == ROLE_KEEPER)
		ask_keeper(request);
	else
		send_to_active(request, worker);
}

/*
 * Requests that no executor gets
 */

static void succeed_here(struct request *request, const uint64_t *values, uint32_t count)
{
	const struct wire_reply reply = {.values = {values, count}};

	effect_note(request, &reply);
	request_finish(request, &reply);
}

static void export_memory(struct request *request)
{
	const struct wire_memory *wish = &request->message.memory;
	struct shared_fd *file;
	uint64_t values[4];
	struct chunk *chunk;
	CUresult code = sharing_export(request->session, wish, values, &chunk);

	if (!code && wish->handle) {
		file = exports_file(request->session, chunk, values[2]);
		request->fd = file ? shared_fd_ref(file) : NULL;
		code = file ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (code)
		finish_with(request, code);
	else
		succeed_here(request, values, 4);
}

/* The request has the memory. */
static void import_chunk(struct request *request)
{
	const uint64_t values[2] = {request->message.memory.bytes, chunk_is_host(request->chunk)};
	const struct wire_reply reply = {.values = {values, 2}};

	effect_note(request, &reply);
	exports_claim(request->chunk);
	request_finish(request, &reply);
}

/* Another device's daemon has answered: what has happened to the session meanwhile may go first. */
static void on_borrowed(struct request *request, CUresult code, struct chunk *chunk, uint64_t bytes)
{
	request->chunk = chunk;
	request->message.memory.bytes = bytes;
	if (code)
		finish_with(request, code);
	else
		request_advance(request);
}

static void import_memory(struct request *request)
{
	struct wire_memory *wish = &request->message.memory;
	struct session *session = request->session;
	struct chunk *chunk;
	CUresult code = CUDA_SUCCESS;

	if (!request->chunk) {
		code = sharing_import(session, wish, &chunk, &wish->bytes);
		if (code == CUDA_ERROR_INVALID_VALUE && lending_may_help(session->daemon, wish->token)) {
			lending_borrow(request, on_borrowed);
			return;
		}
		request->chunk = code ? NULL : chunk_ref(chunk);
	}
	/* The memory is another program's, and away: the request is tried again when it is back. */
	if (code == CUDA_ERROR_NOT_READY) {
		reclaim_await(request);
		return;
	}
	/* The daemon that lends memory counts and frees it. */
	if (!code && chunk_is_host(request->chunk) && !request->chunk->lease &&
		handout_add(&session->daemon->handouts, session->owner, request->chunk->fd) < 0)
		code = CUDA_ERROR_OUT_OF_MEMORY;
	if (code)
		finish_with(request, code);
	else
		import_chunk(request);
}

static bool is_host_memory(const struct wire_message *message)
{
	return message->type == WIRE_CREATE_MEMORY && message->memory.host;
}

/* The file exists, and belongs to the chunk from here on. */
static void create_host_memory(struct request *request)
{
	request->chunk = chunk_new_host(request->session->daemon, request->fd, 0);
	request->fd = shared_fd_unref(request->fd);
	succeed_here(request, NULL, 0);
}

static void make_file(struct request *request)
{
	struct session *session = request->session;
	uint64_t number;
	struct shared_fd *file = uploads_make(&session->uploads, session->daemon->crew.epoch, &number);

	if (!file) {
		finish_with(request, CUDA_ERROR_OUT_OF_MEMORY);
		return;
	}
	request->fd = shared_fd_ref(file);
	succeed_here(request, &number, 1);
}

/* The answer has the socket for the file. */
static void take_programs_file(struct request *request)
{
	struct session *session = request->session;
	uint64_t number;
	int socket;

	if (uploads_take(&session->uploads, session->daemon->loop, session->daemon->crew.epoch,
		    session->owner, &number, &socket))
		request->fd = shared_fd_new(socket);
	if (request->fd)
		succeed_here(request, &number, 1);
	else
		finish_with(request, CUDA_ERROR_OUT_OF_MEMORY);
}

static void serve_here(struct request *request)
{
	switch (request->message.type) {
	case WIRE_TAKE_FILE:
		take_programs_file(request);
		break;
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

/* True if freed pinned memory is still pinned at the requested addresses: the request waits for the
 * end of that. */
static bool awaits_unpinning(const struct request *request)
{
	const struct wire_message *message = &request->message;

	if (message->type == WIRE_MAP_HANDLE)
		return unpinning_touches(request->session, message->memory.address, message->memory.bytes);
	return message->type == WIRE_MAP_HOST &&
	       unpinning_touches(request->session, message->range.address, message->range.bytes);
}

void request_advance(struct request *request)
{
	struct worker *worker = domain_serving(request->session->domain);
	enum message_route route = message_row(request->message.type)->route;

	if (request->place != REQUEST_HERE || request->session->daemon->adopting)
		return;
	be_nowhere(request);
	reclaim_forget(request);
	if ((!daemon_offers_device(request->session->daemon) || request->session->departure) &&
		!request_is_under_way(request))
		return;
	if (move_holds(request->session) || swap_holds(request->session))
		return;
	if (route == ROUTE_DAEMON)
		serve_here(request);
	else if (route == ROUTE_COMPILER || request->is_text)
		compiling_begin(request);
	else if (is_host_memory(&request->message) && !request->chunk)
		create_host_memory(request);
	else if (route != ROUTE_ACTIVE && !request->chunk)
		get_chunk(request);
	else if (route == ROUTE_KEEPER)
		succeed_here(request, NULL, 0);
	else if (request->message.type == WIRE_SET_LIMIT && !domain_is_alone(request->session->domain))
		limit_begin(request);
	else if (worker && !awaits_unpinning(request) &&
		 (request->message.type != WIRE_QUERY_MEMORY || !reclaim_defer(request)))
		send_to_active(request, worker);
}

void requests_retry(struct daemon *daemon)
{
	uint64_t latest = daemon->reclaim.latest;
	struct request *request;

	while ((request = reclaim_first(daemon, latest))) {
		reclaim_forget(request);
		request_advance(request);
	}
}

/*
 * Beginning
 */

/* The program and executors all map pinned memory writable: no write seal is possible. The program
 * cannot open the file once more (handout.h), or change its size. */
static int make_host_memory(uint64_t bytes)
{
	int fd = memfd_create(WIRE_HOST_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);

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

/* A file in which a compiler writes the linked code. */
static int make_target(void)
{
	int fd = memfd_create("frmps-linked", MFD_CLOEXEC);

	if (fd >= 0 && fchmod(fd, 0600) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -errno;
}

/* Restores the state of a request that was under way when the daemon died. */
static void take_kept(struct request *request)
{
	struct session *session = request->session;

	if (session->again.asked != request->session_id)
		return;
	request->chunk = session->again.chunk;
	if (session->again.code_bytes)
		become_code(request, &(struct compiled){session->again.fd, session->again.code_bytes, NULL});
	else
		request->fd = session->again.fd;
	request->window = session->again.window;
	session->again = (struct session_again){0};
}

/* From here on the request is for pinned memory like any other, with an existing file. */
static bool become_mapping(struct request *request)
{
	const struct wire_import wish = request->message.import;
	const struct holding *entry = request->fd ? NULL : sharing_find_events(request->session, &wish);

	if (entry)
		request->fd = shared_fd_ref(entry->fd);
	request->message.type = WIRE_MAP_HOST;
	request->message.range =
		(struct wire_range){.address = wish.address, .bytes = wish.bytes, .flags = WIRE_HOST_EVENTS};
	return request->fd;
}

/* The memory of the mapping is a file of the program's own. */
static bool is_of_program(const struct wire_message *message)
{
	return message->type == WIRE_MAP_HOST && message->range.file;
}

/* Also a file that an earlier life of the daemon has saved. Return: 0 or -ENOENT */
static int take_as_programs(struct request *request)
{
	if (!request->fd)
		return -ENOENT;
	request->fd->is_programs = true;
	request->message.range.flags |= WIRE_HOST_FILE;
	return 0;
}

static bool makes_file(const struct wire_message *message)
{
	return message->type == WIRE_MAP_HOST || message->type == WIRE_LINK_COMPLETE ||
	       is_host_memory(message);
}

static int make_file_for(const struct wire_message *message)
{
	if (message->type == WIRE_LINK_COMPLETE)
		return make_target();
	return make_host_memory(is_host_memory(message) ? message->memory.bytes : message->range.bytes);
}

/* The file for the request, unless an earlier life of the daemon saved it: the program has filled
 * the file, or it is the program's own, or the daemon makes it, and counts it for the program.
 * Return: 0 or -errno */
static int find_file(struct request *request)
{
	struct session *session = request->session;
	struct shared_fd *file = uploads_find(&session->uploads, &request->message);
	struct compiled code = uploads_take_code(&session->uploads, &request->message);
	int fd;

	if (code.fd)
		become_code(request, &code);
	if (!request->fd && file)
		request->fd = shared_fd_ref(file);
	if (!makes_file(&request->message))
		return 0;
	if (is_of_program(&request->message))
		return take_as_programs(request);
	if (!request->fd) {
		fd = make_file_for(&request->message);
		if (fd < 0)
			return fd;
		request->fd = shared_fd_new(fd);
	}
	return request->fd ? handout_add(&session->daemon->handouts, session->owner, request->fd) : -ENOMEM;
}

/* For what an image unpacks to, or its text is compiled to. */
static uint64_t image_room(const struct session *session, uint64_t image_bytes)
{
	uint64_t limit = session->terms.image_limit, used = session->holdings.image_bytes + image_bytes;

	return !limit ? UINT64_MAX : limit > used ? limit - used : 0;
}

static void start(struct session *session, const struct wire_message *message, const struct packet *packet)
{
	struct request *request = request_new(session, message, packet);
	int r;

	session->request = request;
	session->requests++;
	session_read_next(session);
	take_kept(request);
	if (message->type == WIRE_LOAD_MODULE)
		request->message.load_module.room = image_room(session, message->load_module.bytes);
	if (message->type == WIRE_IMPORT_HOST && !become_mapping(request)) {
		finish_with(request, CUDA_ERROR_INVALID_HANDLE);
		return;
	}
	r = find_file(request);
	if (!r && request->fd)
		r = shared_fd_deposit(request->fd, session->daemon->store);
	if (r < 0) {
		userlog_event(session->daemon, session->uid, USERLOG_memory, LOG_LEVEL_ERROR,
			"session %llu gets no memory file: %s", (unsigned long long)session->number,
			strerror(-r));
		finish_with(request, CUDA_ERROR_OUT_OF_MEMORY);
		return;
	}
	request_advance(request);
}

static void refuse(struct session *session, const struct wire_message *message, CUresult code)
{
	const struct wire_reply reply = {.code = (int32_t)code};

	uploads_drop(&session->uploads, message);
	send_reply(session, message->id, &reply, NULL);
}

static void answer_at_once(
	struct session *session, const struct wire_message *message, const struct check_finding *finding)
{
	if (finding->limit)
		quota_note_limit(session, finding->limit, finding->bytes);
	refuse(session, message, finding->code);
}

/* Pinned memory that counts although it was freed. */
static uint64_t kept_bytes(const struct session *session, const struct wire_message *message)
{
	struct handouts *handouts = &session->daemon->handouts;

	if (message->type != WIRE_MAP_HOST && !is_host_memory(message))
		return 0;
	handouts_look(handouts, session->owner);
	return handouts_bytes(handouts, session->owner);
}

void request_begin(struct session *session, const struct wire_message *message, const struct packet *packet)
{
	const struct shared_fd *file = uploads_find(&session->uploads, message);
	struct check check = {.window_base = session->window,
		.device_bytes = WINDOW_DEVICE_BYTES,
		.host_bytes = WINDOW_HOST_BYTES,
		.memory_limit = session->terms.memory_limit,
		.pinned_limit = session_pinned_limit(session),
		.image_limit = session->terms.image_limit,
		.kept_bytes = kept_bytes(session, message),
		.holdings = &session->holdings,
		.file = file ? file->fd : -1};
	const uint64_t wish = guarantee_wish(session, message);
	int r;

	session->asked_us = timer_now_us();
	/* A request that was under way when the daemon died has been checked, and may have been
	 * executed. */
	if (session->again.asked && session->again.asked == message->id) {
		start(session, message, packet);
		return;
	}
	r = check_request(&check, message);
	if (r == CHECK_E_BROKEN)
		session_reject(session, check.finding.reason);
	else if (r == CHECK_E_ANSWER)
		answer_at_once(session, message, &check.finding);
	else if (!quota_allows(session, message))
		refuse(session, message, CUDA_ERROR_OUT_OF_MEMORY);
	else if (wish && wish > guarantee_room(session) &&
		 wish - guarantee_room(session) > swap_spare(session))
		answer_at_once(session, message,
			&(struct check_finding){.code = CUDA_ERROR_OUT_OF_MEMORY,
				.limit = guarantee_reason(session),
				.bytes = wish});
	else
		start(session, message, packet);
}
