// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Conviction. See convict.h; who is guilty of what is judge.c's.
//
// A loss is unexplained if it shows a fault and nobody is proved guilty. The sessions in doubt at it are its
// suspects. Each keeps what was in doubt, because a busy session is a suspect of nearly every loss, and only
// the same commands tell something:
//   common  in doubt in each of the `unexplained` latest losses that it was a suspect of; known done by the
//	     next loss, whoever's: cleared, the count begins again
//   latest  all that was in doubt at the latest of them, for the judge's elimination
// An explained loss, or one without a fault, clears everybody.
//
// Only work of the lost executor makes a suspect: a session whose header names an older generation was not
// served by it (it ended earlier, or the executor died before it reached it), though its journal is in doubt.

#include "server/failover/convict.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/failover/worker.h"
#include "server/log.h"
#include "server/loop/timer.h"
#include "server/session/client.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"

static void collect(
	const struct promotion *promotion, const struct worker *worker, struct judge_evidence *evidence)
{
	*evidence = (struct judge_evidence){.lost = worker->lost,
		.lost_code = worker->lost_code,
		.exit_signal = worker->exit_signal,
		.killed = worker->exit_signal == 9,
		.suspects = promotion->suspects};
	if (worker->words)
		memcpy(&evidence->words, worker->words, sizeof(evidence->words));
}

static enum judge_history history_of(
	const struct client *client, const struct doubt *now, bool in_doubt, uint64_t latest_loss)
{
	if (!client->latest.count || client->latest_loss != latest_loss)
		return JUDGE_NO_SUSPECT;
	if (doubt_is_passed(&client->latest, &client->view))
		return JUDGE_WENT_ON;
	return in_doubt && doubt_holds(now, &client->latest) ? JUDGE_AGAIN : JUDGE_OPEN;
}

static struct judge_session examine(
	const struct client *client, const struct worker *worker, uint64_t latest_loss, struct doubt *ret_now)
{
	bool served = word_acquire(&client->view.server->generation) == worker->generation;
	struct judge_session session = {.session = client->number};

	doubt_init(ret_now, &client->view);
	session.in_doubt = served && ret_now->count;
	session.history = history_of(client, ret_now, session.in_doubt, latest_loss);
	return session;
}

static void forget(struct client *client)
{
	doubt_deinit(&client->common);
	doubt_deinit(&client->latest);
	client->unexplained = 0;
}

static void remember(struct client *client, const struct doubt *now, uint64_t loss)
{
	if (client->unexplained && doubt_intersect(&client->common, now)) {
		client->unexplained++;
	} else {
		doubt_deinit(&client->common);
		doubt_copy(&client->common, now);
		client->unexplained = 1;
	}
	doubt_deinit(&client->latest);
	doubt_copy(&client->latest, now);
	client->latest_loss = loss;
}

static void update_history(struct client *client, const struct judge_session *session,
	const struct doubt *now, bool explained, uint64_t loss)
{
	if (explained || doubt_is_done(&client->common, &client->view))
		forget(client);
	if (!explained && session->in_doubt)
		remember(client, now, loss);
}

static void set_recover(struct client *client, uint64_t culprit, const struct doubt *now)
{
	/* A conviction of this promotion stands until a standby has carried it out. */
	if (client->recover == CLIENT_RECOVER_CULPRIT)
		return;
	if (client->number == culprit)
		client->recover = CLIENT_RECOVER_CULPRIT;
	else
		client->recover = now->count ? CLIENT_RECOVER_BY_POLICY : CLIENT_RECOVER_NOTHING;
}

static void name_culprit(struct domain *domain, const struct judge_verdict *verdict)
{
	struct promotion *promotion = &domain->promotion;
	struct client *client;

	/* A second loss within a promotion does not take back what the first one proved. */
	if (promotion->verdict.culprit && !verdict->culprit)
		return;
	promotion->verdict = *verdict;
	TAILQ_FOREACH (client, &domain->clients, domain_link) {
		if (client->number != verdict->culprit)
			continue;
		promotion->culprit_pid = (int)client->pid;
		snprintf(promotion->culprit_program, sizeof(promotion->culprit_program), "%.63s",
			client->program);
	}
}

/* Puts the loss before the judge. @sessions, @now: one for each session of the domain, in its order */
static void judge_loss(struct domain *domain, const struct worker *worker, struct judge_session *sessions,
	struct doubt *now, struct judge_verdict *ret_verdict)
{
	struct promotion *promotion = &domain->promotion;
	struct judge_evidence evidence;
	struct client *client;
	uint32_t count = 0;

	collect(promotion, worker, &evidence);
	TAILQ_FOREACH (client, &domain->clients, domain_link) {
		sessions[count] = examine(client, worker, promotion->losses, &now[count]);
		count++;
	}
	judge(&evidence, sessions, count, ret_verdict);
	promotion->losses++;
	promotion->suspects = 0;
	for (uint32_t i = 0; i < count; i++)
		promotion->suspects += ret_verdict->ground == JUDGE_UNKNOWN && sessions[i].in_doubt;
}

void convict(struct domain *domain, const struct worker *worker)
{
	struct promotion *promotion = &domain->promotion;
	struct judge_verdict verdict;
	struct judge_session *sessions;
	struct client *client;
	struct doubt *now;
	uint32_t count = 0, i = 0;

	TAILQ_FOREACH (client, &domain->clients, domain_link)
		count++;
	sessions = calloc(count + 1, sizeof(*sessions));
	now = calloc(count + 1, sizeof(*now));
	log_bug_on(!sessions || !now);
	judge_loss(domain, worker, sessions, now, &verdict);
	TAILQ_FOREACH (client, &domain->clients, domain_link) {
		set_recover(client, verdict.culprit, &now[i]);
		update_history(
			client, &sessions[i], &now[i], verdict.ground != JUDGE_UNKNOWN, promotion->losses);
		doubt_deinit(&now[i++]);
	}
	free(sessions);
	free(now);
	name_culprit(domain, &verdict);
	domain->daemon->counters.faults += verdict.ground != JUDGE_NO_FAULT;
	domain->daemon->counters.culprits += verdict.culprit != 0;
	promotion->judged_us = timer_now_us();
}
