// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Offenders. See offender.h. A short list: the one that has been quiet for longest is forgotten when it is
// full.

#include "server/session/offender.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/config/config.h"
#include "server/log.h"
#include "server/session/client.h"
#include "server/session/daemon.h"

#define OFFENDERS_MAX 256u

struct offender {
	TAILQ_ENTRY(offender) link; /* latest first */
	uid_t uid;
	char program[CLIENT_PROGRAM_MAX];
	uint64_t faults;
};

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
	daemon->offender_count--;
	free(offender);
}

void offender_note(struct daemon *daemon, const struct client *client)
{
	struct offender *offender = find(daemon, client->uid, client->program);

	if (offender) {
		TAILQ_REMOVE(&daemon->offenders, offender, link);
	} else {
		if (daemon->offender_count == OFFENDERS_MAX)
			forget(daemon, TAILQ_LAST(&daemon->offenders, offender_list));
		offender = calloc(1, sizeof(*offender));
		if (!offender)
			return;
		offender->uid = client->uid;
		snprintf(offender->program, sizeof(offender->program), "%s", client->program);
		daemon->offender_count++;
	}
	TAILQ_INSERT_HEAD(&daemon->offenders, offender, link);
	if (++offender->faults == daemon->config->quarantine_faults)
		log_warning("%s of uid %lld has had %llu faults: it gets executors of its own from now on",
			offender->program, (long long)offender->uid, (unsigned long long)offender->faults);
}

bool offender_is_quarantined(const struct daemon *daemon, uid_t uid, const char *program)
{
	const struct offender *offender = find(daemon, uid, program);

	return daemon->config->quarantine_faults && offender &&
	       offender->faults >= daemon->config->quarantine_faults;
}

void offender_forget_all(struct daemon *daemon)
{
	while (!TAILQ_EMPTY(&daemon->offenders))
		forget(daemon, TAILQ_FIRST(&daemon->offenders));
}
