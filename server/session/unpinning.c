// Unpinnings. See unpinning.h.

#include "server/session/unpinning.h"

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

struct unpinning {
	TAILQ_ENTRY(unpinning) link; /* domain->unpinnings */
	struct domain *domain;
	struct worker *worker;
	const struct record *record;
	struct kept_unpinning kept; /* the record, with the windows behind */
	struct kept_window windows[];
};

static struct wire_message message_of(const struct kept_unpinning *kept)
{
	struct wire_message message = {.type = (enum wire_type)kept->type, .session = kept->session};

	if (message.type == WIRE_UNMAP_HOST)
		message.range = (struct wire_range){
			.address = kept->address, .bytes = kept->range_bytes, .flags = kept->flags};
	return message;
}

/* The record has both fields in this layout. */
static_assert(offsetof(struct unpinning, windows) ==
		      offsetof(struct unpinning, kept) + sizeof(struct kept_unpinning),
	"the windows follow at once");

static size_t record_bytes(uint32_t windows)
{
	return sizeof(struct kept_unpinning) + windows * sizeof(struct kept_window);
}

/* As the worker's next request. */
static void keep(struct unpinning *unpinning)
{
	struct store *store = unpinning->domain->daemon->store;

	unpinning->kept.call = (struct kept_call){unpinning->worker->number, unpinning->worker->next_request};
	unpinning->record = store_put(store, unpinning->record, RECORD_UNPINNING,
		unpinning->record ? record_key(unpinning->record) : store_serial(store), &unpinning->kept,
		record_bytes(unpinning->kept.window_count));
}

static void end(struct unpinning *unpinning)
{
	struct domain *domain = unpinning->domain;
	struct session *session = daemon_find_session(domain->daemon, unpinning->kept.session);

	TAILQ_REMOVE(&domain->unpinnings, unpinning, link);
	for (uint32_t i = 0; i < unpinning->kept.window_count; i++)
		window_give(&domain->windows, unpinning->windows[i].address);
	store_drop(domain->daemon->store, unpinning->record);
	free(unpinning);
	if (session)
		due_session(session, SESSION_DUE_GO_ON);
}

/* For a session that has moved away, the first answer may not be the last: bytes may stay pinned.
 * Otherwise the unpinning is over with any answer; or the executor does not know it (it was over
 * already), or is dead. */
static void on_answer(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct unpinning *unpinning = context;
	struct wire_message again = message_of(&unpinning->kept);

	(void)packet;
	/* An executor may answer so once; the next answer must say that this is over. Otherwise the
	 * daemon could go on asking for ever. */
	if (reply && !reply->code && reply->values.count > 1 &&
		(reply->values.at[1] > unpinning->kept.window_count * WINDOW_BYTES ||
			(reply->values.at[1] && unpinning->kept.bytes)))
		worker_terminate(worker, "it says again that a session's memory stays pinned");
	if (!reply || reply->code || reply->values.count < 2 || !reply->values.at[1] ||
		worker->state == WORKER_TERMINATING) {
		if (unpinning->kept.type == WIRE_CLOSE_SESSION)
			worker_forget_session(worker, unpinning->kept.session);
		end(unpinning);
		return;
	}
	unpinning->kept.bytes = reply->values.at[1];
	keep(unpinning);
	worker_request(worker, &again, NULL, 0, on_answer, unpinning);
}

void unpinning_ask(struct unpinning *unpinning)
{
	struct wire_message message = message_of(&unpinning->kept);

	worker_request(unpinning->worker, &message, NULL, 0, on_answer, unpinning);
}

/* @windows: room for so many */
static struct unpinning *unpinning_new(struct domain *domain, struct worker *worker, uint32_t windows)
{
	struct unpinning *unpinning = calloc(1, sizeof(*unpinning) + windows * sizeof(*unpinning->windows));

	log_bug_on(!unpinning); /* the windows would be given out too early */
	unpinning->domain = domain;
	unpinning->worker = worker;
	TAILQ_INSERT_TAIL(&domain->unpinnings, unpinning, link);
	return unpinning;
}

