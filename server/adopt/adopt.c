// Adoption, in this order, before the loop runs:
//   read      numbers, listener, domains, workers, sessions, resources. Nothing is sent.
//   repeat    each worker gets again all requests that may have been lost (repeat.h)
//   go on     promotions, standbys that are behind, sessions that were ending, requests that wait
//   settle    ends of children that came meanwhile
// Handlers find the state that the dead daemon had recorded, no more and no less; holder.c says why
// that is enough.

#include "server/adopt/adopt.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/place.h"
#include "server/adopt/adoption.h"
#include "server/config/config.h"
#include "server/daemon/children.h"
#include "server/daemon/depart.h"
#include "server/daemon/device.h"
#include "server/daemon/life.h"
#include "server/daemon/requests.h"
#include "server/daemon/sink_make.h"
#include "server/door/listener.h"
#include "server/fault/promote.h"
#include "server/holder/holder.h"
#include "server/holder/store.h"
#include "server/incident/incident.h"
#include "server/log.h"
#include "server/loop/shared_fd.h"
#include "server/loop/timer.h"
#include "server/loop/turn_end.h"
#include "server/service.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/events.h"
#include "server/session/fault_history.h"
#include "server/session/records.h"
#include "server/session/saved.h"
#include "server/session/session.h"
#include "server/session/unpinning.h"
#include "server/standby/stash.h"
#include "server/standby/swap.h"
#include "server/standby/warm.h"
#include "server/worker/record.h"
#include "server/worker/worker.h"

/* A request may be under way in so many crashes of daemons in a row. */
#define CRASHES_MOST 2u

/*
 * Daemon, domains, workers
 */

static int read_service(struct daemon *daemon, const struct legacy *legacy)
{
	const struct record **records;
	struct service_record record;
	struct listener_keys keys;
	char path[PLACE_BYTES];
	bool found = store_list(daemon->store, RECORD_SERVICE, &records) == 1 &&
		     record_read(records[0], &record, sizeof(record));
	int r;

	if (found)
		daemon->record = records[0];
	free(records);
	if (!found)
		return -1;
	memcpy(daemon, record.head, sizeof(record.head));
	daemon->crew.latest = record.next_worker;
	daemon->crew.epoch = record.epoch + 1;
	daemon->phase = record.ready ? DAEMON_SERVES : DAEMON_STARTS;
	/* The drain was not over: programs go on. */
	if (daemon->health.state == DEVICE_DRAINING)
		daemon->health.state = DEVICE_SERVING;
	daemon->counters.daemons_lost++;
	daemon_socket(daemon, path);
	keys = daemon->listener_keys;
	daemon->listener_keys = (struct listener_keys){0};
	r = listener_adopt(daemon, path, keys.socket, keys.lock, &daemon->listener);
	/* A daemon that is shutting down has no listener. */
	if (r < 0 && !legacy->stops)
		return -1;
	if (store_list(daemon->store, RECORD_RULES, &records))
		record_read(records[0], &daemon->rules, sizeof(daemon->rules));
	free(records);
	if (store_list(daemon->store, RECORD_DEVICE, &records))
		daemon->device_known = record_read(records[0], &daemon->device, sizeof(daemon->device));
	free(records);
	return 0;
}

static void read_domain(struct adoption *adoption, const struct record *record)
{
	struct daemon *daemon = adoption->daemon;
	size_t bytes;
	const struct domain_record *kept = record_payload(record, &bytes);
	struct domain *domain;

	if (bytes < sizeof(*kept)) {
		store_drop(daemon->store, record);
		return;
	}
	domain = domain_new_numbered(daemon, (uint32_t)record_key(record));
	log_bug_on(!domain);
	domain->record = record;
	memcpy(domain, kept->head, sizeof(kept->head));
	domain->reason[sizeof(domain->reason) - 1] = '\0';
	if (domain->identity.group_count > IDENTITY_GROUPS_MAX || domain->use > DOMAIN_ALONE_BY_ORDER ||
		domain->life > DOMAIN_RETIRES)
		domain_free(domain);
	else
		saved_read(domain, kept + 1, bytes - sizeof(*kept));
}

static bool is_in_trouble(const struct domain *domain)
{
	enum incident_state state = domain->promotion.state;

	return !incident_is_serving(state) && !incident_is_activating(state);
}

static void place(struct domain *domain, struct worker *worker, uint32_t active)
{
	TAILQ_INSERT_TAIL(&domain->workers, worker, link);
	/* The domain's record decides: of a turn that was recorded in parts, it is the last
	 * (session/changes.c). */
	if (worker->number == active) {
		domain->active = worker;
		if (worker->state != WORKER_TERMINATING)
			worker->state = WORKER_ACTIVE;
		worker->generation = domain->generation;
		/* Messages of the executor are on its socket still, and nothing follows from them
		 * yet. */
		if (!is_in_trouble(domain))
			worker->lost = false;
	} else if (worker->generation > domain->generation) {
		/* The worker was to become the active executor, and Activate was not sent. */
		worker->state = worker->state == WORKER_ACTIVE ? WORKER_WARM : worker->state;
		worker->generation = 0;
	} else if (worker->state == WORKER_ACTIVE) {
		/* This worker was replaced. */
		worker->state = WORKER_TERMINATING;
	}
}

