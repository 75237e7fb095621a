// Warming. See warm.h. The order of messages on a worker's socket is the order of history; nothing
// waits for answers. An answer that differs from the active executor's makes that session immovable
// to that standby. A session that crashes executors is left out (leave_out.c).
//
// Programs load code, make graphs and drop both again, thousands of times a second at times.
// Standbys get such entries a little later (LATER_MS), never if they are dropped by then, and only
// as many at a time as a standby can handle (MIRRORS_MOST). Meanwhile the standby is not in step:
// `mirrors` counts one answer more. When the active executor is in trouble, standbys get all
// entries at once.

#include "server/standby/warm.h"

#include <stdio.h>
#include <stdlib.h>

#include "server/fault/promote.h"
#include "server/grow.h"
#include "server/log.h"
#include "server/loop/timer.h"
#include "server/resource/resource.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/holdings.h"
#include "server/session/session.h"
#include "server/session/sink.h"
#include "server/standby/leave_out.h"
#include "server/standby/move.h"
#include "server/worker/worker.h"

#define LATER_MS 20u
/* Most answers that an executor may owe before it gets more. */
#define MIRRORS_MOST 256u

/* The expected answer of a standby. */
struct mirror {
	struct session *session;
	enum wire_type type;
	uint64_t global[2];
	char name[128]; /* of a global, perhaps cut */
	struct chunk *chunk;
};

static void compare(const struct mirror *mirror, struct worker *worker, const struct wire_reply *reply)
{
	char text[256];

	if (reply->code) {
		snprintf(text, sizeof(text), "%s failed with code %d: %.128s", wire_type_name(mirror->type),
			(int)reply->code, reply->text);
		worker_set_immovable(worker, mirror->session->number, text);
	} else if (mirror->type == WIRE_FIND_GLOBAL &&
		   (reply->values.count < 2 || reply->values.at[0] != mirror->global[0] ||
			   reply->values.at[1] != mirror->global[1])) {
		snprintf(text, sizeof(text), "variable %s has another address there", mirror->name);
		worker_set_immovable(worker, mirror->session->number, text);
	} else if (mirror->type == WIRE_LOAD_MODULE &&
		   mirror->global[1] != (reply->values.count > 5 ? reply->values.at[5] : 0)) {
		worker_set_immovable(worker, mirror->session->number, "constants have another address there");
	}
}

/* A session that has ended, or gone to another domain, is being closed in this executor. */
static bool is_its(const struct worker *worker, const struct session *session)
{
	return session->state != SESSION_CLOSING &&
	       (session->domain == worker->domain || session->destination == worker);
}

/* Not with the answer to Ping: answers about modules follow that answer. */
static void note_first_time(struct domain *domain, struct worker *worker)
{
	if (worker->was_warm || worker->mirrors)
		return;
	worker->was_warm = true;
	worker_changed(worker);
	domain->start_failures = 0;
	domain->start_short_us = 0;
	leave_out_forget(domain);
}

void warm_done(struct domain *domain, struct worker *worker)
{
	note_first_time(domain, worker);
	promote_warm(domain, worker);
	domain_changed(domain);
}

/* Return: whether the executor is in step now */
static bool end_mirror(struct worker *worker)
{
	if (--worker->mirrors)
		return false;
	worker_changed(worker);
	return true;
}

static void look_in_step(struct worker *worker)
{
	if (worker->state == WORKER_WARM)
		warm_done(worker->domain, worker);
	else if (worker->state == WORKER_ACTIVE)
		move_look_into(worker->domain);
}

static void on_mirrored(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	bool in_step;

	struct mirror *mirror = context;

	(void)packet;
	if (!reply)
		worker_note_unanswered(worker, mirror->session->number, mirror->type);
	if (reply && is_its(worker, mirror->session))
		compare(mirror, worker, reply);
	in_step = end_mirror(worker);
	chunk_unref(mirror->chunk);
	session_unref(mirror->session);
	free(mirror);
	if (reply && in_step)
		look_in_step(worker);
}

