// Probation: the last kind of evidence. A suspect of a fault that nothing else explains, which vouches for
// repetition, is not let among the others again before its kernels in doubt have run alone, in a context in
// which only its own memory and modules are mapped: that of a domain of its own (move.c). A run to the end is
// their repetition; a fault there has only one author.
//
//                          turn()                          arrive() of move.c           all of it is done
//   (suspended) ─► WAITING ──────► PLACING ──────────────────────────► TRIED ─────────────────► cleared
//                   │   ▲             │ │                               │ │
//                   │   └─────────────┘ │ there can be no executor      │ │ longer than probation_ms
//                   │    the domain's   │ of its own                    │ ▼
//                   │    executor is    │                               │ LEFT ─── done ──────► cleared
//                   │    in trouble     │                               │ │
//                   ▼                   ▼                               ▼ ▼ its executor is lost
//                released ◄─────────────┘              fault: convicted; otherwise: told
//
//   WAITING    the promotion left it as it was (TAKEOVER_SUSPENDED): held, known to the executors of
//              its domain and served by none. So it stays in further promotions of that domain
//   PLACING    a domain of its own is made for it; the others wait for their turn
//   TRIED      that domain serves it, from the commands in doubt on, and its program goes on with them
//   LEFT       the same, but it is the next one's turn. An executor of its own hurts nobody, so what does not
//              end is no reason to tell or blame its program; max_kernel_seconds is
//   cleared    it goes on where it is. Nothing is moved back: what its kernels left in variables that only
//              they know would be lost
//   convicted  it alone is told the error of the fault that was seen there: by that executor, if the fault is
//              contained, otherwise when that executor is reaped. That explains the first fault, and everybody
//              who still waits is released
//   released   to its domain's executor, which repeats what is in doubt beside the others, as it does with
//              probation = off
//   told       the executor was ended by somebody in the middle of the trial. What was tried is not tried
//              again, neither here nor beside others
//
// So a command is tried once at most: each way out of TRIED either knows it done or tells its program. An
// executor that died before it took the session over has tried nothing, and the next one of that domain does.
//
// Suspects are sessions in doubt at a loss of an executor with on_fault = fast that the judge left open; with
// probation = youngest the youngest of them alone, as long as no second fault shows that it was another one (convict.c).
// Whose commands may not be repeated is told by takeover.c as ever. The youngest session comes first: most faults are
// those of programs that have just begun, and nobody waits for his turn any more when the culprit is found.
//
// A trial is the last resort: where the executor that was lost may still say whose fault it was nobody gets a turn
// (postmortem.c). That word convicts or releases those who are WAITING: probation_named().
//
// The mark of a kernel that faulted may come before any sign of the fault. In a trial it would clear the
// culprit, so trials are made as with on_fault = default: the sign comes first, and what faulted is known for
// certain. Before that it may have come as well, of a session that is no suspect then: latent.c. What a suspect
// itself had finished before is believed: it vouches.
//
// At most one session of a domain is between PLACING and the end of TRIED. It is named by the number of the
// domain in which it was a suspect, because that may be gone by then. Each probation is recorded, with what
// is tried, before the session is in the new domain; one that is recorded as TRIED in the domain where it was
// a suspect has not arrived.

#include "server/failover/probation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/adopt/records.h"
#include "server/adopt/store.h"
#include "server/config/config.h"
#include "server/failover/convict.h"
#include "server/failover/latent.h"
#include "server/failover/move.h"
#include "server/failover/postmortem.h"
#include "server/failover/reserve.h"
#include "server/failover/verdict.h"
#include "server/failover/worker.h"
#include "server/log.h"
#include "server/loop/timer.h"
#include "server/session/client.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/offender.h"
#include "server/session/request.h"

/* How long an executor may take until it serves. */
#define PLACE_MS 30000u
/* Looks at marks: soon after the beginning, later at a sixteenth of the time that it lasts. */
#define LOOK_LEAST_MS 1u
#define LOOK_MOST_MS  50u
/* How long the word about a session that has ended in its trial may take to come. */
#define WORD_US 1000000u

#define REASON "what it had in doubt at an unexplained fault is tried alone"

enum probation_state { PROBATION_WAITING, PROBATION_PLACING, PROBATION_TRIED, PROBATION_LEFT };