static uint32_t active_of(const struct domain *domain)
{
	size_t bytes;
	const struct domain_record *kept = record_payload(domain->record, &bytes);

	return kept->active;
}

static void read_worker(struct adoption *adoption, const struct record *record)
{
	struct daemon *daemon = adoption->daemon;
	size_t bytes;
	const struct kept_worker *kept = record_payload(record, &bytes);
	bool whole = bytes >= sizeof(*kept) + WORKER_HEAD_BYTES;
	struct domain *domain = whole ? daemon_find_domain(daemon, kept->domain) : NULL;
	struct worker_place home;
	struct worker *worker;

	if (!whole || (!domain && (kept->domain || kept->keeper_number != daemon->keeper_number ||
					  daemon->keeper))) {
		/* The process sees the hang-up. */
		store_drop(daemon->store, record);
		return;
	}
	home = domain ? (struct worker_place){domain, domain->number, &domain->identity}
		      : (struct worker_place){.number = kept->keeper_number};
	worker = worker_adopt(&daemon->crew, &home, (uint32_t)record_key(record), kept, bytes);
	worker->record = record;
	/* A standby with unanswered messages: nobody knows how far the standby got. */
	worker->mirrors = worker->state == WORKER_WARM && !kept->in_step;
	if (domain)
		place(domain, worker, active_of(domain));
	else
		daemon->keeper = worker;
	/* Without the keys of missing descriptors, before anybody else gets those keys. */
	worker_changed(worker);
}

/*
 * Memory that stays pinned
 */

static void ask_unpinning(struct worker *worker, void *context)
{
	(void)worker;
	unpinning_ask(context);
}

static void read_unpinning(struct adoption *adoption, const struct record *record)
{
	struct daemon *daemon = adoption->daemon;
	struct kept_unpinning kept;
	struct domain *domain;
	struct unpinning *unpinning = NULL;
	struct worker *worker;

	if (record_read(record, &kept, sizeof(kept)) &&
		(worker = adoption_worker(daemon, kept.call.worker)) && worker->domain &&
		(domain = daemon_find_domain(daemon, kept.domain)))
		unpinning = unpinning_adopt(domain, worker, &kept, record);
	if (unpinning)
		repeat_later(&adoption->repetitions, worker, kept.call.id, ask_unpinning, unpinning);
	else
		store_drop(daemon->store, record);
}

/*
 * Work that goes on: each handler finds its subject in a state that the handler knows
 */

/* Kills a worker that was being terminated once more; replaces a standby that is behind. */
static void settle_worker(struct worker *worker)
{
	bool standby = worker->state == WORKER_WARM || worker->state == WORKER_WARMING;

	if (worker->state == WORKER_TERMINATING) {
		worker_await_memory(worker);
		worker_kill(worker);
	} else if (standby && worker->domain && (worker->mirrors || worker->state == WORKER_WARMING)) {
		worker->mirrors = 0;
		worker_terminate(worker, "the daemon died in the middle of its messages to this standby");
	}
}

static void settle_domain(struct domain *domain)
{
	struct worker *worker, *next;

	TAILQ_FOREACH (worker, &domain->workers, link)
		settle_worker(worker);
	promote_resume(domain);
	for (worker = TAILQ_FIRST(&domain->workers); worker; worker = next) {
		next = TAILQ_NEXT(worker, link);
		if (worker->state == WORKER_WARM)
			warm_done(domain, worker);
	}
	domain_watch_idle(domain);
}

/* May end the session. */
static void resume_session(struct session *session)
{
	struct session_again again = session->again;

	session->again = (struct session_again){0};
	shared_fd_unref(again.fd);
	chunk_unref(again.chunk);
	if (session->state == SESSION_SERVED)
		session_read_next(session);
	/* The executor that held its commands may sleep. */
	if (session->was_leaving)
		session_set_memory(session, SESSION_MEMORY_HERE);
	session->was_leaving = false;
	if (session->given_up)
		session_end_given_up(session);
	else if (session->state == SESSION_ELSEWHERE)
		session_leave(session);
	else if (session->state == SESSION_CLOSING)
		session_closing_again(session);
	else if (session->crashes > CRASHES_MOST)
		session_reject(session, "the daemon crashed several times during a request of this program");
	else if (word_acquire(&session->view.server->state) == SHM_SESSION_CLOSED)
		session_end(session, 0);
	else if (session->state == SESSION_OPENING)
		session_open(session);
	else if (session->memory != SESSION_MEMORY_HERE)
		swap_adopt(session);
	else if (session->request)
		request_advance(session->request);
}

