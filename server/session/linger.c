// Lingers. See linger.h.

#include "server/session/linger.h"

#include <stdlib.h>

#include "server/holder/store.h"
#include "server/log.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/formers.h"
#include "server/session/records.h"
#include "server/session/session.h"
#include "server/session/sink.h"
#include "server/session/window.h"
#include "server/worker/worker.h"

struct linger {
	TAILQ_ENTRY(linger) link; /* domain->lingers */
	struct domain *domain;
	struct worker *worker;
	struct kept_linger kept;
	const struct record *record;
};

static struct wire_message message_of(const struct kept_linger *kept)
{
	struct wire_message message = {.type = (enum wire_type)kept->type, .session = kept->session};

	if (message.type == WIRE_UNMAP_HOST)
		message.range = (struct wire_range){kept->address, kept->range_bytes, kept->flags};
	return message;
}

/* As the worker's next request. */
static void keep(struct linger *linger)
{
	struct store *store = linger->domain->daemon->store;

	linger->kept.call = (struct kept_call){linger->worker->number, linger->worker->next_request};
	linger->record = store_put(store, linger->record, RECORD_LINGER,
		linger->record ? record_key(linger->record) : store_serial(store), &linger->kept,
		sizeof(linger->kept));
}

/* Whether the session may have memory there, and sinks. */
static bool is_mapped(const struct linger *linger)
{
	return linger->kept.type == WIRE_CLOSE_SESSION && !linger->kept.bytes;
}

/* Before that is recorded: a daemon that finds it so has nothing to tell. */
static void say_unmapped(const struct linger *linger)
{
	const struct session *session = daemon_find_session(linger->domain->daemon, linger->kept.session);

	if (session && session->domain != linger->domain && session->state != SESSION_CLOSING &&
		sink_is_there(session))
		formers_tell(session->domain);
}

static void end(struct linger *linger, bool unmapped)
{
	struct domain *domain = linger->domain;

	TAILQ_REMOVE(&domain->lingers, linger, link);
	for (uint32_t i = 0; i < linger->kept.run_count; i++)
		window_give_run(&domain->windows, linger->kept.runs[i].first, linger->kept.runs[i].count);
	if (unmapped)
		say_unmapped(linger);
	store_drop(domain->daemon->store, linger->record);
	free(linger);
}

/* Not the last word on a session that was let go: bytes stay pinned. Otherwise, whatever the
 * answer, it is over, or nothing is known of it (it was over already), or the executor is dead. */
static void on_answer(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct linger *linger = context;
	struct wire_message again = message_of(&linger->kept);
	/* The end of a process needs no word. */
	bool unmapped = reply && is_mapped(linger);

	(void)packet;
	/* It said so once, and is asked when that is over: otherwise it could be asked for ever. */
	if (reply && !reply->code && reply->values.count > 1 &&
		(reply->values.at[1] > WINDOW_BYTES || (reply->values.at[1] && linger->kept.bytes)))
		worker_condemn(worker, "says again that a session's memory stays pinned");
	if (!reply || reply->code || reply->values.count < 2 || !reply->values.at[1] ||
		worker->state == WORKER_CONDEMNED) {
		if (linger->kept.type == WIRE_CLOSE_SESSION)
			worker_forget_session(worker, linger->kept.session);
		end(linger, unmapped);
		return;
	}
	linger->kept.bytes = reply->values.at[1];
	if (unmapped)
		say_unmapped(linger);
	keep(linger);
	worker_request(worker, &again, NULL, 0, on_answer, linger);
}

void linger_ask(struct linger *linger)
{
	struct wire_message message = message_of(&linger->kept);

	worker_request(linger->worker, &message, NULL, 0, on_answer, linger);
}

static struct linger *linger_new(struct domain *domain, struct worker *worker, const struct kept_linger *kept)
{
	struct linger *linger = calloc(1, sizeof(*linger));

	log_bug_on(!linger); /* the windows would be given out too early */
	linger->domain = domain;
	linger->worker = worker;
	linger->kept = *kept;
	for (uint32_t i = 0; i < kept->run_count; i++)
		window_take_again(&domain->windows, kept->runs[i].first, kept->runs[i].count);
	TAILQ_INSERT_TAIL(&domain->lingers, linger, link);
	return linger;
}

struct linger *linger_adopt(struct domain *domain, struct worker *worker, const struct kept_linger *kept,
	const struct record *record)
{
	struct linger *linger = linger_new(domain, worker, kept);

	linger->record = record;
	return linger;
}

static void begin(struct session *session, struct worker *worker, struct kept_linger *kept)
{
	struct linger *linger;

	kept->session = session->number;
	kept->domain = session->domain->number;
	linger = linger_new(session->domain, worker, kept);
	keep(linger);
	linger_ask(linger);
}

void linger_begin(
	struct session *session, struct worker *worker, const struct wire_message *message, uint64_t bytes)
{
	struct kept_linger kept = {.bytes = bytes, .type = message->type};

	if (message->type == WIRE_UNMAP_HOST) {
		kept.address = message->range.address;
		kept.range_bytes = message->range.bytes;
		kept.flags = message->range.flags;
	} else {
		kept.run_count = 1;
		kept.runs[0] = (struct kept_windows){session->window, 1};
	}
	begin(session, worker, &kept);
}

void linger_leave(struct session *session, struct worker *worker)
{
	struct kept_linger kept = {
		.type = WIRE_CLOSE_SESSION, .run_count = 1, .runs = {{session->window, 1}}};
	const struct holding *entry;

	TAILQ_FOREACH (entry, &session->holdings.entries, link) {
		if (entry->type != WIRE_RESERVE_WINDOW)
			continue;
		log_bug_on(kept.run_count == KEPT_RUNS);
		kept.runs[kept.run_count++] = (struct kept_windows){
			window_at(entry->range.address), (uint32_t)(entry->range.bytes / WINDOW_BYTES)};
	}
	begin(session, worker, &kept);
}

uint64_t linger_bytes(const struct domain *domain)
{
	const struct linger *linger;
	uint64_t bytes = 0;

	TAILQ_FOREACH (linger, &domain->lingers, link)
		if (linger->worker == domain->active)
			bytes += linger->kept.bytes;
	return bytes;
}

uint32_t linger_list(const struct session *session, uint32_t *pids, uint32_t room)
{
	const struct domain *domain;
	const struct linger *linger;
	uint32_t count = 0;

	TAILQ_FOREACH (domain, &session->daemon->domains, link) {
		if (domain == session->domain)
			continue;
		TAILQ_FOREACH (linger, &domain->lingers, link)
			if (linger->kept.session == session->number && is_mapped(linger) && count < room)
				pids[count++] = (uint32_t)linger->worker->pid;
	}
	return count;
}