struct probation {
	struct client *client;
	enum probation_state state;
	uint32_t from;	    /* domain in which it is a suspect */
	struct doubt doubt; /* what is tried, from TRIED on */
	uint64_t fault;	    /* which it is suspected of (latent.h) */
	uint64_t former;    /* that the same commands were suspected of before; 0: none, or another life's */
	uint64_t since_us;  /* when that began */
	uint64_t done_us;   /* when all of it was first seen done; 0: it was not */
	uint64_t ended_us;  /* when its session was first seen ended, by whoever; 0: it was not */
	struct timer *timer;
	const struct record *record;
};

bool probation_applies(const struct client *client)
{
	return client->daemon->config->probation != CONFIG_PROBATION_OFF && client->recovery &&
	       !client->domain->alone;
}

bool probation_waits(const struct client *client)
{
	return client->probation && client->probation->state <= PROBATION_PLACING;
}

bool probation_is_for(const struct domain *domain)
{
	const struct client *client = TAILQ_FIRST(&domain->clients);

	return reserve_is(domain) || move_is_trial(domain) || (domain->alone && client && client->probation);
}

const char *probation_text(const struct client *client)
{
	static const char *const names[] = {"waiting", "starting", "running", "undecided"};

	return client->probation ? names[client->probation->state] : NULL;
}

static uint64_t lasted_us(const struct probation *probation)
{
	return timer_now_us() - probation->since_us;
}

/*
 * Records
 */

static void keep(struct probation *probation)
{
	struct store *store = probation->client->daemon->store;
	const struct doubt *doubt = &probation->doubt;
	size_t tail = doubt->count * sizeof(*doubt->ranges), bytes = sizeof(struct kept_probation) + tail;
	struct kept_probation *kept;

	if (!store)
		return;
	kept = calloc(1, bytes);
	log_bug_on(!kept);
	*kept = (struct kept_probation){.since_us = probation->since_us,
		.fault = probation->fault,
		.from = probation->from,
		.state = probation->state,
		.range_count = doubt->count};
	if (tail)
		memcpy(kept + 1, doubt->ranges, tail);
	probation->record =
		store_put(store, probation->record, RECORD_PROBATION, probation->client->number, kept, bytes);
	free(kept);
}

static void enter(struct probation *probation, enum probation_state state)
{
	probation->state = state;
	keep(probation);
}

static void on_timer(void *context);

static struct probation *probation_new(struct client *client)
{
	struct probation *probation = calloc(1, sizeof(*probation));

	log_bug_on(!probation);
	probation->client = client;
	probation->from = client->domain->number;
	probation->fault = latent_fault(client->domain, client->latest_loss);
	probation->former = client->former_fault;
	probation->timer = timer_new(client->daemon->loop, on_timer, probation);
	log_bug_on(!probation->timer);
	client->probation = probation;
	return probation;
}

/* Return: number of the domain in which others may wait. */
static uint32_t drop(struct probation *probation)
{
	struct client *client = probation->client;
	uint32_t from = probation->from;

	client->probation = NULL;
	timer_free(probation->timer);
	doubt_deinit(&probation->doubt);
	store_drop(client->daemon->store, probation->record);
	free(probation);
	latent_look(client->daemon);
	return from;
}

/* Whether it is a suspect of the fault, and what it had in doubt is being repeated beside others. */
static bool is_repeating(const struct client *client, uint64_t fault)
{
	return client->latest.count && client->state != CLIENT_CLOSING && client_is_live(client) &&
	       latent_fault(client->domain, client->latest_loss) == fault &&
	       !doubt_is_done(&client->latest, &client->view);
}

static bool is_trying(const struct probation *probation, uint64_t fault)
{
	return (probation->fault == fault || probation->former == fault) &&
	       probation->state != PROBATION_LEFT;
}

bool probation_may_explain(const struct daemon *daemon, uint64_t fault)
{
	const struct client *client;

	if (postmortem_may_explain(daemon, fault))
		return true;
	TAILQ_FOREACH (client, &daemon->clients, link)
		if (client->probation ? is_trying(client->probation, fault) : is_repeating(client, fault))
			return true;
	return false;
}

bool probation_repeats(const struct client *client)
{
	if (client->probation)
		return client->probation->state != PROBATION_LEFT;
	return is_repeating(client, latent_fault(client->domain, client->latest_loss));
}

/*
 * Waiting
 */

static void join_others(struct client *client, struct worker *serving)
{
	log_info("session %llu (process %d, %s) goes on with the others", (unsigned long long)client->number,
		(int)client->pid, client->program);
	client_attach(client, serving);
}

