// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Adoption, in this order, before the loop runs:
//   read      numbers, listener, domains, workers, sessions, what they hold. Nothing is sent.
//   repeat    each worker is sent again what it may not have got, with the numbers of then, in their order
//   go on     promotions, standbys that are behind, sessions that were ending, requests that wait
//   settle    ends of children that came meanwhile
// Handlers find the state that the dead daemon had recorded, no more and no less; holder.c says why that is
// enough.

#include "server/adopt/adopt.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/socket.h"
#include "server/adopt/holder.h"
#include "server/adopt/records.h"
#include "server/adopt/store.h"
#include "server/config/config.h"
#include "server/failover/halt.h"
#include "server/failover/move.h"
#include "server/failover/probation.h"
#include "server/failover/supervise.h"
#include "server/failover/warm.h"
#include "server/failover/worker.h"
#include "server/log.h"
#include "server/loop/connection.h"
#include "server/loop/shared_fd.h"
#include "server/loop/timer.h"
#include "server/session/chunk.h"
#include "server/session/client.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/linger.h"
#include "server/session/listener.h"
#include "server/session/request.h"
#include "server/session/sink.h"

/* Crashes of daemons, one after the other, that a request may be under way in. */
#define CRASHES_MOST 2u

/* A request of a dead daemon that is sent again. */
struct repetition {
	struct worker *worker;
	uint64_t id;
	void (*send)(struct worker *worker, void *context, const struct record *record);
	void *context;
	const struct record *record;
};

/* By key of a descriptor: what was made of it. */
struct made {
	struct shared_fd *fd;
	struct chunk *chunk;
};

struct doomed {
	struct kept_doomed kept;
	const struct record *record;
	bool taken; /* something holds it still */
};

struct adoption {
	struct daemon *daemon;
	struct made *made;
	uint32_t made_count;
	struct doomed *doomed;
	size_t doomed_count;
	struct repetition *repetitions;
	size_t repetition_count, repetition_room;
};

static void repeat(struct adoption *adoption, struct worker *worker, uint64_t id,
	void (*send)(struct worker *worker, void *context, const struct record *record), void *context,
	const struct record *record)
{
	if (adoption->repetition_count == adoption->repetition_room) {
		adoption->repetition_room = adoption->repetition_room * 2 + 64;
		adoption->repetitions = reallocarray(
			adoption->repetitions, adoption->repetition_room, sizeof(*adoption->repetitions));
		log_bug_on(!adoption->repetitions);
	}
	adoption->repetitions[adoption->repetition_count++] =
		(struct repetition){worker, id, send, context, record};
}

static struct worker *find_worker(const struct daemon *daemon, uint32_t number)
{
	struct domain *domain;
	struct worker *worker;

	if (!number)
		return NULL;
	if (daemon->keeper && daemon->keeper->number == number)
		return daemon->keeper;
	TAILQ_FOREACH (domain, &daemon->domains, link)
		TAILQ_FOREACH (worker, &domain->workers, link)
			if (worker->number == number)
				return worker;
	return NULL;
}

/*
 * Descriptors and device memory
 */

/* A reference to the descriptor under a key. NULL: there is none. */
static struct shared_fd *shared_of(struct adoption *adoption, uint32_t key)
{
	struct shared_fd *shared;
	int fd;

	if (!key || key >= adoption->made_count)
		return NULL;
	if (adoption->made[key].fd)
		return shared_fd_ref(adoption->made[key].fd);
	fd = store_take(adoption->daemon->store, key);
	shared = shared_fd_new(fd);
	if (!shared)
		return NULL;
	shared->store = adoption->daemon->store;
	shared->key = key;
	adoption->made[key].fd = shared;
	return shared;
}

static struct doomed *find_doomed(const struct adoption *adoption, const struct kept_chunk *chunk)
{
	for (size_t i = 0; i < adoption->doomed_count; i++)
		if (adoption->doomed[i].kept.chunk.handle == chunk->handle &&
			adoption->doomed[i].kept.chunk.keeper == chunk->keeper)
			return &adoption->doomed[i];
	return NULL;
}

