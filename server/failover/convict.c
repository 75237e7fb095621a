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
// An executor that outlasts faults (on_fault = default) writes the marks of the kernel that faulted and of
// what is queued behind it, so its marks prove nothing about a culprit that is unknown. Then everybody who
// had work on the device within SHM_SIGN_NS before the first sign is told an error, and no suspects remain
// for a next time. The same where only some of several culprits are known.
//
// Nor do those of an executor with on_fault = fast while the first sign of the fault is on its way, so who had
// work then may be the culprit although nothing of it is in doubt. It is told as well, but where it vouches
// for what it has in doubt, or where the culprit is looked for: by the executor itself, off the device (postmortem.c), or
// by trials.
//
// Suspects that vouch for repetition go on probation (probation.c). With probation = all there is no second loss of the
// executor that others share then, and the rest of this serves those that do not, or cannot. With probation = youngest
// that is a guess: the youngest suspect alone goes, and the others are repeated side by side. If a fault shows that one
// of them it may have been (what was in doubt is so again), all that are left go on probation; the guilt of such a one
// explains the loss before as well.
//
// Only work of the lost executor makes a suspect: a session whose header names an older generation was not
// served by it (it ended earlier, or the executor died before it reached it), though its journal is in doubt.

#include "server/failover/convict.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/config/config.h"
#include "server/failover/latent.h"
#include "server/failover/oldest.h"
#include "server/failover/probation.h"
#include "server/failover/worker.h"
#include "server/log.h"
#include "server/loop/timer.h"
#include "server/session/client.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/offender.h"

/* How long an executor may be at work on a fault before somebody else deals with it (promote.c). */
#define EXPLAIN_US 15000000u

static bool is_recent(uint64_t active_ns, uint64_t detected_us)
{
	return active_ns && active_ns + SHM_SIGN_NS > detected_us * 1000;
}

/* What the executor has left unexplained: of enum shm_doubt. */
static uint32_t doubt_of(const struct domain *domain, const struct worker *worker)
{
	const struct client *client;
	uint32_t doubt = 0;

	TAILQ_FOREACH (client, &domain->clients, domain_link)
		if (convict_was_served(client, worker))
			doubt |= word_acquire(&client->view.server->doubtful);
	return doubt;
}

/* Whether a session that is gone had work on the device at the time of the fault. */
static bool somebody_left(const struct promotion *promotion, uint32_t doubt)
{
	uint64_t detected_us = promotion->times.detected;

	return is_recent(promotion->gone_active, detected_us) ||
	       (doubt && is_recent(promotion->gone_active, detected_us - EXPLAIN_US));
}

/* Whether it was killed because there was a sign of a fault in it, or in the middle of one. */
static bool is_suspected(const struct promotion *promotion, const struct worker *worker, uint32_t doubt)
{
	/* One that contains faults would have seen one. */
	bool sign = promotion->cause == PROMOTE_SIGN && !(promotion->silent && worker->contains);

	return worker->suspected || (doubt & SHM_DOUBT_FAULT) ||
	       (promotion->state == PROMOTE_FENCING && (sign || doubt));
}

/* What it has said of faults that are settled is no evidence of another. */
static void take_words(const struct worker *worker, struct last_words *words)
{
	memcpy(words, worker->words, LAST_WORDS_MAX * sizeof(*words));
	for (uint32_t i = 0; i < LAST_WORDS_MAX; i++)
		if (words[i].fault && words[i].fault <= worker->settled)
			words[i].magic = 0;
}

bool convict_is_crash(const struct worker *worker)
{
	struct last_words words[LAST_WORDS_MAX] = {0};
	bool named = false;

	if (worker->words)
		take_words(worker, words);
	for (uint32_t i = 0; i < LAST_WORDS_MAX; i++)
		named |= words[i].magic == LAST_WORDS_MAGIC && words[i].session;
	return judge_is_crash(worker->exit_signal) && !named;
}

