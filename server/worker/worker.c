// The daemon's view of children: their connection, their unanswered requests, their end. See
// worker.h for the states.

#include "server/worker/worker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/holder/store.h"
#include "server/log.h"
#include "server/loop/connection.h"
#include "server/loop/shared_fd.h"
#include "server/loop/timer.h"
#include "server/worker/crew.h"
#include "server/worker/output.h"
#include "server/worker/overdue.h"
#include "server/worker/reap.h"
#include "server/worker/record.h"
#include "server/worker/supervise.h"
#include "server/worker/words.h"

/* Warming a standby sends thousands of small packets without waiting: they wait here. */
#define WORKER_QUEUE_MAX (1u << 20)

struct worker_pending {
	TAILQ_ENTRY(worker_pending) link;
	uint64_t id;
	worker_reply_fn *reply;
	void *context;
};

const char *worker_state_name(enum worker_state state)
{
	static const char *const names[] = {"starting", "warming", "warm", "active", "condemned"};

	return names[state];
}

static const struct worker_events *events_of(const struct worker *worker)
{
	return worker->crew->events;
}

static struct worker_pending *find_pending(struct worker *worker, uint64_t id)
{
	struct worker_pending *pending;

	TAILQ_FOREACH (pending, &worker->pending, link)
		if (pending->id == id)
			return pending;
	return NULL;
}

static void take_reply(struct worker *worker, const struct wire_message *message, struct packet *packet)
{
	struct worker_pending *pending = find_pending(worker, message->id);

	if (!pending && message->id < worker->first_request) {
		/* An earlier life of the daemon sent the request, and has acted on its answer or
		 * did not need to. */
		events_of(worker)->unclaimed(worker, &message->reply);
		return;
	}
	if (!pending) {
		worker_condemn(worker, "it answered a request that nobody had made");
		return;
	}
	overdue_heard(worker);
	TAILQ_REMOVE(&worker->pending, pending, link);
	pending->reply(pending->context, worker, &message->reply, packet);
	free(pending);
}

void worker_take_lost(struct worker *worker, int32_t code, const char *text)
{
	if (worker->lost || worker->state == WORKER_CONDEMNED)
		return;
	worker->lost = true;
	worker->lost_code = code;
	snprintf(worker->lost_text, sizeof(worker->lost_text), "%s", text);
	events_of(worker)->lost(worker, text);
}

bool worker_owes(const struct worker *worker, const void *context)
{
	const struct worker_pending *pending;

	TAILQ_FOREACH (pending, &worker->pending, link)
		if (pending->context == context)
			return true;
	return false;
}

/* Some messages only an executor may send. */
static bool is_its_to_send(const struct worker *worker, enum wire_type type)
{
	switch (type) {
	case WIRE_SUSPECT:
	case WIRE_FAULT:
	case WIRE_STRAY:
	case WIRE_OFFENCE:
	case WIRE_WANTED:
		return worker->domain;
	default:
		return true;
	}
}

static void on_message(void *context, const struct wire_message *message, struct packet *packet)
{
	struct worker *worker = context;
	const struct worker_events *events = events_of(worker);

	if (!is_its_to_send(worker, message->type)) {
		worker_condemn(worker, "it sent a message that it may not send");
		return;
	}
	switch (message->type) {
	case WIRE_REPLY:
		take_reply(worker, message, packet);
		break;
	case WIRE_LOST:
		worker_take_lost(worker, message->trouble.code, message->trouble.text);
		events->troubled(worker);
		break;
	case WIRE_SUSPECT:
		events->suspect(worker, message->trouble.text);
		events->troubled(worker);
		break;
	case WIRE_FAULT:
		events->fault(worker, message->session, &message->trouble);
		events->troubled(worker);
		break;
	case WIRE_READY:
		/* A message that a dead daemon has dealt with may be here once more. */
		if (worker->state != WORKER_STARTING)
			break;
		worker->contains = message->ready.contains;
		events->ready(worker, &message->ready);
		worker_keep(worker);
		break;
	case WIRE_STRAY:
		events->stray(worker, message->session, &message->stray);
		break;
	case WIRE_OFFENCE:
		events->offence(worker, message->session, message->trouble.text);
		break;
	case WIRE_WANTED:
		events->wanted(worker, message->session);
		break;
	default:
		worker_condemn(worker, "it sent a message that it may not send");
		break;
	}
	/* Nobody asks an executor for descriptors. */
	if (packet->fd_count && worker->role == ROLE_EXECUTOR)
		worker_condemn(worker, "it sent a descriptor");
}