/* A reference to a chunk. NULL: there is none, or the keeper has been told to let go of it. */
static struct chunk *chunk_of(struct adoption *adoption, const struct kept_chunk *kept)
{
	struct doomed *doomed = find_doomed(adoption, kept);
	struct chunk *chunk;

	if (!kept->fd || kept->fd >= adoption->made_count || (doomed && doomed->kept.release_id))
		return NULL;
	if (adoption->made[kept->fd].chunk)
		return chunk_ref(adoption->made[kept->fd].chunk);
	chunk = chunk_adopt(adoption->daemon, kept, shared_of(adoption, kept->fd));
	if (!chunk)
		return NULL;
	if (doomed) {
		doomed->taken = true;
		chunk->doomed = true;
		chunk->record = doomed->record;
		reclaim_begin(adoption->daemon);
	}
	adoption->made[kept->fd].chunk = chunk;
	return chunk;
}

static void read_doomed(struct adoption *adoption)
{
	const struct record **records;

	adoption->doomed_count = store_list(adoption->daemon->store, RECORD_DOOMED, &records);
	adoption->doomed = calloc(adoption->doomed_count + 1, sizeof(*adoption->doomed));
	log_bug_on(!adoption->doomed);
	for (size_t i = 0; i < adoption->doomed_count; i++) {
		adoption->doomed[i].record = records[i];
		record_read(records[i], &adoption->doomed[i].kept, sizeof(struct kept_doomed));
	}
	free(records);
}

static void release_again(struct worker *keeper, void *context, const struct record *record)
{
	const struct kept_doomed *doomed = context;

	chunk_release(keeper->daemon, &doomed->chunk, record);
}

/* What nobody holds: those that the keeper was told of are repeated, the others come behind. */
static void repeat_doomed(struct adoption *adoption)
{
	struct daemon *daemon = adoption->daemon;

	for (size_t i = 0; i < adoption->doomed_count; i++) {
		struct doomed *doomed = &adoption->doomed[i];

		if (doomed->taken)
			continue;
		reclaim_begin(daemon);
		if (daemon->keeper && doomed->kept.release_id &&
			doomed->kept.chunk.keeper == daemon->keeper_number) {
			doomed->taken = true;
			repeat(adoption, daemon->keeper, doomed->kept.release_id, release_again,
				&doomed->kept, doomed->record);
		}
	}
}

static void release_doomed(struct adoption *adoption)
{
	for (size_t i = 0; i < adoption->doomed_count; i++)
		if (!adoption->doomed[i].taken)
			chunk_release(adoption->daemon, &adoption->doomed[i].kept.chunk,
				adoption->doomed[i].record);
}

/*
 * Daemon, domains, workers
 */

static int read_service(struct daemon *daemon, const struct legacy *legacy)
{
	const struct record **records;
	struct kept_service kept = {0};
	bool found = store_list(daemon->store, RECORD_SERVICE, &records) == 1 &&
		     record_read(records[0], &kept, sizeof(kept));
	int r;

	if (found)
		daemon->record = records[0];
	free(records);
	if (!found)
		return -1;
	daemon->next_session = kept.next_session;
	daemon->started_us = kept.started_us;
	daemon->next_worker = kept.next_worker;
	daemon->next_domain = kept.next_domain;
	daemon->keeper_number = kept.keeper_number;
	daemon->epoch = kept.epoch + 1;
	daemon->ready = kept.ready;
	daemon->counters = kept.counters;
	daemon->counters.daemons_lost++;
	r = listener_adopt(
		daemon, daemon->config->socket, kept.listener, kept.listener_lock, &daemon->listener);
	/* One that was told to stop has none. */
	if (r < 0 && !legacy->stops)
		return -1;
	daemon_keep(daemon);
	if (store_list(daemon->store, RECORD_DEVICE, &records))
		daemon->device_known = record_read(records[0], &daemon->device, sizeof(daemon->device));
	free(records);
	return 0;
}

