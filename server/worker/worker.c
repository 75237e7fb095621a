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
#include "server/grow.h"
#include "server/holder/store.h"
#include "server/log.h"
#include "server/loop/connection.h"
#include "server/loop/shared_fd.h"
#include "server/loop/timer.h"
#include "server/role.h"
#include "server/worker/crew.h"
#include "server/worker/output.h"
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
	static const char *const names[] = {"starting", "warming", "warm", "active", "terminating"};

	return names[state];
}

static void mark_due(struct worker *worker, enum worker_due due)
{
	worker->due |= due;
	worker->crew->is_due = true;
}

static struct worker_pending *find_pending(struct worker *worker, uint64_t id)
{
	struct worker_pending *pending;

	TAILQ_FOREACH (pending, &worker->pending, link)
		if (pending->id == id)
			return pending;
	return NULL;
}

/* The worker lives. */
static void heard(struct worker *worker)
{
	worker->looks = worker->still = worker->excuses = 0;
}

/* A request goes to the worker, perhaps beside requests without an answer. */
static void expect(struct worker *worker)
{
	struct timer *timer = worker->crew->overdue_timer;

	if (TAILQ_EMPTY(&worker->pending))
		heard(worker);
	if (!timer_running(timer))
		timer_start(timer, WORKER_LOOK_MS);
}

enum worker_reply worker_take_reply(
	struct worker *worker, const struct wire_message *message, struct packet *packet)
{
	struct worker_pending *pending = find_pending(worker, message->id);

	if (!pending && message->id < worker->first_request)
		return WORKER_REPLY_UNCLAIMED;
	if (!pending) {
		worker_terminate(worker, "it answered a request that nobody had made");
		return WORKER_REPLY_TAKEN;
	}
	heard(worker);
	TAILQ_REMOVE(&worker->pending, pending, link);
	pending->reply(pending->context, worker, &message->reply, packet);
	free(pending);
	return WORKER_REPLY_TAKEN;
}

void worker_take_lost(struct worker *worker, int32_t code, const char *text)
{
	if (worker->lost || worker->state == WORKER_TERMINATING)
		return;
	worker->lost = true;
	worker->lost_code = code;
	snprintf(worker->lost_text, sizeof(worker->lost_text), "%s", text);
	mark_due(worker, WORKER_DUE_LOST);
}

bool worker_owes(const struct worker *worker, const void *context)
{
	const struct worker_pending *pending;

	TAILQ_FOREACH (pending, &worker->pending, link)
		if (pending->context == context)
			return true;
	return false;
}

struct worker *worker_free(struct worker *worker)
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

void worker_changed(struct worker *worker)
{
	worker->is_changed = worker->crew->has_changes = true;
}

static void save(struct worker *worker)
{
	size_t fixed = sizeof(struct kept_worker) + WORKER_HEAD_BYTES;
	size_t room = (RECORD_MAX - fixed) / sizeof(uint64_t);
	size_t listed = worker->immovable_count < room ? worker->immovable_count : room;
	size_t bytes = fixed + listed * sizeof(uint64_t);
	struct kept_worker *kept;

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

void workers_save(struct crew *crew)
{
	struct worker *worker;

	if (!crew->has_changes)
		return;
	crew->has_changes = false;
	TAILQ_FOREACH (worker, &crew->workers, crew_link) {
		if (worker->is_changed)
			save(worker);
		worker->is_changed = false;
	}
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
	expect(worker);
	return worker;
}

/* @socket: taken over. Return: 0 or -ENOMEM */
static int connect_to(struct worker *worker, int socket)
{
	worker->connection = connection_new(worker->crew->loop, CONNECTION_OURS, socket, WORKER_QUEUE_MAX,
		worker->crew->on_message, worker->crew->on_closed, worker);
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
	worker->number = crew->latest;
	r = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 ? -errno : start(worker, pair);
	if (r < 0) {
		worker_free(worker);
		return r;
	}
	worker_changed(worker);
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
	if (worker->state > WORKER_TERMINATING)
		worker->state = WORKER_TERMINATING;
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
	expect(worker);
	*pending = (struct worker_pending){.id = worker->next_request++, .reply = reply, .context = context};
	TAILQ_INSERT_TAIL(&worker->pending, pending, link);
	message->id = pending->id;
	r = connection_send(worker->connection, message, fds, fd_count);
	if (r)
		worker_terminate(worker, r < 0 ? strerror(-r) : "its connection cannot be written to");
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
		worker_terminate(worker, "its connection cannot be written to");
}

void worker_await_memory(struct worker *worker)
{
	worker->gives_back |= worker->told;
}

void worker_kill(struct worker *worker)
{
	worker->is_to_die = worker->crew->kills = true;
}

void workers_kill(struct crew *crew)
{
	struct worker *worker;

	if (!crew->kills)
		return;
	crew->kills = false;
	TAILQ_FOREACH (worker, &crew->workers, crew_link) {
		if (!worker->is_to_die)
			continue;
		worker->is_to_die = false;
		crew->spawner->kill(worker);
		reap_await(worker);
	}
}

void worker_terminate(struct worker *worker, const char *reason)
{
	if (worker->state == WORKER_TERMINATING)
		return;
	snprintf(worker->end_text, sizeof(worker->end_text), "%s %d (%s) is ended by the daemon: %s%s%s",
		role_name(worker->role), (int)worker->pid, worker_state_name(worker->state), reason,
		worker->lost_text[0] ? ": " : "", worker->lost_text);
	worker->state = WORKER_TERMINATING;
	worker_changed(worker);
	worker_await_memory(worker);
	worker_kill(worker);
	mark_due(worker, WORKER_DUE_TERMINATED);
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
	if (worker_is_immovable(worker, session))
		return;
	if (reason)
		log_warning("session %llu cannot be moved to executor %d: %s", (unsigned long long)session,
			(int)worker->pid, reason);
	log_bug_on(!grow(&worker->immovable, worker->immovable_count, &worker->immovable_room,
		sizeof(*worker->immovable)));
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
	worker_changed(worker);
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

void worker_end(struct worker *worker, int exit_status, int exit_signal)
{
	struct worker_pending *pending;

	worker->exit_status = exit_status;
	worker->exit_signal = exit_signal;
	output_drain(worker);
	while ((pending = TAILQ_FIRST(&worker->pending))) {
		TAILQ_REMOVE(&worker->pending, pending, link);
		pending->reply(pending->context, worker, NULL, NULL);
		free(pending);
	}
}