/* It is not tried: what it had in doubt is repeated beside the others, at once, with the next Activate, or when the
 * one that is under way and leaves it as it is has been answered. */
static void release(struct probation *probation)
{
	struct client *client = probation->client;
	struct worker *serving = domain_serving(client->domain);

	drop(probation);
	if (client->domain->promotion.state == PROMOTE_ACTIVATING)
		client->released = true;
	else if (client->recover == CLIENT_RECOVER_PROBATION)
		client->recover = CLIENT_RECOVER_BY_POLICY;
	if (!serving || !client_is_live(client))
		return;
	join_others(client, serving);
	if (client->request)
		request_advance(client->request);
}

static void release_waiting(struct domain *domain)
{
	struct client *client = TAILQ_FIRST(&domain->clients), *next;

	/* The step may end the session. */
	for (; client; client = next) {
		next = TAILQ_NEXT(client, domain_link);
		if (client->probation && client->probation->state == PROBATION_WAITING)
			release(client->probation);
	}
}

static void on_placed(void *context, int32_t code, const char *text)
{
	struct probation *probation = context;
	struct client *client = probation->client;
	struct domain *domain = client->domain;

	(void)text;
	if (!code || client->state == CLIENT_CLOSING)
		return;
	enter(probation, PROBATION_WAITING);
	/* One that is in trouble itself leaves it as it is once more. */
	if (!domain_serving(domain))
		return;
	if (code == CUDA_ERROR_TIMEOUT)
		release_waiting(domain);
	else
		release(probation);
	probation_turn(domain);
}

/* The youngest. */
static struct probation *next_of(const struct domain *domain)
{
	struct probation *next = NULL;
	const struct client *client;

	TAILQ_FOREACH (client, &domain->daemon->clients, link) {
		struct probation *probation = client->probation;

		if (!probation || probation->from != domain->number || probation->state == PROBATION_LEFT)
			continue;
		if (probation->state != PROBATION_WAITING)
			return NULL;
		if (client->state != CLIENT_CLOSING && (!next || client->number > next->client->number))
			next = probation;
	}
	return next;
}

void probation_turn(struct domain *domain)
{
	struct probation *probation;
	const char *obstacle;

	while (!domain->retiring && !domain->daemon->leaving && domain_serving(domain) &&
		!postmortem_is_due(domain) && (probation = next_of(domain))) {
		enter(probation, PROBATION_PLACING);
		obstacle =
			move_begin(probation->client, MOVE_PROBATION, REASON, PLACE_MS, on_placed, probation);
		if (!obstacle) {
			log_info("session %llu (process %d, %s) gets its trial",
				(unsigned long long)probation->client->number, (int)probation->client->pid,
				probation->client->program);
			/* For the next one: the reserve is taken now. */
			reserve_look(domain);
			return;
		}
		log_warning("session %llu (process %d, %s) cannot be tried alone: %s",
			(unsigned long long)probation->client->number, (int)probation->client->pid,
			probation->client->program, obstacle);
		release(probation);
	}
}

void probation_settle(struct domain *domain, struct worker *worker)
{
	struct client *client;

	TAILQ_FOREACH (client, &domain->clients, domain_link) {
		bool suspended = client->recover == CLIENT_RECOVER_PROBATION && client_is_live(client) &&
				 !convict_was_served(client, worker);

		if (suspended && client->released)
			join_others(client, worker);
		else if (suspended)
			enter(client->probation ? client->probation : probation_new(client),
				PROBATION_WAITING);
		else if (probation_waits(client))
			drop(client->probation);
	}
}

/*
 * The trial
 */

void probation_arrived(struct client *client)
{
	struct probation *probation = client->probation;

	doubt_deinit(&probation->doubt);
	doubt_init(&probation->doubt, &client->view);
	probation->since_us = timer_now_us();
	enter(probation, PROBATION_TRIED);
	client->daemon->counters.probations++;
	timer_start(probation->timer, LOOK_LEAST_MS);
}

/* Whether there is a sign of a fault where all of it is done. An executor that contains faults has said so before
 * the mark (executor/contain.c); of others the sign comes to us, and may be on its way. */
static bool has_sign(const struct probation *probation)
{
	const struct client *client = probation->client;
	const struct worker *worker = domain_serving(client->domain);

	return !worker || word_acquire(&client->view.server->doubtful) ||
	       word_acquire(&client->view.server->state) == SHM_SESSION_FAULTED ||
	       (!worker->contains && timer_now_us() - probation->done_us < SHM_SIGN_NS / 1000);
}

