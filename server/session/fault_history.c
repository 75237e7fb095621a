// See fault_history.h.

#include "server/session/fault_history.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/config/config.h"
#include "server/holder/store.h"
#include "server/log.h"
#include "server/loop/timer.h"
#include "server/session/daemon.h"
#include "server/session/owner.h"
#include "server/session/records.h"

static struct fault_history *find(const struct daemon *daemon, uid_t uid, const char *program)
{
	struct fault_history *history;

	TAILQ_FOREACH (history, &daemon->fault_histories, link)
		if (history->uid == uid && !strcmp(history->program, program))
			return history;
	return NULL;
}

static void forget(struct daemon *daemon, struct fault_history *history)
{
	TAILQ_REMOVE(&daemon->fault_histories, history, link);
	store_drop(daemon->store, history->record);
	free(history);
}

void fault_history_expire(struct daemon *daemon)
{
	const uint64_t now_us = timer_now_us(), most_us = FAULT_HISTORY_SECONDS * UINT64_C(1000000);
	struct fault_history *history;

	while ((history = TAILQ_LAST(&daemon->fault_histories, fault_history_list)) &&
		now_us - history->latest_us >= most_us)
		forget(daemon, history);
}

/* The user's oldest goes if there are as many as there may be. */
static void make_room(struct daemon *daemon, uid_t uid)
{
	struct fault_history *history, *oldest = NULL;
	unsigned count = 0;

	TAILQ_FOREACH (history, &daemon->fault_histories, link)
		if (history->uid == uid) {
			oldest = history;
			count++;
		}
	if (count >= FAULT_HISTORIES_PER_USER)
		forget(daemon, oldest);
}

static void keep(struct daemon *daemon, struct fault_history *history)
{
	struct kept_fault_history kept = {
		.uid = history->uid, .faults = history->faults, .latest_us = history->latest_us};

	memcpy(kept.program, history->program, sizeof(kept.program));
	history->record = store_put(
		daemon->store, history->record, RECORD_FAULT_HISTORY, history->number, &kept, sizeof(kept));
}

static struct fault_history *begin(struct daemon *daemon, const struct session *session)
{
	struct fault_history *history = calloc(1, sizeof(*history));

	if (!history)
		return NULL;
	make_room(daemon, session->uid);
	history->number = ++daemon->latest_fault_history;
	history->uid = session->uid;
	memcpy(history->program, session->identity, sizeof(history->program));
	TAILQ_INSERT_HEAD(&daemon->fault_histories, history, link);
	return history;
}

void fault_history_note(struct daemon *daemon, const struct session *session)
{
	const struct event_about about = events_about(session);
	struct fault_history *history;

	fault_history_expire(daemon);
	history = find(daemon, session->uid, session->identity);
	if (!history)
		history = begin(daemon, session);
	if (!history)
		return;
	TAILQ_REMOVE(&daemon->fault_histories, history, link);
	TAILQ_INSERT_HEAD(&daemon->fault_histories, history, link);
	history->latest_us = timer_now_us();
	history->faults++;
	keep(daemon, history);
	if (history->faults == daemon->config->quarantine_faults)
		events_note(daemon, EVENT_quarantine, LOG_LEVEL_WARNING, &about,
			"%s of uid %lld has had %llu faults: it gets executors of its own from now on",
			history->program, (long long)history->uid, (unsigned long long)history->faults);
}

bool fault_history_is_quarantined(struct daemon *daemon, uid_t uid, const char *program)
{
	const struct fault_history *history;

	fault_history_expire(daemon);
	history = find(daemon, uid, program);
	return daemon->config->quarantine_faults && history &&
	       history->faults >= daemon->config->quarantine_faults;
}

uint64_t fault_history_pace(struct daemon *daemon, uid_t uid, const char *program)
{
	const uint64_t now_us = timer_now_us(), pace_us = FAULT_HISTORY_PACE_MS * UINT64_C(1000);
	struct fault_history *history;
	uint64_t next_us = now_us;

	TAILQ_FOREACH (history, &daemon->fault_histories, link)
		if (history->started_us && history->started_us + pace_us > next_us &&
			owner_of(history->uid) == owner_of(uid))
			next_us = history->started_us + pace_us;
	history = find(daemon, uid, program);
	if (history)
		history->started_us = next_us;
	return (next_us - now_us + 999) / 1000;
}

struct fault_history *fault_history_find(struct daemon *daemon, uint64_t number)
{
	struct fault_history *history;

	fault_history_expire(daemon);
	TAILQ_FOREACH (history, &daemon->fault_histories, link)
		if (history->number == number)
			return history;
	return NULL;
}

void fault_history_lift(struct daemon *daemon, struct fault_history *history)
{
	const struct event_about about = {.uid = history->uid};

	events_note(daemon, EVENT_quarantine, LOG_LEVEL_INFO, &about,
		"the faults of %s of uid %lld are forgotten: an operator said so. Its next process shares, "
		"those that run stay as they are",
		history->program, (long long)history->uid);
	forget(daemon, history);
}

/* Records come by their numbers, which do not give the order of the latest faults. */
static void insert(struct daemon *daemon, struct fault_history *history)
{
	struct fault_history *later;

	TAILQ_FOREACH_REVERSE (later, &daemon->fault_histories, fault_history_list, link)
		if (later->latest_us >= history->latest_us) {
			TAILQ_INSERT_AFTER(&daemon->fault_histories, later, history, link);
			return;
		}
	TAILQ_INSERT_HEAD(&daemon->fault_histories, history, link);
}

void fault_history_adopt(struct daemon *daemon, const struct record *record)
{
	struct fault_history *history = calloc(1, sizeof(*history));
	struct kept_fault_history kept;

	log_bug_on(!history || !record_read(record, &kept, sizeof(kept)));
	history->number = record_key(record);
	history->uid = (uid_t)kept.uid;
	history->faults = kept.faults;
	history->latest_us = kept.latest_us;
	history->record = record;
	memcpy(history->program, kept.program, sizeof(history->program));
	if (daemon->latest_fault_history < history->number)
		daemon->latest_fault_history = history->number;
	insert(daemon, history);
}

void fault_history_deinit(struct daemon *daemon)
{
	struct fault_history *history;

	while ((history = TAILQ_FIRST(&daemon->fault_histories))) {
		TAILQ_REMOVE(&daemon->fault_histories, history, link);
		free(history);
	}
}