static void send_mirror(struct worker *worker, struct session *session, struct wire_message *message,
	struct shared_fd *const *fds, unsigned fd_count, const uint64_t *global, struct chunk *chunk)
{
	struct mirror *mirror = calloc(1, sizeof(*mirror));

	log_bug_on(!mirror);
	mirror->session = session_ref(session);
	mirror->type = message->type;
	mirror->chunk = chunk ? chunk_ref(chunk) : NULL;
	if (message->type == WIRE_FIND_GLOBAL)
		snprintf(mirror->name, sizeof(mirror->name), "%s", message->symbol.name);
	if (global) {
		mirror->global[0] = global[0];
		mirror->global[1] = global[1];
	}
	/* Not in step before the answer: should the daemon die before, the executor is replaced. */
	if (!worker->mirrors++)
		worker_changed(worker);
	worker_request(worker, message, fds, fd_count, on_mirrored, mirror);
}

static void mirror_session(struct worker *worker, struct session *session)
{
	struct wire_message message;
	struct shared_fd *fds[3];

	session_open_message(session, &message);
	session_open_fds(session, fds);
	send_mirror(worker, session, &message, fds, 3, NULL, NULL);
}

static void mirror_entry(struct worker *worker, struct session *session, const struct holding *entry)
{
	struct shared_fd *fd = entry->chunk ? entry->chunk->fd : entry->fd;
	struct wire_message message;

	/* Executors only know mapped memory, and memory on its return only the serving executor. */
	if (entry->type == WIRE_CREATE_MEMORY || session_is_left_out(session, worker))
		return;
	if (entry->type == WIRE_MAP_MEMORY && session->memory != SESSION_MEMORY_HERE &&
		session->memory != SESSION_MEMORY_LEAVES)
		return;
	resource_again(entry, session->number, &message);
	send_mirror(worker, session, &message, &fd, fd ? 1 : 0, entry->global, NULL);
}

static bool is_standby(const struct worker *worker)
{
	return worker->state == WORKER_WARMING || worker->state == WORKER_WARM;
}

/* ---- later ---- */

static void tell(struct session *session, const struct holding *entry)
{
	struct worker *worker;

	TAILQ_FOREACH (worker, &session->domain->workers, link)
		if (is_standby(worker))
			mirror_entry(worker, session, entry);
	worker = session->destination;
	if (worker)
		mirror_entry(worker, session, entry);
}

static bool may_be_later(enum wire_type type)
{
	return type == WIRE_LOAD_MODULE || type == WIRE_FIND_FUNCTION || type == WIRE_FIND_GLOBAL ||
	       type == WIRE_SET_FUNCTION || type == WIRE_MAKE_GRAPH;
}

/* Not in step from now on: should the daemon die before it has sent the entries, the executor is
 * replaced. */
static void owe(struct worker *worker)
{
	if (worker->is_owed)
		return;
	worker->is_owed = true;
	if (!worker->mirrors++)
		worker_changed(worker);
}

static struct worker *find_owed(const struct domain *domain)
{
	const struct session *session;
	struct worker *worker;

	TAILQ_FOREACH (worker, &domain->workers, link)
		if (worker->is_owed)
			return worker;
	TAILQ_FOREACH (session, &domain->sessions, domain_link)
		if (session->destination && session->destination->is_owed)
			return session->destination;
	return NULL;
}

/* All entries are sent. @looks: a promotion or move that waits for an executor in step may use one
 * now */
static void settle(struct domain *domain, bool looks)
{
	struct worker *worker;

	while ((worker = find_owed(domain))) {
		worker->is_owed = false;
		if (end_mirror(worker) && looks)
			look_in_step(worker);
	}
}

/* Sends the oldest unsent entries, `most` at most. Return: the rest of `most` */
static uint32_t tell_session(struct session *session, uint32_t most)
{
	struct holding *entry = NULL, *before = TAILQ_LAST(&session->holdings.entries, holding_list);

	/* As a rule, these are the latest entries. */
	for (uint32_t left = session->holdings.untold; left; left -= entry->is_untold) {
		entry = before;
		before = TAILQ_PREV(entry, holding_list, link);
	}
	for (; session->holdings.untold && most; entry = TAILQ_NEXT(entry, link)) {
		if (!entry->is_untold)
			continue;
		entry->is_untold = false;
		session->holdings.untold--;
		most--;
		tell(session, entry);
	}
	return most;
}