static void collect(const struct domain *domain, const struct worker *worker, struct judge_evidence *evidence)
{
	const struct promotion *promotion = &domain->promotion;
	/* With on_fault = fast there is nothing else to be explained once it has said Lost. It does at the first sign,
	 * but where only one can have done it: then it may be killed before. */
	uint32_t doubt = worker->graceful || !worker->lost ? doubt_of(domain, worker) : 0;
	/* Evidence, but not of itself that there was a fault. */
	bool testified = worker_is_testified(worker) && (doubt || !worker->contains) &&
			 (promotion->cause == PROMOTE_LOST || promotion->cause == PROMOTE_SIGN);
	const struct client *client;

	*evidence = (struct judge_evidence){.lost = worker->lost || testified,
		.lost_code = worker->lost ? worker->lost_code : worker->testified_code,
		.lost_address = testified ? worker->testified_address : 0,
		.exit_signal = worker->exit_signal,
		.killed = worker->exit_signal == 9,
		.asked = worker->asked,
		.graceful = worker->graceful,
		.suspected = is_suspected(promotion, worker, doubt),
		.silent = promotion->silent && !doubt,
		.gone = somebody_left(promotion, doubt),
		.suspects = promotion->suspects};
	TAILQ_FOREACH (client, &domain->clients, domain_link)
		if (client->over_limit)
			evidence->over_limit = client->number;
	if (worker->words)
		take_words(worker, evidence->words);
}

bool convict_was_served(const struct client *client, const struct worker *worker)
{
	return client->view.server && word_acquire(&client->view.server->generation) == worker->generation;
}

/* Whether the session had work on the device at the time of the fault. */
static bool had_work(const struct domain *domain, const struct client *client)
{
	const struct shm_server_header *server = client->view.server;

	return client->worked || (word_acquire(&server->doubtful) & SHM_DOUBT_WORKED) ||
	       is_recent(word_acquire(&server->active), domain->promotion.times.detected);
}

void convict_note_work(struct domain *domain, const struct worker *worker)
{
	struct client *client;

	if (!worker->graceful)
		return;
	TAILQ_FOREACH (client, &domain->clients, domain_link)
		if (convict_was_served(client, worker) && !client->worked)
			client->worked = had_work(domain, client) || shm_view_in_doubt(&client->view);
}

bool convict_has_work(const struct domain *domain, const struct worker *worker)
{
	uint64_t now_us = timer_now_us();
	const struct client *client;

	TAILQ_FOREACH (client, &domain->clients, domain_link)
		if (convict_was_served(client, worker) &&
			(is_recent(word_acquire(&client->view.server->active), now_us) ||
				shm_view_in_doubt(&client->view)))
			return true;
	return is_recent(domain->promotion.gone_active, now_us);
}

