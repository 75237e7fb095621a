// Lingers. See linger.h.

#include "server/session/linger.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "server/holder/store.h"
#include "server/log.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/due.h"
#include "server/session/records.h"
#include "server/session/session.h"
#include "server/session/window.h"
#include "server/worker/worker.h"

struct linger {
	TAILQ_ENTRY(linger) link; /* domain->lingers */
	struct domain *domain;
	struct worker *worker;
	const struct record *record;
	struct kept_linger kept; /* the record, with the windows behind */
	struct kept_window windows[];
};

static struct wire_message message_of(const struct kept_linger *kept)
{
	struct wire_message message = {.type = (enum wire_type)kept->type, .session = kept->session};

	if (message.type == WIRE_UNMAP_HOST)
		message.range = (struct wire_range){kept->address, kept->range_bytes, kept->flags};
	return message;
}

/* The record has both fields in this layout. */
static_assert(offsetof(struct linger, windows) == offsetof(struct linger, kept) + sizeof(struct kept_linger),
	"the windows follow at once");

static size_t record_bytes(uint32_t windows)
{
	return sizeof(struct kept_linger) + windows * sizeof(struct kept_window);
}

/* As the worker's next request. */
static void keep(struct linger *linger)
{
	struct store *store = linger->domain->daemon->store;

	linger->kept.call = (struct kept_call){linger->worker->number, linger->worker->next_request};
	linger->record = store_put(store, linger->record, RECORD_LINGER,
		linger->record ? record_key(linger->record) : store_serial(store), &linger->kept,
		record_bytes(linger->kept.window_count));
}

static void end(struct linger *linger)
{
	struct domain *domain = linger->domain;
	struct session *session = daemon_find_session(domain->daemon, linger->kept.session);

	TAILQ_REMOVE(&domain->lingers, linger, link);
	for (uint32_t i = 0; i < linger->kept.window_count; i++)
		window_give(&domain->windows, linger->windows[i].address);
	store_drop(domain->daemon->store, linger->record);
	free(linger);
	if (session)
		due_session(session, SESSION_DUE_GO_ON);
}

/* For a session that has moved away, the first answer may not be the last: bytes may stay pinned.
 * Otherwise the linger is over with any answer; or the executor does not know it (it was over
 * already), or is dead. */
static void on_answer(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct linger *linger = context;
	struct wire_message again = message_of(&linger->kept);

	(void)packet;
	/* An executor may answer so once; the next answer must say that this is over. Otherwise the
	 * daemon could go on asking for ever. */
	if (reply && !reply->code && reply->values.count > 1 &&
		(reply->values.at[1] > WINDOW_BYTES || (reply->values.at[1] && linger->kept.bytes)))
		worker_terminate(worker, "it says again that a session's memory stays pinned");
	if (!reply || reply->code || reply->values.count < 2 || !reply->values.at[1] ||
		worker->state == WORKER_TERMINATING) {
		if (linger->kept.type == WIRE_CLOSE_SESSION)
			worker_forget_session(worker, linger->kept.session);
		end(linger);
		return;
	}
	linger->kept.bytes = reply->values.at[1];
	keep(linger);
	worker_request(worker, &again, NULL, 0, on_answer, linger);
}

void linger_ask(struct linger *linger)
{
	struct wire_message message = message_of(&linger->kept);

	worker_request(linger->worker, &message, NULL, 0, on_answer, linger);
}

/* @windows: room for so many */
static struct linger *linger_new(struct domain *domain, struct worker *worker, uint32_t windows)
{
	struct linger *linger = calloc(1, sizeof(*linger) + windows * sizeof(*linger->windows));

	log_bug_on(!linger); /* the windows would be given out too early */
	linger->domain = domain;
	linger->worker = worker;
	TAILQ_INSERT_TAIL(&domain->lingers, linger, link);
	return linger;
}

static void hold(struct linger *linger, uint64_t address, uint64_t bytes)
{
	linger->windows[linger->kept.window_count++] = (struct kept_window){address, bytes};
	window_hold(&linger->domain->windows, address, bytes);
}

struct linger *linger_adopt(struct domain *domain, struct worker *worker, const struct kept_linger *kept,
	const struct record *record)
{
	const struct kept_window *windows;
	struct linger *linger;
	size_t bytes;

	windows = (const void *)((const char *)record_payload(record, &bytes) + sizeof(*kept));
	if (kept->window_count > 1 + HOLDINGS_WINDOWS_MAX || bytes < record_bytes(kept->window_count))
		return NULL;
	linger = linger_new(domain, worker, kept->window_count);
	linger->record = record;
	linger->kept = *kept;
	linger->kept.window_count = 0;
	for (uint32_t i = 0; i < kept->window_count; i++)
		if (window_is_possible(&domain->windows, windows[i].address, windows[i].bytes))
			hold(linger, windows[i].address, windows[i].bytes);
	return linger;
}

static struct linger *begin(
	struct session *session, struct worker *worker, enum wire_type type, uint32_t windows)
{
	struct linger *linger = linger_new(session->domain, worker, windows);

	linger->kept.type = type;
	linger->kept.session = session->number;
	linger->kept.domain = session->domain->number;
	if (windows)
		hold(linger, session->window, WINDOW_BYTES);
	return linger;
}

static void keep_and_ask(struct linger *linger)
{
	keep(linger);
	linger_ask(linger);
}

void linger_begin(
	struct session *session, struct worker *worker, const struct wire_message *message, uint64_t bytes)
{
	bool closes = message->type == WIRE_CLOSE_SESSION;
	struct linger *linger = begin(session, worker, message->type, closes ? 1 : 0);

	linger->kept.bytes = bytes;
	if (!closes) {
		linger->kept.address = message->range.address;
		linger->kept.range_bytes = message->range.bytes;
		linger->kept.flags = message->range.flags;
	}
	keep_and_ask(linger);
}

void linger_leave(struct session *session, struct worker *worker)
{
	struct linger *linger = begin(session, worker, WIRE_CLOSE_SESSION, 1 + session->holdings.windows);
	const struct holding *entry;

	TAILQ_FOREACH (entry, &session->holdings.entries, link)
		if (entry->type == WIRE_RESERVE_WINDOW)
			hold(linger, entry->range.address, entry->range.bytes);
	keep_and_ask(linger);
}

bool linger_touches(const struct session *session, uint64_t address, uint64_t bytes)
{
	const struct domain *domain = session->domain;
	const struct linger *linger;

	TAILQ_FOREACH (linger, &domain->lingers, link)
		if (linger->kept.type == WIRE_UNMAP_HOST && linger->kept.session == session->number &&
			linger->worker == domain->active && linger->kept.address < address + bytes &&
			address < linger->kept.address + linger->kept.range_bytes)
			return true;
	return false;
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