static bool is_clean(struct probation *probation)
{
	if (!doubt_is_done(&probation->doubt, &probation->client->view))
		return false;
	if (!probation->done_us)
		probation->done_us = timer_now_us();
	return !has_sign(probation);
}

/* @from: number of the domain in which they wait */
static void next_turn(struct daemon *daemon, uint32_t from)
{
	struct domain *domain = daemon_find_domain(daemon, from);

	if (domain)
		probation_turn(domain);
}

/* Without a culprit: the next one has its turn. */
static void end(struct probation *probation)
{
	struct daemon *daemon = probation->client->daemon;

	next_turn(daemon, drop(probation));
}

static void say(const struct probation *probation, enum verdict_outcome outcome)
{
	const struct client *client = probation->client;

	verdict_probation(
		daemon_find_domain(client->daemon, probation->from), client, outcome, lasted_us(probation));
}

/* All of it ran to its end. */
static void clear(struct probation *probation)
{
	struct domain *domain = probation->client->domain;

	say(probation, VERDICT_CLEARED);
	snprintf(domain->reason, sizeof(domain->reason),
		"what it had in doubt at an unexplained fault was tried here, and ran to its end");
	domain_keep(domain);
	end(probation);
}

/* Others wait for their turn. */
static void leave(struct probation *probation)
{
	say(probation, VERDICT_UNDECIDED);
	enter(probation, PROBATION_LEFT);
	latent_look(probation->client->daemon);
	next_turn(probation->client->daemon, probation->from);
}

/* Its executor has ended the session: because it cannot go on, or for a fault that it has contained. Then its word
 * is on the way. Return: whether that has come, or does not come any more. */
static bool is_over(struct probation *probation)
{
	const struct worker *worker = domain_serving(probation->client->domain);

	if (!probation->ended_us)
		probation->ended_us = timer_now_us();
	return worker && (!worker->contains || timer_now_us() - probation->ended_us >= WORD_US);
}

static void on_timer(void *context)
{
	struct probation *probation = context;
	const struct client *client = probation->client;
	uint64_t us = lasted_us(probation), ms = us / 1000 / 16;

	if (is_clean(probation)) {
		clear(probation);
		return;
	}
	if (client->state == CLIENT_SERVED && !client_is_live(client) && is_over(probation)) {
		end(probation);
		return;
	}
	if (probation->state == PROBATION_TRIED && us >= client->daemon->config->probation_ms * 1000)
		leave(probation);
	ms = ms < LOOK_LEAST_MS ? LOOK_LEAST_MS : ms;
	timer_start(probation->timer, ms > LOOK_MOST_MS ? LOOK_MOST_MS : ms);
}

/*
 * Its end by a loss
 */

/* Whether this executor has tried something of it. */
static bool is_tried_by(const struct client *client, const struct worker *worker)
{
	return client->probation && !probation_waits(client) && convict_was_served(client, worker);
}

void probation_weigh(struct domain *domain, const struct worker *worker, struct judge_verdict *verdict)
{
	struct client *client;

	TAILQ_FOREACH (client, &domain->clients, domain_link) {
		if (!is_tried_by(client, worker))
			continue;
		/* Also where all of it is done: the mark may be that of what faulted. */
		if (verdict->culprit == client->number && verdict->ground != JUDGE_OVER_LIMIT)
			verdict->ground = JUDGE_PROBATION;
	}
}

/* It is known whose the fault was: nobody else is a suspect any more. */
static void explain(struct probation *probation)
{
	struct daemon *daemon = probation->client->daemon;
	struct domain *domain;

	latent_clear(daemon, probation->fault);
	if (probation->former)
		latent_clear(daemon, probation->former);
	domain = daemon_find_domain(daemon, drop(probation));
	if (!domain)
		return;
	convict_acquit(domain);
	release_waiting(domain);
}

static void convicted(struct probation *probation)
{
	struct client *client = probation->client;
	const struct promotion *promotion = &client->domain->promotion;
	char reason[256];

	verdict_reason(promotion, reason, sizeof(reason));
	say(probation, VERDICT_CONVICTED);
	client_finish(client, SHM_SESSION_FAULTED, promotion->verdict.code, reason);
	explain(probation);
}