void convict_preview(
	const struct domain *domain, const struct worker *worker, struct judge_verdict *ret_verdict)
{
	struct judge_session sessions[WINDOW_COUNT];
	struct judge_evidence evidence;
	struct client *client;
	uint32_t count = 0;

	collect(domain, worker, &evidence);
	TAILQ_FOREACH (client, &domain->clients, domain_link)
		if (convict_was_served(client, worker) && count < WINDOW_COUNT)
			sessions[count++] = (struct judge_session){
				.session = client->number, .in_doubt = had_work(domain, client)};
	judge(&evidence, sessions, count, ret_verdict);
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

static struct judge_session examine(const struct domain *domain, const struct client *client,
	const struct worker *worker, struct doubt *ret_now)
{
	struct judge_session session = {.session = client->number};

	doubt_init(ret_now, &client->view);
	if (!convict_was_served(client, worker))
		return session;
	session.worked = had_work(domain, client);
	session.in_doubt = ret_now->count || (worker->graceful && session.worked);
	session.history = history_of(client, ret_now, session.in_doubt, domain->promotion.losses);
	return session;
}

static void forget(struct client *client)
{
	doubt_deinit(&client->common);
	doubt_deinit(&client->latest);
	client->unexplained = 0;
}

void convict_acquit(struct domain *domain)
{
	struct client *client;

	domain->promotion.suspects = 0;
	TAILQ_FOREACH (client, &domain->clients, domain_link)
		forget(client);
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

/* Whether what it has in doubt is not to be repeated beside others. @tried: as for set_recover() */
static bool goes_on_probation(const struct client *client, bool tried)
{
	return (client->recover == CLIENT_RECOVER_PROBATION && !client->released) ||
	       probation_waits(client) || (tried && probation_applies(client));
}

/*
 * @suspect: the culprit is unknown, and it may have been this one
 * @tried: and it is among those that are to be tried, if it can be
 * @graceful: what it finished last proves nothing then
 */
static void set_recover(struct client *client, const struct judge_verdict *verdict, bool suspect, bool tried,
	bool graceful, const struct doubt *now)
{
	/* What was found in this promotion stands until a standby has carried it out. */
	if (client->recover == CLIENT_RECOVER_CULPRIT || client->recover == CLIENT_RECOVER_SUSPECT)
		return;
	if (judge_blames(verdict, client->number))
		client->recover = CLIENT_RECOVER_CULPRIT;
	else if (suspect && graceful)
		client->recover = CLIENT_RECOVER_SUSPECT;
	else if (goes_on_probation(client, tried))
		client->recover = CLIENT_RECOVER_PROBATION;
	else
		client->recover = now->count ? CLIENT_RECOVER_BY_POLICY : CLIENT_RECOVER_NOTHING;
}

/* Whether trials are to find the culprit. */
static bool is_tried(const struct domain *domain, const struct worker *worker)
{
	const struct client *client;

	TAILQ_FOREACH (client, &domain->clients, domain_link)
		if (client->recover == CLIENT_RECOVER_PROBATION && client_is_live(client) &&
			convict_was_served(client, worker))
			return true;
	return false;
}

/* With on_fault = fast and a culprit that is unknown: who had work at the time and is not tried. It goes on meanwhile,
 * if the culprit is found in another way (postmortem.c, probation.c). @sessions: as in judge_loss() */
static void note_latent(
	struct domain *domain, const struct worker *worker, const struct judge_session *sessions)
{
	uint64_t fault = latent_fault(domain, domain->promotion.losses);
	bool tried = worker->fault || is_tried(domain, worker);
	struct client *client;
	uint32_t i = 0;

	TAILQ_FOREACH (client, &domain->clients, domain_link) {
		const struct judge_session *session = &sessions[i++];

		if (!session->worked || client->recover == CLIENT_RECOVER_CULPRIT ||
			client->recover == CLIENT_RECOVER_PROBATION ||
			(client->recovery && session->in_doubt))
			continue;
		if (tried && !client->latent)
			latent_note(client, fault);
		else
			client->recover = CLIENT_RECOVER_SUSPECT;
	}
}

void convict_contained(struct domain *domain, uint64_t session)
{
	const struct client *client = domain_find_client(domain, session);

	domain->daemon->counters.faults++;
	domain->daemon->counters.culprits++;
	if (client)
		offender_note(domain->daemon, client);
}

/* Where the executor did not say it. */
static void name_kernel(const struct client *culprit, struct judge_verdict *verdict)
{
	struct oldest oldest;

	oldest_find(culprit, &oldest);
	if (!oldest.seq)
		return;
	verdict->stream = oldest.stream;
	verdict->seq = oldest.seq;
	memcpy(verdict->kernel, oldest.kernel, sizeof(verdict->kernel));
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
		if (judge_blames(verdict, client->number))
			offender_note(domain->daemon, client);
		if (client->number != verdict->culprit)
			continue;
		promotion->culprit_pid = (int)client->pid;
		snprintf(promotion->culprit_program, sizeof(promotion->culprit_program), "%.63s",
			client->program);
		if (!promotion->verdict.kernel[0])
			name_kernel(client, &promotion->verdict);
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

	collect(domain, worker, &evidence);
	TAILQ_FOREACH (client, &domain->clients, domain_link) {
		sessions[count] = examine(domain, client, worker, &now[count]);
		count++;
	}
	judge(&evidence, sessions, count, ret_verdict);
	promotion->losses++;
	promotion->suspects = 0;
	for (uint32_t i = 0; i < count && !worker->graceful; i++)
		promotion->suspects +=
			ret_verdict->ground == JUDGE_UNKNOWN && (sessions[i].in_doubt || sessions[i].worked);
}

/*
 * Trials
 */

/* The suspect that is tried first, and with probation = youngest alone; 0: none can be. @sessions: as for judge_loss() */
static uint64_t youngest_of(const struct domain *domain, const struct judge_session *sessions)
{
	const struct client *client;
	uint64_t youngest = 0;
	uint32_t i = 0;

	TAILQ_FOREACH (client, &domain->clients, domain_link)
		if (sessions[i++].in_doubt && probation_applies(client) && client_is_live(client) &&
			client->number > youngest)
			youngest = client->number;
	return youngest;
}

/* The loss before may have been for what somebody has in doubt once more: then his guilt explains both. Return: whether
 * there is such a one */
static bool note_former(
	struct domain *domain, const struct judge_session *sessions, const struct judge_verdict *verdict)
{
	uint64_t former = latent_fault(domain, domain->promotion.losses - 1);
	struct client *client;
	bool any = false;
	uint32_t i = 0;

	TAILQ_FOREACH (client, &domain->clients, domain_link) {
		bool same = sessions[i++].history == JUDGE_AGAIN;

		any |= same;
		client->former_fault = same ? former : 0;
		if (same && judge_blames(verdict, client->number))
			latent_clear(domain->daemon, former);
	}
	return any;
}

void convict(struct domain *domain, const struct worker *worker)
{
	struct promotion *promotion = &domain->promotion;
	struct judge_verdict verdict;
	struct judge_session *sessions;
	struct client *client;
	struct doubt *now;
	uint32_t count = 0, i = 0;
	uint64_t youngest = 0;
	bool open;

	TAILQ_FOREACH (client, &domain->clients, domain_link)
		count++;
	sessions = calloc(count + 1, sizeof(*sessions));
	now = calloc(count + 1, sizeof(*now));
	log_bug_on(!sessions || !now);
	judge_loss(domain, worker, sessions, now, &verdict);
	probation_weigh(domain, worker, &verdict);
	open = (verdict.ground == JUDGE_UNKNOWN && !verdict.gone) || verdict.others;
	if (!note_former(domain, sessions, &verdict) &&
		domain->daemon->config->probation == CONFIG_PROBATION_YOUNGEST)
		youngest = youngest_of(domain, sessions);
	TAILQ_FOREACH (client, &domain->clients, domain_link) {
		bool suspect = open && sessions[i].in_doubt;

		set_recover(client, &verdict, suspect, suspect && (!youngest || youngest == client->number),
			worker->graceful, &now[i]);
		update_history(client, &sessions[i], &now[i],
			verdict.ground != JUDGE_UNKNOWN || worker->graceful, promotion->losses);
		doubt_deinit(&now[i++]);
	}
	if (open && !worker->graceful)
		note_latent(domain, worker, sessions);
	TAILQ_FOREACH (client, &domain->clients, domain_link)
		client->worked = client->over_limit = false;
	free(sessions);
	free(now);
	name_culprit(domain, &verdict);
	domain->daemon->counters.faults +=
		verdict.ground != JUDGE_NO_FAULT && verdict.ground != JUDGE_OVER_LIMIT;
	domain->daemon->counters.culprits += verdict.culprit != 0;
	promotion->times.judged = timer_now_us();
	probation_conclude(domain, worker);
}