static void resume(struct daemon *daemon)
{
	struct domain *domain, *next_domain;
	struct session *session, *next;

	/* The number of crashes, before a request can crash this daemon as well. */
	TAILQ_FOREACH (session, &daemon->sessions, link)
		session_changed(session);
	turn_end_now(daemon->turn_end);
	if (daemon->keeper)
		settle_worker(daemon->keeper);
	TAILQ_FOREACH (domain, &daemon->domains, link)
		settle_domain(domain);
	for (session = TAILQ_FIRST(&daemon->sessions); session; session = next) {
		next = TAILQ_NEXT(session, link);
		resume_session(session);
	}
	for (domain = TAILQ_FIRST(&daemon->domains); domain; domain = next_domain) {
		next_domain = TAILQ_NEXT(domain, link);
		depart_look_into(domain);
		swap_look_into(domain);
		if (domain->life == DOMAIN_RETIRES)
			domain_retire(domain);
	}
	if (daemon_has_failed(daemon))
		device_end_all(daemon);
	sink_resume_all(daemon);
	stash_adopt(daemon);
	daemon_adopted(daemon);
}

/*
 * Steps
 */

static void read_fault_history(struct adoption *adoption, const struct record *record)
{
	fault_history_adopt(adoption->daemon, record);
}

static void read_event(struct adoption *adoption, const struct record *record)
{
	events_adopt(adoption->daemon, record);
}

static void read_all(struct adoption *adoption, enum record_type type,
	void (*read)(struct adoption *adoption, const struct record *record))
{
	const struct record **records;
	size_t count = store_list(adoption->daemon->store, type, &records);

	for (size_t i = 0; i < count; i++)
		read(adoption, records[i]);
	free(records);
}

/* A record comes after all records that it names. */
static int read_everything(struct adoption *adoption, const struct legacy *legacy)
{
	if (read_service(adoption->daemon, legacy))
		return -1;
	read_all(adoption, RECORD_DOMAIN, read_domain);
	read_all(adoption, RECORD_WORKER, read_worker);
	read_all(adoption, RECORD_SESSION, adoption_read_session);
	read_all(adoption, RECORD_HOLDING, adoption_read_holding);
	read_all(adoption, RECORD_UNPINNING, read_unpinning);
	read_all(adoption, RECORD_FAULT_HISTORY, read_fault_history);
	read_all(adoption, RECORD_EVENT, read_event);
	return 0;
}

static void activate_again(struct worker *worker, void *context)
{
	(void)worker;
	promote_activate_again(context);
}

static void repeat_everything(struct adoption *adoption)
{
	struct daemon *daemon = adoption->daemon;
	struct domain *domain;

	inventory_repeat(&adoption->inventory, &adoption->repetitions);
	TAILQ_FOREACH (domain, &daemon->domains, link)
		if (domain->active && domain->activate_id && incident_is_activating(domain->promotion.state))
			repeat_later(&adoption->repetitions, domain->active, domain->activate_id,
				activate_again, domain);
	repeat_now(&adoption->repetitions);
}

/* Ends of children that came while there was no daemon. */
static void settle_ends(struct daemon *daemon, const struct legacy *legacy)
{
	for (uint32_t i = 0; i < legacy->end_count; i++)
		children_reaped(&daemon->crew, legacy->ends[i].pid, legacy->ends[i].status);
}

static void go_on(struct adoption *adoption, const struct legacy *legacy)
{
	struct daemon *daemon = adoption->daemon;

	repeat_everything(adoption);
	daemon->adopting = false;
	inventory_release(&adoption->inventory);
	resume(daemon);
	store_close_rest(daemon->store);
	settle_ends(daemon, legacy);
}

int adopt(struct daemon *daemon, const struct legacy *legacy)
{
	struct adoption adoption = {
		.daemon = daemon, .crashed = legacy->latest_signal && legacy->latest_signal != SIGKILL};
	const struct event_about nobody = events_about_user(NULL);
	uint64_t begin_us = timer_now_us();
	int r;

	daemon->adopting = true;
	inventory_init(&adoption.inventory, daemon, legacy->fd_count);
	r = read_everything(&adoption, legacy);
	if (!r) {
		go_on(&adoption, legacy);
		events_note(daemon, EVENT_daemon, LOG_LEVEL_INFO, &nobody,
			"the daemon is back (restart %u of this service): it took over %u sessions in "
			"%.1f ms",
			legacy->lives, daemon->session_count, (double)(timer_now_us() - begin_us) / 1000.0);
	} else {
		log_error("the records of the previous daemon cannot be taken over");
	}
	inventory_deinit(&adoption.inventory);
	return r;
}