/* Return: true if all entries are sent */
static bool tell_domain(struct domain *domain, uint32_t most)
{
	struct session *session;
	bool all = true;

	TAILQ_FOREACH (session, &domain->sessions, domain_link) {
		most = tell_session(session, most);
		all &= !session->holdings.untold;
	}
	return all;
}

static bool is_behind(const struct domain *domain)
{
	const struct worker *worker;

	TAILQ_FOREACH (worker, &domain->workers, link)
		if (is_standby(worker) && worker->mirrors > MIRRORS_MOST)
			return true;
	return false;
}

static void on_later(void *context)
{
	struct domain *domain = context;

	if (is_behind(domain) || !tell_domain(domain, MIRRORS_MOST))
		timer_start(domain->telling, LATER_MS);
	else
		settle(domain, true);
}

/* Return: true if an executor is to get the session's new entries */
static bool owe_all(struct session *session)
{
	struct worker *worker;
	bool any = session->destination;

	if (session->destination)
		owe(session->destination);
	TAILQ_FOREACH (worker, &session->domain->workers, link)
		if (is_standby(worker)) {
			owe(worker);
			any = true;
		}
	return any;
}

static void tell_later(struct session *session, struct holding *entry)
{
	struct domain *domain = session->domain;

	if (entry->is_untold || !owe_all(session))
		return;
	entry->is_untold = true;
	session->holdings.untold++;
	if (!domain->telling)
		domain->telling = timer_new(domain->daemon->loop, on_later, domain);
	if (!timer_running(domain->telling))
		timer_start(domain->telling, LATER_MS);
}

/* ---- everything ---- */

static void on_warm(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct domain *domain = context;

	(void)packet;
	if (!reply || worker->state != WORKER_WARMING)
		return;
	worker->state = WORKER_WARM;
	worker_changed(worker);
	log_debug("executor %d is warm, %.0f ms after its start", (int)worker->pid,
		(double)(timer_now_us() - worker->started_us) / 1000.0);
	warm_done(domain, worker);
}

static bool is_told_of(const struct session *session)
{
	return session->opened && session->state != SESSION_CLOSING;
}

/* An object of some session, by handle. */
struct handle {
	uint64_t value;
	struct session *session;
	const struct holding *entry;
};

struct handles {
	struct handle *at;
	uint32_t count, room;
};

static int compare_handles(const void *a, const void *b)
{
	uint64_t first = ((const struct handle *)a)->value, second = ((const struct handle *)b)->value;

	return (first > second) - (first < second);
}

static uint64_t handle_of(const struct holding *entry)
{
	return ((const struct wire_object *)entry->form)->value;
}

static void add_handles(struct handles *handles, struct session *session)
{
	const struct holding *entry;

	TAILQ_FOREACH (entry, &session->holdings.entries, link) {
		if (entry->type != WIRE_MAKE_OBJECT)
			continue;
		log_bug_on(!grow(&handles->at, handles->count, &handles->room, sizeof(*handles->at)));
		handles->at[handles->count++] = (struct handle){handle_of(entry), session, entry};
	}
}

/* A new executor can reproduce any handles, but only in their order (executor/object.h). */
static void mirror_handles(struct worker *worker, struct handles *handles)
{
	if (handles->count)
		qsort(handles->at, handles->count, sizeof(*handles->at), compare_handles);
	for (size_t i = 0; i < handles->count; i++)
		mirror_entry(worker, handles->at[i].session, handles->at[i].entry);
	free(handles->at);
}