static void on_closed(void *context, const char *reason)
{
	struct worker *worker = context;

	events_of(worker)->hung_up(worker, reason);
}

static const struct connection_handlers handlers = {.message = on_message, .closed = on_closed};

static struct worker *worker_free(struct worker *worker)
{
	if (!worker)
		return NULL;
	TAILQ_REMOVE(&worker->crew->workers, worker, crew_link);
	connection_shutdown(worker->connection);
	store_drop(worker->crew->store, worker->record);
	store_forget(worker->crew->store, worker->control_key);
	store_forget(worker->crew->store, worker->process_key);
	store_forget(worker->crew->store, worker->words_key);
	store_forget(worker->crew->store, worker->output_key);
	output_free(worker);
	timer_free(worker->reap_timer);
	words_unmap(worker);
	free(worker->immovable);
	free(worker);
	return NULL;
}

void worker_keep(struct worker *worker)
{
	size_t fixed = sizeof(struct kept_worker) + WORKER_HEAD_BYTES;
	size_t room = (RECORD_MAX - fixed) / sizeof(uint64_t);
	size_t listed = worker->immovable_count < room ? worker->immovable_count : room;
	size_t bytes = fixed + listed * sizeof(uint64_t);
	struct kept_worker *kept;

	if (!worker->crew->store)
		return;
	kept = calloc(1, bytes);
	log_bug_on(!kept);
	*kept = (struct kept_worker){.domain = worker->domain ? worker->place : 0,
		.keeper_number = worker->domain ? 0 : worker->place,
		/* A standby whose missing answers could not even be listed is not worth
		 * adopting. */
		.in_step =
			worker->state >= WORKER_WARM && !worker->mirrors && listed == worker->immovable_count,
		.immovable_count = (uint32_t)listed};
	memcpy(kept + 1, worker, WORKER_HEAD_BYTES);
	if (listed)
		memcpy((char *)kept + fixed, worker->immovable, listed * sizeof(uint64_t));
	worker->record =
		store_put(worker->crew->store, worker->record, RECORD_WORKER, worker->number, kept, bytes);
	free(kept);
}

/* Without a connection. Return: NULL without memory */
static struct worker *worker_new(struct crew *crew, const struct worker_place *place)
{
	struct worker *worker = calloc(1, sizeof(*worker));

	if (!worker)
		return NULL;
	worker->crew = crew;
	worker->daemon = crew->daemon;
	worker->domain = place->domain;
	worker->place = place->number;
	worker->identity = place->identity;
	worker->role = place->domain ? ROLE_EXECUTOR : ROLE_KEEPER;
	worker->started_us = timer_now_us();
	worker->first_request = worker->next_request = ((uint64_t)crew->epoch << 40) + 1;
	TAILQ_INIT(&worker->pending);
	TAILQ_INSERT_TAIL(&crew->workers, worker, crew_link);
	overdue_expect(worker);
	return worker;
}

/* @socket: taken over. Return: 0 or -ENOMEM */
static int connect_to(struct worker *worker, int socket)
{
	worker->connection = connection_new(worker->crew->loop, socket, WORKER_QUEUE_MAX, &handlers, worker);
	return worker->connection ? 0 : -ENOMEM;
}

/* @sockets: both taken over. Return: 0 or -errno */
static int start(struct worker *worker, const int sockets[2])
{
	struct heritage_fds fds = {.control = sockets[1], .words = -1, .dump = -1, .output = -1};
	int r = connect_to(worker, sockets[0]);

	r = r ? r : store_deposit(worker->crew->store, sockets[0], &worker->control_key);
	if (worker->role == ROLE_EXECUTOR && r == 0)
		r = words_make(worker, &fds.words);
	if (worker->role == ROLE_EXECUTOR && r == 0)
		r = output_make(worker, &fds.output);
	if (r == 0)
		return worker->crew->spawner->start(worker, &fds);
	heritage_close(&fds);
	return r;
}