static void read_domain(struct daemon *daemon, const struct record *record)
{
	struct domain *domain = domain_new_numbered(daemon, (uint32_t)record_key(record));
	struct kept_domain kept;
	struct timer *timer;

	log_bug_on(!domain || !record_read(record, &kept, sizeof(kept)));
	timer = domain->promotion.halt_timer;
	domain->record = record;
	domain->uid = (uid_t)kept.uid;
	domain->assigned = kept.assigned;
	domain->alone = kept.alone;
	domain->retiring = kept.retiring;
	memcpy(domain->reason, kept.reason, sizeof(domain->reason));
	domain->activate_id = kept.activate_id;
	domain->promotion = kept.promotion;
	domain->promotion.halt_timer = timer;
	domain->promotion.suspects = 0;
}

static void place(struct domain *domain, struct worker *worker, uint32_t active)
{
	TAILQ_INSERT_TAIL(&domain->workers, worker, link);
	/* The domain's record decides: it is written when everything else is. */
	if (worker->number == active) {
		domain->active = worker;
		if (worker->state != WORKER_CONDEMNED)
			worker->state = WORKER_ACTIVE;
		worker->generation = domain->promotion.generation;
	} else if (worker->generation > domain->promotion.generation) {
		/* It was to become the active one and has not been told. */
		worker->state = worker->state == WORKER_ACTIVE ? WORKER_WARM : worker->state;
		worker->generation = 0;
	} else if (worker->state == WORKER_ACTIVE) {
		/* It was replaced. */
		worker->state = WORKER_CONDEMNED;
	}
}

static uint32_t active_of(const struct domain *domain)
{
	struct kept_domain kept;

	return record_read(domain->record, &kept, sizeof(kept)) ? kept.active : 0;
}

static void read_worker(struct daemon *daemon, const struct record *record)
{
	size_t bytes;
	const struct kept_worker *kept = record_payload(record, &bytes);
	struct domain *domain = daemon_find_domain(daemon, kept->domain);
	struct worker *worker = NULL;

	if (domain || (!kept->domain && kept->keeper_number == daemon->keeper_number))
		worker = worker_adopt(daemon, domain, (uint32_t)record_key(record), kept, bytes);
	if (!worker) {
		/* It sees the hang-up. */
		store_drop(daemon->store, record);
		return;
	}
	worker->record = record;
	/* A standby that was being told things: nobody knows how far it got. */
	worker->mirrors = worker->state == WORKER_WARM && !kept->in_step;
	if (domain)
		place(domain, worker, active_of(domain));
	else
		daemon->keeper = worker;
}

/*
 * Sessions
 */

static void open_again(struct worker *worker, void *context, const struct record *record)
{
	(void)record;
	client_open_again(context, worker);
}

static void attach_again(struct worker *worker, void *context, const struct record *record)
{
	(void)record;
	client_attach(context, worker);
}

static void close_again(struct worker *worker, void *context, const struct record *record)
{
	(void)record;
	client_close_again(context, worker);
}

static void let_go_again(struct worker *worker, void *context, const struct record *record)
{
	(void)record;
	move_let_go_again(context, worker);
}

static void ask_again(struct worker *worker, void *context, const struct record *record)
{
	struct client *client = context;

	(void)record;
	request_send_again(client->request, worker);
}

static void repeat_call(struct adoption *adoption, struct client *client, struct kept_call *call,
	void (*send)(struct worker *worker, void *context, const struct record *record))
{
	struct worker *worker = find_worker(adoption->daemon, call->worker);

	if (worker)
		repeat(adoption, worker, call->id, send, client, NULL);
	else
		*call = (struct kept_call){0};
}

