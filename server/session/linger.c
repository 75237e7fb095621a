// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Lingers. See linger.h.

#include "server/session/linger.h"

#include <stdlib.h>

#include "server/adopt/records.h"
#include "server/adopt/store.h"
#include "server/failover/worker.h"
#include "server/log.h"
#include "server/session/client.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/window.h"

struct linger {
	TAILQ_ENTRY(linger) link; /* domain->lingers */
	struct domain *domain;
	struct worker *worker;
	uint32_t window; /* WINDOW_NONE: its session goes on */
	uint64_t bytes;
	const struct record *record;
};

/* Whatever the answer: over, nothing known of it (it was over already), or the executor is dead. */
static void on_over(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct linger *linger = context;

	(void)worker;
	(void)reply;
	(void)packet;
	TAILQ_REMOVE(&linger->domain->lingers, linger, link);
	window_give(&linger->domain->windows, linger->window);
	store_drop(linger->domain->daemon->store, linger->record);
	free(linger);
}

static void ask(struct linger *linger, const struct kept_linger *kept)
{
	struct wire_message again = {.type = (enum wire_type)kept->type, .session = kept->session};

	if (again.type == WIRE_UNMAP_HOST)
		again.range = (struct wire_range){kept->address, kept->range_bytes, kept->flags};
	window_adopt(&linger->domain->windows, linger->window);
	TAILQ_INSERT_TAIL(&linger->domain->lingers, linger, link);
	worker_request(linger->worker, &again, NULL, 0, on_over, linger);
}

void linger_adopt(struct domain *domain, struct worker *worker, const struct kept_linger *kept,
	const struct record *record)
{
	struct linger *linger = calloc(1, sizeof(*linger));

	log_bug_on(!linger);
	*linger = (struct linger){.domain = domain,
		.worker = worker,
		.window = kept->window,
		.bytes = kept->bytes,
		.record = record};
	ask(linger, kept);
}

void linger_begin(
	struct client *client, struct worker *worker, const struct wire_message *message, uint64_t bytes)
{
	struct linger *linger = calloc(1, sizeof(*linger));
	struct store *store = client->daemon->store;
	struct kept_linger kept = {.session = client->number,
		.bytes = bytes,
		.type = message->type,
		.domain = client->domain->number,
		.window = message->type == WIRE_UNMAP_HOST ? WINDOW_NONE : client->window,
		.call = {worker->number, worker->next_request}};

	log_bug_on(!linger); /* the window would be given out too early */
	if (message->type == WIRE_UNMAP_HOST) {
		kept.address = message->range.address;
		kept.range_bytes = message->range.bytes;
		kept.flags = message->range.flags;
	}
	*linger = (struct linger){
		.domain = client->domain, .worker = worker, .window = kept.window, .bytes = bytes};
	linger->record = store_put(store, NULL, RECORD_LINGER, store_serial(store), &kept, sizeof(kept));
	ask(linger, &kept);
}

uint64_t linger_bytes(const struct domain *domain)
{
	const struct linger *linger;
	uint64_t bytes = 0;

	TAILQ_FOREACH (linger, &domain->lingers, link)
		if (linger->worker == domain->active)
			bytes += linger->bytes;
	return bytes;
}