int worker_start(struct crew *crew, const struct worker_place *place, struct worker **ret_worker)
{
	struct worker *worker = worker_new(crew, place);
	int pair[2], r;

	if (!worker)
		return -ENOMEM;
	worker->number = ++crew->latest;
	crew->events->numbered(crew->daemon);
	r = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 ? -errno : start(worker, pair);
	if (r < 0) {
		worker_free(worker);
		return r;
	}
	worker_keep(worker);
	*ret_worker = worker;
	return 0;
}

static void take_kept(struct worker *worker, const struct kept_worker *kept, size_t bytes)
{
	const char *head = (const char *)(kept + 1), *list = head + WORKER_HEAD_BYTES;
	uint32_t room = (uint32_t)((bytes - sizeof(*kept) - WORKER_HEAD_BYTES) / sizeof(uint64_t));
	bool *const flags[] = {
		&worker->lost, &worker->was_ready, &worker->was_warm, &worker->contains, &worker->told};

	memcpy(worker, head, WORKER_HEAD_BYTES);
	for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++)
		record_tidy_flag(flags[i]);
	if (worker->state > WORKER_CONDEMNED)
		worker->state = WORKER_CONDEMNED;
	worker->lost_text[sizeof(worker->lost_text) - 1] = '\0';
	worker->immovable_count = kept->immovable_count < room ? kept->immovable_count : room;
	worker->immovable_room = worker->immovable_count;
	if (!worker->immovable_count)
		return;
	worker->immovable = calloc(worker->immovable_count, sizeof(uint64_t));
	log_bug_on(!worker->immovable);
	memcpy(worker->immovable, list, worker->immovable_count * sizeof(uint64_t));
}

/* In place of a missing socket: the worker is terminated at once, and its end awaited like any
 * other's. */
static int make_hung_up(void)
{
	int pair[2];

	/* Without a socket nobody would learn when the worker's work is over. */
	log_bug_on(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0);
	close(pair[1]);
	return pair[0];
}

/* The key of a missing descriptor may belong to another descriptor from now on. */
static int take_fd(struct store *store, uint32_t *key)
{
	int fd = store_take(store, *key);

	if (fd < 0)
		*key = 0;
	return fd;
}

struct worker *worker_adopt(struct crew *crew, const struct worker_place *place, uint32_t number,
	const struct kept_worker *kept, size_t bytes)
{
	struct worker *worker = worker_new(crew, place);
	int control, words, output;

	log_bug_on(!worker);
	worker->number = number;
	take_kept(worker, kept, bytes);
	control = take_fd(crew->store, &worker->control_key);
	log_bug_on(connect_to(worker, control < 0 ? make_hung_up() : control) < 0);
	words = take_fd(crew->store, &worker->words_key);
	if (words >= 0) {
		words_map(worker, words);
		close(words);
	}
	output = take_fd(crew->store, &worker->output_key);
	if (output >= 0)
		output_watch(worker, output);
	supervise_adopt(worker, take_fd(crew->store, &worker->process_key));
	return worker;
}

void worker_request(struct worker *worker, struct wire_message *message, struct shared_fd *const *fds,
	unsigned fd_count, worker_reply_fn *reply, void *context)
{
	struct worker_pending *pending = malloc(sizeof(*pending));
	int r;

	/* The answer must come exactly once: without memory for that promise there is no going
	 * on. */
	log_bug_on(!pending);
	overdue_expect(worker);
	*pending = (struct worker_pending){.id = worker->next_request++, .reply = reply, .context = context};
	TAILQ_INSERT_TAIL(&worker->pending, pending, link);
	message->id = pending->id;
	r = connection_send(worker->connection, message, fds, fd_count);
	if (r)
		worker_condemn(worker, r < 0 ? strerror(-r) : "its connection cannot be written to");
}

void worker_ignore_reply(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	(void)context;
	(void)worker;
	(void)reply;
	(void)packet;
}