/* Reads the request that was under way from the client's socket, where it still is. */
static void read_request(struct adoption *adoption, struct client *client, const struct kept_client *kept)
{
	struct worker *worker = find_worker(adoption->daemon, kept->request.worker);

	if (!kept->asked || client->state == CLIENT_CLOSING)
		return;
	client->again.asked = kept->asked;
	client->again.fd = shared_of(adoption, kept->request_fd);
	client->again.chunk = chunk_of(adoption, &kept->chunk);
	connection_deliver(client->connection);
	if (!client->request || !worker)
		return;
	client->request->sent = true;
	client->request->worker = worker->number;
	client->request->worker_id = kept->request.id;
	repeat(adoption, worker, kept->request.id, ask_again, client, NULL);
}

static int read_client(struct adoption *adoption, const struct record *record, bool crashed)
{
	struct daemon *daemon = adoption->daemon;
	struct kept_client kept;
	struct domain *domain;
	struct client *client;

	if (!record_read(record, &kept, sizeof(kept)) || !(domain = daemon_find_domain(daemon, kept.domain)))
		return -1;
	client = client_adopt(domain, record_key(record), &kept);
	if (!client)
		return -1;
	client->record = record;
	client->held = domain->promotion.lost_one;
	client->crashes += crashed && kept.asked;
	if (client->opened && client->state == CLIENT_CLOSING)
		reclaim_begin(daemon);
	for (int i = 0; i < 2; i++)
		client->sinks[i] = chunk_of(adoption, &kept.sinks[i]);
	read_request(adoption, client, &kept);
	repeat_call(adoption, client, &client->open, open_again);
	repeat_call(adoption, client, &client->attach, attach_again);
	repeat_call(adoption, client, &client->let_go, let_go_again);
	if (client->let_go.worker)
		move_adopt(client, kept.let_go_to);
	for (unsigned i = 0; i < KEPT_CLOSES; i++)
		repeat_call(adoption, client, &client->closes[i], close_again);
	return 0;
}

static void read_holding(struct adoption *adoption, const struct record *record)
{
	size_t bytes;
	const struct kept_holding *kept = record_payload(record, &bytes);
	struct client *client = daemon_find_client(adoption->daemon, kept->session);

	/* A session's record goes behind those of its holdings. */
	log_bug_on(!client);
	log_bug_on(holdings_adopt(&client->holdings, record, kept, bytes, shared_of(adoption, kept->fd),
			   chunk_of(adoption, &kept->chunk)) < 0);
}

static void ask_linger(struct worker *worker, void *context, const struct record *record)
{
	struct kept_linger kept;

	record_read(record, &kept, sizeof(kept));
	linger_adopt(context, worker, &kept, record);
}

static void read_linger(struct adoption *adoption, const struct record *record)
{
	struct daemon *daemon = adoption->daemon;
	struct kept_linger kept;
	struct domain *domain;
	struct worker *worker;

	log_bug_on(!record_read(record, &kept, sizeof(kept)));
	worker = find_worker(daemon, kept.call.worker);
	domain = daemon_find_domain(daemon, kept.domain);
	if (worker && domain)
		repeat(adoption, worker, kept.call.id, ask_linger, domain, record);
	else
		store_drop(daemon->store, record);
}

/*
 * Steps
 */

static int read_everything(struct adoption *adoption, const struct legacy *legacy)
{
	struct daemon *daemon = adoption->daemon;
	const struct record **records;
	size_t count;
	int r = 0;

	if (read_service(daemon, legacy))
		return -1;
	read_doomed(adoption);
	count = store_list(daemon->store, RECORD_DOMAIN, &records);
	for (size_t i = 0; i < count; i++)
		read_domain(daemon, records[i]);
	free(records);
	count = store_list(daemon->store, RECORD_WORKER, &records);
	for (size_t i = 0; i < count; i++)
		read_worker(daemon, records[i]);
	free(records);
	count = store_list(daemon->store, RECORD_CLIENT, &records);
	for (size_t i = 0; i < count && !r; i++)
		r = read_client(
			adoption, records[i], legacy->latest_signal && legacy->latest_signal != SIGKILL);
	free(records);
	count = r ? 0 : store_list(daemon->store, RECORD_HOLDING, &records);
	for (size_t i = 0; i < count; i++)
		read_holding(adoption, records[i]);
	if (!r)
		free(records);
	count = r ? 0 : store_list(daemon->store, RECORD_LINGER, &records);
	for (size_t i = 0; i < count; i++)
		read_linger(adoption, records[i]);
	if (!r)
		free(records);
	count = r ? 0 : store_list(daemon->store, RECORD_PROBATION, &records);
	for (size_t i = 0; i < count; i++)
		probation_adopt(daemon, records[i]);
	if (!r)
		free(records);
	return r;
}