void probation_contained(struct domain *domain, uint64_t session)
{
	struct client *client = domain_find_client(domain, session);
	struct domain *from;

	if (!client || !client->probation || probation_waits(client))
		return;
	log_info("session %llu (process %d, %s) has faulted in its trial: nobody else is a suspect",
		(unsigned long long)client->number, (int)client->pid, client->program);
	from = daemon_find_domain(client->daemon, client->probation->from);
	if (from) {
		memcpy(from->promotion.verdict_text, domain->promotion.verdict_text,
			sizeof(from->promotion.verdict_text));
		from->promotion.verdict_ms = domain->promotion.verdict_ms;
	}
	explain(client->probation);
}

void probation_named(
	struct domain *domain, uint64_t fault, uint64_t session, int32_t code, const char *reason)
{
	struct client *client = daemon_find_client(domain->daemon, session);
	struct probation *probation = client ? client->probation : NULL;

	/* Its trial is under way; or its commands are repeated beside others, and fault again, unless it was one before
	 * them that looked finished. */
	if (probation ? probation->state != PROBATION_WAITING || !is_trying(probation, fault)
		      : client && is_repeating(client, fault)) {
		latent_name(client);
		return;
	}
	/* Otherwise the kernel looked finished, or its program was told before. */
	if (client && !probation && client_is_live(client)) {
		if (!latent_convict(client, code, reason))
			return;
	} else {
		domain->daemon->counters.culprits++;
		if (client)
			offender_note(domain->daemon, client);
	}
	if (probation) {
		client_finish(client, SHM_SESSION_FAULTED, code, reason);
		explain(probation);
		/* It has waited for its turn. */
		if (client->request)
			request_advance(client->request);
		return;
	}
	latent_clear(domain->daemon, fault);
	convict_acquit(domain);
	release_waiting(domain);
}

static void interrupted(struct probation *probation)
{
	struct client *client = probation->client;

	if (client->state == CLIENT_CLOSING) {
		end(probation);
		return;
	}
	say(probation, VERDICT_INTERRUPTED);
	client_finish(client, SHM_SESSION_FAULTED, client->domain->promotion.verdict.code,
		"what this program had in doubt at a fault that nobody was proved guilty of was tried alone, "
		"the executor that did so was ended, and it is not tried again");
	end(probation);
}

void probation_conclude(struct domain *domain, const struct worker *worker)
{
	struct promotion *promotion = &domain->promotion;
	struct client *client;

	TAILQ_FOREACH (client, &domain->clients, domain_link) {
		if (!is_tried_by(client, worker))
			continue;
		if (promotion->verdict.ground == JUDGE_OVER_LIMIT) {
			end(client->probation);
			continue;
		}
		/* Everything is told: there is nothing to report when another executor serves. */
		promotion->lost_one = false;
		if (promotion->verdict.ground == JUDGE_PROBATION)
			convicted(client->probation);
		else
			interrupted(client->probation);
	}
}

/*
 * Its end by that of its session
 */

void probation_end(struct client *client)
{
	if (probation_waits(client))
		end(client->probation);
}

void probation_gone(struct client *client)
{
	if (client->probation)
		end(client->probation);
}

/*
 * Another life of the daemon
 */

static void take_ranges(struct probation *probation, const struct kept_probation *kept, size_t bytes)
{
	const struct doubt doubt = {(struct doubt_range *)(uintptr_t)(kept + 1), kept->range_count};

	log_bug_on((bytes - sizeof(*kept)) / sizeof(*doubt.ranges) < kept->range_count);
	doubt_copy(&probation->doubt, &doubt);
}

void probation_adopt(struct daemon *daemon, const struct record *record)
{
	size_t bytes;
	const struct kept_probation *kept = record_payload(record, &bytes);
	struct client *client = daemon_find_client(daemon, record_key(record));
	bool arrived = client && client->domain->number != kept->from;
	struct probation *probation;

	if (!client || (!arrived && client->state == CLIENT_CLOSING)) {
		store_drop(daemon->store, record);
		return;
	}
	probation = probation_new(client);
	probation->record = record;
	probation->from = kept->from;
	probation->fault = kept->fault;
	probation->since_us = kept->since_us;
	take_ranges(probation, kept, bytes);
	probation->state = arrived ? (enum probation_state)kept->state : PROBATION_WAITING;
	if (arrived)
		timer_start(probation->timer, LOOK_LEAST_MS);
}