void worker_post(struct worker *worker, const struct wire_message *message)
{
	if (connection_send(worker->connection, message, NULL, 0))
		worker_condemn(worker, "its connection cannot be written to");
}

void worker_await_memory(struct worker *worker)
{
	if (worker->gives_back || !worker->told)
		return;
	worker->gives_back = true;
	events_of(worker)->gives_back(worker->daemon);
}

void worker_kill(struct worker *worker)
{
	worker->crew->spawner->kill(worker);
	reap_await(worker);
}

void worker_condemn(struct worker *worker, const char *reason)
{
	char text[500];

	if (worker->state == WORKER_CONDEMNED)
		return;
	snprintf(text, sizeof(text), "%s %d (%s) is ended by the daemon: %s%s%s", role_name(worker->role),
		(int)worker->pid, worker_state_name(worker->state), reason, worker->lost_text[0] ? ": " : "",
		worker->lost_text);
	events_of(worker)->given_up(worker, text);
	worker->state = WORKER_CONDEMNED;
	worker_keep(worker);
	worker_await_memory(worker);
	worker_kill(worker);
	events_of(worker)->condemned(worker);
}

bool worker_knows_sessions(const struct worker *worker)
{
	return worker->state == WORKER_WARMING || worker->state == WORKER_WARM ||
	       worker->state == WORKER_ACTIVE;
}

bool worker_is_immovable(const struct worker *worker, uint64_t session)
{
	for (uint32_t i = 0; i < worker->immovable_count; i++)
		if (worker->immovable[i] == session)
			return true;
	return false;
}

void worker_set_immovable(struct worker *worker, uint64_t session, const char *reason)
{
	uint64_t *grown;

	if (worker_is_immovable(worker, session))
		return;
	if (reason)
		log_warning("session %llu cannot be moved to executor %d: %s", (unsigned long long)session,
			(int)worker->pid, reason);
	if (worker->immovable_count == worker->immovable_room) {
		worker->immovable_room = worker->immovable_room * 2 + 8;
		grown = realloc(worker->immovable, worker->immovable_room * sizeof(*grown));
		log_bug_on(!grown);
		worker->immovable = grown;
	}
	worker->immovable[worker->immovable_count++] = session;
}

void worker_forget_session(struct worker *worker, uint64_t session)
{
	uint32_t kept = 0;

	if (!worker_is_immovable(worker, session))
		return;
	for (uint32_t i = 0; i < worker->immovable_count; i++)
		if (worker->immovable[i] != session)
			worker->immovable[kept++] = worker->immovable[i];
	worker->immovable_count = kept;
	worker_keep(worker);
}

void worker_note_unanswered(struct worker *worker, uint64_t session, enum wire_type type)
{
	if (worker->died_at)
		return;
	worker->died_at = session;
	worker->died_of = type;
}

void worker_describe_end(const struct worker *worker, char *text, size_t size)
{
	if (worker->lost_text[0])
		snprintf(text, size, "%s", worker->lost_text);
	else if (worker->exit_status == HERITAGE_EXIT_IDENTITY)
		snprintf(text, size, "the executor cannot run as the user of its programs");
	else if (worker->exit_signal)
		snprintf(text, size, "the executor process was ended by signal %d (%s)", worker->exit_signal,
			strsignal(worker->exit_signal));
	else
		snprintf(text, size, "the executor process exited with status %d", worker->exit_status);
}

void worker_reaped(struct worker *worker, int exit_status, int exit_signal)
{
	struct crew *crew = worker->crew;
	struct worker_pending *pending;
	bool gave_back;

	worker->exit_status = exit_status;
	worker->exit_signal = exit_signal;
	/* The worker's last packets may be unread: Lost, an answer that was on its way. */
	connection_drain(worker->connection);
	output_drain(worker);
	while ((pending = TAILQ_FIRST(&worker->pending))) {
		TAILQ_REMOVE(&worker->pending, pending, link);
		pending->reply(pending->context, worker, NULL, NULL);
		free(pending);
	}
	events_of(worker)->gone(worker);
	gave_back = worker->gives_back;
	worker_free(worker);
	if (gave_back)
		crew->events->gave_back(crew->daemon, 1);
}