static int compare(const void *left, const void *right)
{
	const struct repetition *a = left, *b = right;

	if (a->worker->number != b->worker->number)
		return a->worker->number < b->worker->number ? -1 : 1;
	return a->id < b->id ? -1 : a->id > b->id;
}

static void activate_again(struct worker *worker, void *context, const struct record *record)
{
	(void)worker;
	(void)record;
	promote_activate_again(context);
}

/* The numbers of then, in their order: a worker drops those that it has seen. */
static void repeat_everything(struct adoption *adoption)
{
	struct daemon *daemon = adoption->daemon;
	struct domain *domain;

	repeat_doomed(adoption);
	TAILQ_FOREACH (domain, &daemon->domains, link)
		if (domain->active && domain->activate_id && domain->promotion.state == PROMOTE_ACTIVATING)
			repeat(adoption, domain->active, domain->activate_id, activate_again, domain, NULL);
	if (adoption->repetition_count)
		qsort(adoption->repetitions, adoption->repetition_count, sizeof(*adoption->repetitions),
			compare);
	for (size_t i = 0; i < adoption->repetition_count; i++) {
		const struct repetition *one = &adoption->repetitions[i];

		one->worker->next_request = one->id;
		one->send(one->worker, one->context, one->record);
		one->worker->next_request = one->worker->first_request;
	}
}

static void resume_promotion(struct domain *domain)
{
	struct promotion *promotion = &domain->promotion;
	uint64_t now_us;

	if (!domain->active) {
		promotion->state = PROMOTE_WAITING;
	} else if (domain->active->state == WORKER_CONDEMNED) {
		promotion->state = PROMOTE_STEADY;
		promote_detect(domain, domain->active);
	} else if (promotion->state == PROMOTE_HALTING) {
		/* Halt is sent again, under a new number: it may be told as often as one likes. */
		now_us = timer_now_us();
		halt_begin(domain,
			promotion->halt_until_us > now_us ? (promotion->halt_until_us - now_us) / 1000 : 0);
	} else if (promotion->state == PROMOTE_STEADY) {
		promotion->asked_us = 0;
		promote_look(domain);
	}
}

/* Whoever is condemned is killed once more; a standby that is behind is replaced. */
static void settle_worker(struct worker *worker)
{
	bool standby = worker->state == WORKER_WARM || worker->state == WORKER_WARMING;

	if (worker->state == WORKER_CONDEMNED)
		worker->daemon->spawner->kill(worker);
	else if (standby && worker->domain && (worker->mirrors || worker->state == WORKER_WARMING)) {
		worker->mirrors = 0;
		worker_condemn(worker, "the daemon died while it was told something");
	}
}

static void settle_domain(struct domain *domain)
{
	struct worker *worker, *next;

	TAILQ_FOREACH (worker, &domain->workers, link)
		settle_worker(worker);
	resume_promotion(domain);
	for (worker = TAILQ_FIRST(&domain->workers); worker; worker = next) {
		next = TAILQ_NEXT(worker, link);
		if (worker->state == WORKER_WARM)
			warm_done(domain, worker);
	}
	domain_watch_idle(domain);
}

/* May end the session. */
static void resume_client(struct client *client)
{
	struct client_again again = client->again;

	client->again = (struct client_again){0};
	shared_fd_unref(again.fd);
	chunk_unref(again.chunk);
	if (client->state == CLIENT_CLOSING)
		client_closing_again(client);
	else if (client->crashes > CRASHES_MOST)
		client_reject(client, "the daemon crashed several times while its request was under way");
	else if (word_acquire(&client->view.server->state) == SHM_SESSION_CLOSED)
		client_end(client, 0);
	else if (client->state == CLIENT_OPENING)
		client_open(client);
	else if (client->request)
		request_advance(client->request);
}

