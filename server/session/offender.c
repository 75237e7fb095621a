// See offender.h.

#include "server/session/offender.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/config/config.h"
#include "server/holder/store.h"
#include "server/log.h"
#include "server/loop/timer.h"
#include "server/session/daemon.h"
#include "server/session/records.h"

static struct offender *find(const struct daemon *daemon, uid_t uid, const char *program)
{
	struct offender *offender;

	TAILQ_FOREACH (offender, &daemon->offenders, link)
		if (offender->uid == uid && !strcmp(offender->program, program))
			return offender;
	return NULL;
}

static void forget(struct daemon *daemon, struct offender *offender)
{
	TAILQ_REMOVE(&daemon->offenders, offender, link);
	store_drop(daemon->store, offender->record);
	free(offender);
}

void offender_expire(struct daemon *daemon)
{
	const uint64_t now_us = timer_now_us(), most_us = OFFENDER_SECONDS * UINT64_C(1000000);
	struct offender *offender;

	while ((offender = TAILQ_LAST(&daemon->offenders, offender_list)) &&
		now_us - offender->latest_us >= most_us)
		forget(daemon, offender);
}

/* The user's oldest goes if there are as many as there may be. */
static void make_room(struct daemon *daemon, uid_t uid)
{
	struct offender *offender, *oldest = NULL;
	unsigned count = 0;

	TAILQ_FOREACH (offender, &daemon->offenders, link)
		if (offender->uid == uid) {
			oldest = offender;
			count++;
		}
	if (count >= OFFENDERS_PER_USER)
		forget(daemon, oldest);
}

static void keep(struct daemon *daemon, struct offender *offender)
{
	struct kept_offender kept = {
		.uid = offender->uid, .faults = offender->faults, .latest_us = offender->latest_us};

	memcpy(kept.program, offender->program, sizeof(kept.program));
	offender->record = store_put(
		daemon->store, offender->record, RECORD_OFFENDER, offender->number, &kept, sizeof(kept));
}

static struct offender *begin(struct daemon *daemon, const struct session *session)
{
	struct offender *offender = calloc(1, sizeof(*offender));

	if (!offender)
		return NULL;
	make_room(daemon, session->uid);
	offender->number = ++daemon->latest_offender;
	offender->uid = session->uid;
	memcpy(offender->program, session->identity, sizeof(offender->program));
	TAILQ_INSERT_HEAD(&daemon->offenders, offender, link);
	return offender;
}

void offender_note(struct daemon *daemon, const struct session *session)
{
	const struct event_about about = events_about(session);
	struct offender *offender;

	offender_expire(daemon);
	offender = find(daemon, session->uid, session->identity);
	if (!offender)
		offender = begin(daemon, session);
	if (!offender)
		return;
	TAILQ_REMOVE(&daemon->offenders, offender, link);
	TAILQ_INSERT_HEAD(&daemon->offenders, offender, link);
	offender->latest_us = timer_now_us();
	offender->faults++;
	keep(daemon, offender);
	if (offender->faults == daemon->config->quarantine_faults)
		events_note(daemon, EVENT_quarantine, LOG_LEVEL_WARNING, &about,
			"%s of uid %lld has had %llu faults: it gets executors of its own from now on",
			offender->program, (long long)offender->uid, (unsigned long long)offender->faults);
}

bool offender_is_quarantined(struct daemon *daemon, uid_t uid, const char *program)
{
	const struct offender *offender;

	offender_expire(daemon);
	offender = find(daemon, uid, program);
	return daemon->config->quarantine_faults && offender &&
	       offender->faults >= daemon->config->quarantine_faults;
}

struct offender *offender_find(struct daemon *daemon, uint64_t number)
{
	struct offender *offender;

	offender_expire(daemon);
	TAILQ_FOREACH (offender, &daemon->offenders, link)
		if (offender->number == number)
			return offender;
	return NULL;
}

void offender_lift(struct daemon *daemon, struct offender *offender)
{
	const struct event_about about = {.uid = offender->uid};

	events_note(daemon, EVENT_quarantine, LOG_LEVEL_INFO, &about,
		"the faults of %s of uid %lld are forgotten: an operator said so. Its next process shares, "
		"those "
		"that run stay as they are",
		offender->program, (long long)offender->uid);
	forget(daemon, offender);
}

/* Records come by their numbers, which do not give the order of the latest faults. */
static void insert(struct daemon *daemon, struct offender *offender)
{
	struct offender *later;

	TAILQ_FOREACH_REVERSE (later, &daemon->offenders, offender_list, link)
		if (later->latest_us >= offender->latest_us) {
			TAILQ_INSERT_AFTER(&daemon->offenders, later, offender, link);
			return;
		}
	TAILQ_INSERT_HEAD(&daemon->offenders, offender, link);
}

void offender_adopt(struct daemon *daemon, const struct record *record)
{
	struct offender *offender = calloc(1, sizeof(*offender));
	struct kept_offender kept;

	log_bug_on(!offender || !record_read(record, &kept, sizeof(kept)));
	offender->number = record_key(record);
	offender->uid = (uid_t)kept.uid;
	offender->faults = kept.faults;
	offender->latest_us = kept.latest_us;
	offender->record = record;
	memcpy(offender->program, kept.program, sizeof(offender->program));
	if (daemon->latest_offender < offender->number)
		daemon->latest_offender = offender->number;
	insert(daemon, offender);
}

void offender_deinit(struct daemon *daemon)
{
	struct offender *offender;

	while ((offender = TAILQ_FIRST(&daemon->offenders))) {
		TAILQ_REMOVE(&daemon->offenders, offender, link);
		free(offender);
	}
}