static void hold(struct unpinning *unpinning, uint64_t address, uint64_t bytes)
{
	unpinning->windows[unpinning->kept.window_count++] = (struct kept_window){address, bytes};
	window_hold(&unpinning->domain->windows, address, bytes);
}

struct unpinning *unpinning_adopt(struct domain *domain, struct worker *worker,
	const struct kept_unpinning *kept, const struct record *record)
{
	const struct kept_window *windows;
	struct unpinning *unpinning;
	size_t bytes;

	windows = (const void *)((const char *)record_payload(record, &bytes) + sizeof(*kept));
	if (kept->window_count > 1 + HOLDINGS_WINDOWS_MAX || bytes < record_bytes(kept->window_count))
		return NULL;
	unpinning = unpinning_new(domain, worker, kept->window_count);
	unpinning->record = record;
	unpinning->kept = *kept;
	unpinning->kept.window_count = 0;
	for (uint32_t i = 0; i < kept->window_count; i++)
		if (window_is_possible(&domain->windows, windows[i].address, windows[i].bytes))
			hold(unpinning, windows[i].address, windows[i].bytes);
	return unpinning;
}

/* @windows: room for so many */
static struct unpinning *begin(
	struct session *session, struct worker *worker, enum wire_type type, uint32_t windows)
{
	struct unpinning *unpinning = unpinning_new(session->domain, worker, windows);

	unpinning->kept.type = type;
	unpinning->kept.session = session->number;
	unpinning->kept.domain = session->domain->number;
	return unpinning;
}

/* @is_left: the executor may have device memory of the session, too */
static struct unpinning *begin_close(struct session *session, struct worker *worker, bool is_left)
{
	struct unpinning *unpinning =
		begin(session, worker, WIRE_CLOSE_SESSION, 1 + session->holdings.windows);
	const struct holding *entry;

	hold(unpinning, session->window, WINDOW_BYTES);
	TAILQ_FOREACH (entry, &session->holdings.entries, link)
		if (holding_is_host_window(entry) || (is_left && entry->type == WIRE_RESERVE_WINDOW))
			hold(unpinning, entry->range.address, entry->range.bytes);
	return unpinning;
}

static void keep_and_ask(struct unpinning *unpinning)
{
	keep(unpinning);
	unpinning_ask(unpinning);
}

void unpinning_begin(
	struct session *session, struct worker *worker, const struct wire_message *message, uint64_t bytes)
{
	struct unpinning *unpinning;

	if (message->type == WIRE_CLOSE_SESSION) {
		unpinning = begin_close(session, worker, false);
	} else {
		unpinning = begin(session, worker, message->type, 0);
		unpinning->kept.address = message->range.address;
		unpinning->kept.range_bytes = message->range.bytes;
		unpinning->kept.flags = message->range.flags;
	}
	unpinning->kept.bytes = bytes;
	keep_and_ask(unpinning);
}

void unpinning_leave(struct session *session, struct worker *worker)
{
	keep_and_ask(begin_close(session, worker, true));
}

bool unpinning_touches(const struct session *session, uint64_t address, uint64_t bytes)
{
	const struct domain *domain = session->domain;
	const struct unpinning *unpinning;

	TAILQ_FOREACH (unpinning, &domain->unpinnings, link)
		if (unpinning->kept.type == WIRE_UNMAP_HOST && unpinning->kept.session == session->number &&
			unpinning->worker == domain->active && unpinning->kept.address < address + bytes &&
			address < unpinning->kept.address + unpinning->kept.range_bytes)
			return true;
	return false;
}

uint64_t unpinning_bytes(const struct domain *domain)
{
	const struct unpinning *unpinning;
	uint64_t bytes = 0;

	TAILQ_FOREACH (unpinning, &domain->unpinnings, link)
		if (unpinning->worker == domain->active)
			bytes += unpinning->kept.bytes;
	return bytes;
}

bool unpinning_is_of(const struct daemon *daemon, uint64_t session)
{
	const struct domain *domain;
	const struct unpinning *unpinning;

	TAILQ_FOREACH (domain, &daemon->domains, link)
		TAILQ_FOREACH (unpinning, &domain->unpinnings, link)
			if (unpinning->kept.session == session && unpinning->kept.type == WIRE_CLOSE_SESSION)
				return true;
	return false;
}