static void go_on(struct adoption *adoption)
{
	struct daemon *daemon = adoption->daemon;
	struct domain *domain, *next_domain;
	struct client *client, *next;

	release_doomed(adoption);
	if (daemon->keeper)
		settle_worker(daemon->keeper);
	TAILQ_FOREACH (domain, &daemon->domains, link)
		settle_domain(domain);
	for (client = TAILQ_FIRST(&daemon->clients); client; client = next) {
		next = TAILQ_NEXT(client, link);
		client_keep(client);
		resume_client(client);
	}
	for (domain = TAILQ_FIRST(&daemon->domains); domain; domain = next_domain) {
		next_domain = TAILQ_NEXT(domain, link);
		probation_turn(domain);
		domain_reap(domain);
	}
	daemon_adopted(daemon);
}

int adopt(struct daemon *daemon, const struct legacy *legacy)
{
	struct adoption adoption = {.daemon = daemon, .made_count = legacy->fd_count};
	uint64_t begin_us = timer_now_us();
	int r;

	adoption.made = calloc(legacy->fd_count + 1, sizeof(*adoption.made));
	log_bug_on(!adoption.made);
	daemon->adopting = true;
	r = read_everything(&adoption, legacy);
	if (!r) {
		repeat_everything(&adoption);
		daemon->adopting = false;
		go_on(&adoption);
		store_close_rest(daemon->store);
		for (uint32_t i = 0; i < legacy->end_count; i++)
			supervise_ended(daemon, legacy->ends[i].pid, legacy->ends[i].status);
		log_info("the daemon is back after %u: it took over %u sessions in %.1f ms", legacy->lives,
			daemon->client_count, (double)(timer_now_us() - begin_us) / 1000.0);
	} else {
		log_error("what the daemon before this one left cannot be taken over");
	}
	free(adoption.made);
	free(adoption.doomed);
	free(adoption.repetitions);
	return r;
}

/*
 * Late answers
 */

static bool is_chunk(const struct chunk *chunk, uint64_t handle, uint32_t keeper)
{
	return chunk && chunk->handle == handle && chunk->keeper == keeper;
}

static bool is_doomed(struct daemon *daemon, uint64_t handle)
{
	const struct record **records;
	size_t count = store_list(daemon->store, RECORD_DOOMED, &records);
	struct kept_doomed kept;
	bool found = false;

	for (size_t i = 0; i < count; i++)
		found |= record_read(records[i], &kept, sizeof(kept)) && kept.chunk.handle == handle &&
			 kept.chunk.keeper == daemon->keeper_number;
	free(records);
	return found;
}

static bool is_known(struct daemon *daemon, uint64_t handle)
{
	const struct holding *entry;
	const struct client *client;

	TAILQ_FOREACH (client, &daemon->clients, link) {
		if (client->request && is_chunk(client->request->chunk, handle, daemon->keeper_number))
			return true;
		for (int i = 0; i < 2; i++)
			if (is_chunk(client->sinks[i], handle, daemon->keeper_number))
				return true;
		TAILQ_FOREACH (entry, &client->holdings.entries, link)
			if (is_chunk(entry->chunk, handle, daemon->keeper_number))
				return true;
	}
	return is_doomed(daemon, handle);
}

void adopt_unclaimed(struct worker *worker, const struct wire_reply *reply, const struct packet *packet)
{
	struct daemon *daemon = worker->daemon;
	struct kept_chunk chunk = {.keeper = daemon->keeper_number};

	if (worker != daemon->keeper || !packet->fd_count || reply->code || !reply->values.count)
		return;
	chunk.handle = reply->values.at[0];
	if (is_known(daemon, chunk.handle))
		return;
	reclaim_begin(daemon);
	chunk_release(daemon, &chunk, NULL);
}