static void mirror_but_handles(struct worker *worker, struct session *session)
{
	const struct holding *entry;

	mirror_session(worker, session);
	sink_tell(session, worker);
	/* Limits apply to modules that are loaded behind them. */
	TAILQ_FOREACH (entry, &session->holdings.entries, link)
		if (entry->type == WIRE_SET_LIMIT)
			mirror_entry(worker, session, entry);
	TAILQ_FOREACH (entry, &session->holdings.entries, link)
		if (entry->type != WIRE_MAKE_OBJECT && entry->type != WIRE_SET_LIMIT)
			mirror_entry(worker, session, entry);
}

void warm_tell(struct worker *worker, struct session *session)
{
	struct handles handles = {0};

	tell_session(session, UINT32_MAX);
	mirror_but_handles(worker, session);
	add_handles(&handles, session);
	mirror_handles(worker, &handles);
}

void warm_start(struct worker *worker)
{
	struct wire_message ping = {.type = WIRE_PING};
	struct handles handles = {0};
	struct session *session;

	/* First the unsent entries for all: from then on no entry is known to this executor
	 * alone. */
	tell_domain(worker->domain, UINT32_MAX);
	settle(worker->domain, true);
	worker->state = WORKER_WARMING;
	worker->told = true;
	TAILQ_FOREACH (session, &worker->domain->sessions, domain_link) {
		if (!is_told_of(session))
			continue;
		if (session->mirroring == SESSION_LEFT_OUT) {
			worker_set_immovable(worker, session->number, NULL);
			continue;
		}
		mirror_but_handles(worker, session);
		add_handles(&handles, session);
	}
	mirror_handles(worker, &handles);
	worker_request(worker, &ping, NULL, 0, on_warm, worker->domain);
}

void warm_session(struct session *session)
{
	struct worker *worker;

	TAILQ_FOREACH (worker, &session->domain->workers, link)
		if (is_standby(worker))
			mirror_session(worker, session);
}

void warm_entry(struct session *session, struct holding *entry)
{
	if (may_be_later(entry->type) && domain_serving(session->domain))
		tell_later(session, entry);
	else
		tell(session, entry);
}

void warm_hurry(struct domain *domain)
{
	move_call_off(domain);
	tell_domain(domain, UINT32_MAX);
	settle(domain, false);
}

/* True if no standby has got the resource that is dropped. */
static bool is_unknown(const struct session *session, const struct wire_message *message)
{
	const struct holding *entry;

	TAILQ_FOREACH_REVERSE (entry, &session->holdings.entries, holding_list, link)
		if ((message->type == WIRE_UNLOAD_MODULE && entry->type == WIRE_LOAD_MODULE &&
			    entry->module == message->symbol.module) ||
			(message->type == WIRE_DROP_GRAPH && entry->type == WIRE_MAKE_GRAPH &&
				entry->attribute == message->graph.graph))
			return entry->is_untold;
	return false;
}

/* A graph can have kernels of a module that is dropped before the graph. */
static bool has_untold_graphs(const struct session *session)
{
	const struct holding *entry;
	uint32_t left = session->holdings.untold;

	for (entry = TAILQ_LAST(&session->holdings.entries, holding_list); left;
		entry = TAILQ_PREV(entry, holding_list, link)) {
		if (entry->is_untold && entry->type == WIRE_MAKE_GRAPH)
			return true;
		left -= entry->is_untold;
	}
	return false;
}

void warm_drop(struct session *session, const struct wire_message *message, struct chunk *chunk)
{
	struct wire_message copy = *message;
	struct worker *worker;

	if (message->type == WIRE_UNLOAD_MODULE && has_untold_graphs(session))
		tell_session(session, UINT32_MAX);
	if (session->holdings.untold && is_unknown(session, message))
		return;
	copy.session = session->number;
	TAILQ_FOREACH (worker, &session->domain->workers, link)
		/* In any state: an executor that does not know the session answers so, and ignores
		 * the request. */
		if (is_standby(worker))
			send_mirror(worker, session, &copy, NULL, 0, NULL, chunk);
	worker = session->destination;
	if (worker)
		send_mirror(worker, session, &copy, NULL, 0, NULL, chunk);
}
