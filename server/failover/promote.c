// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Promotion: the domain's state machine.
//
//                    promote_warm: activate()                    on_activated: resume()
//      WAITING ──────────────────────────────► ACTIVATING ─────────────────────────────► STEADY
//         ▲                                        │                                    │     │
//         │                                        │ promote_detect                     │     │
//         promote_orphan, a standby │                                        ▼ promote_detect │     ▼ being
//         warm: quiesce() └────────── promote_fenced ────────── FENCING ◄───────────────────────────────┤
//         QUIESCING
//                     convict(), choose()          ▲                                    │     │ all quiet or
//                     out of patience:
//                                                  └────────────────────────────────────┴─────┘
//                                                  worker_condemn()
//
//   detect   the active executor said Lost, hung up, broke the protocol or died: promote_detect()
//   fence    SIGKILL at once, then the kernel's word that the process is reaped: promote_fenced(). Nothing of
//   any session is
//            touched before, because the old context may still write.
//   judge    last words, journals and timelines are read after the fence: convict()
//   promote  Activate to a warm standby, at once or when there is one: activate()
//   resolve  the standby applies each session's recover code; the daemon itself ends only sessions that the
//   standby cannot
//            take over: settle_session()
//   resume   requests that were not answered go to the new executor: resume()
//
// What may be trusted: in FENCING nothing that lives in shared memory; in WAITING after a fence, journals and
// timelines of all sessions stand still. A loss in ACTIVATING starts over: sessions that the dead standby had
// not reached still carry the older generation, and each session is judged by the generation in its own
// header. A worker that is not the active one never changes the state, it only counts as a standby or not.

#include "server/failover/promote.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/config/config.h"
#include "server/failover/convict.h"
#include "server/failover/worker.h"
#include "server/log.h"
#include "server/loop/timer.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/client.h"

/* How long survivors' kernels may take to end before an executor with an orphan is replaced under them. */
#define QUIESCE_MS	2000u
#define QUIESCE_POLL_MS 5u
/* Sessions that a verdict names. */
#define VERDICT_NAMES_MAX 8u

/* Values of the reply to Activate. */
enum { ACTIVATED_CLEAN, ACTIVATED_REPEATS, ACTIVATED_FAULTED };

const char *promote_state_name(enum promote_state state)
{
	static const char *const names[] = {"waiting", "activating", "steady", "quiescing", "fencing"};

	return names[state];
}

static void on_quiesce_timer(void *context);

int promote_init(struct domain *domain)
{
	domain->promotion = (struct promotion){.state = PROMOTE_WAITING};
	domain->promotion.quiesce_timer = timer_new(domain->daemon->loop, on_quiesce_timer, domain);
	return domain->promotion.quiesce_timer ? 0 : -ENOMEM;
}

void promote_deinit(struct domain *domain)
{
	domain->promotion.quiesce_timer = timer_free(domain->promotion.quiesce_timer);
}

static void hold_sessions(struct domain *domain)
{
	struct client *client;

	TAILQ_FOREACH (client, &domain->clients, domain_link)
		if (client_is_live(client)) {
			client->held = true;
			client_hold(client);
		}
}

void promote_detect(struct domain *domain, struct worker *worker)
{
	struct promotion *promotion = &domain->promotion;

	if (worker != domain->active || promotion->state == PROMOTE_FENCING)
		return;
	timer_stop(promotion->quiesce_timer);
	/* A loss during a promotion belongs to the same pause. */
	if (!promotion->lost_one)
		promotion->detected_us = timer_now_us();
	promotion->lost_one = true;
	promotion->state = PROMOTE_FENCING;
	hold_sessions(domain);
}

/*
 * Promote
 */

/* Decides whether the standby is to serve a session; those that it cannot serve end here, with a reason. */
static bool settle_session(struct domain *domain, const struct worker *worker, struct client *client)
{
	const struct judge_verdict *verdict = &domain->promotion.verdict;

	if (!client_is_live(client))
		return false;
	if (worker_is_immovable(worker, client->number)) {
		client_finish(client, SHM_SESSION_FAULTED, verdict->code,
			"another program's fault ended the executor, and this program's modules or memory "
			"could not "
			"be rebuilt in the next one at the same addresses");
		return false;
	}
	if (client->recover == CLIENT_RECOVER_BY_POLICY && client->unexplained >= CONVICT_UNEXPLAINED_MAX) {
		client_finish(client, SHM_SESSION_FAULTED, verdict->code,
			"the same commands of this program were on the device in several unexplained faults "
			"in a row and are not repeated again");
		return false;
	}
	return true;
}

static void reason_text(const struct promotion *promotion, char *text, size_t size)
{
	const struct judge_verdict *verdict = &promotion->verdict;

	if (promotion->quiesced && !verdict->culprit)
		snprintf(text, size, "work of a program that is gone did not end");
	else if (!verdict->culprit)
		snprintf(text, size, "the executor was lost (%s)", judge_ground_text(verdict->ground));
	else
		snprintf(text, size, "fault in kernel %s of process %d (%s), code %d, %s",
			verdict->kernel[0] ? verdict->kernel : "(unnamed)", promotion->culprit_pid,
			promotion->culprit_program, (int)verdict->code, judge_ground_text(verdict->ground));
}

static void on_activated(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet);

static void send_activate(struct domain *domain, struct worker *worker)
{
	uint64_t numbers[WINDOW_COUNT];
	uint32_t recover[WINDOW_COUNT], count = 0;
	struct wire_message message = {.type = WIRE_ACTIVATE};
	struct client *client;
	char reason[256];

	TAILQ_FOREACH (client, &domain->clients, domain_link) {
		if (!settle_session(domain, worker, client))
			continue;
		log_bug_on(count == WINDOW_COUNT); /* every session has a window */
		numbers[count] = client->number;
		recover[count++] = client->recover;
	}
	reason_text(&domain->promotion, reason, sizeof(reason));
	message.activate = (struct wire_activate){.generation = worker->generation,
		.sessions = {numbers, count},
		.recover = {recover, count},
		.code = domain->promotion.verdict.code,
		.reason = reason};
	worker_request(worker, &message, NULL, 0, on_activated, domain);
}

static void activate(struct domain *domain, struct worker *worker)
{
	struct promotion *promotion = &domain->promotion;

	promotion->state = PROMOTE_ACTIVATING;
	promotion->activate_us = timer_now_us();
	worker->generation = ++promotion->generation;
	worker->state = WORKER_ACTIVE;
	domain->active = worker;
	send_activate(domain, worker);
}

/* A standby whose answers are all in: only then it is known which sessions it can take over. */
static struct worker *find_warm(struct domain *domain)
{
	struct worker *worker;

	TAILQ_FOREACH (worker, &domain->workers, link)
		if (worker->state == WORKER_WARM && !worker->mirrors)
			return worker;
	return NULL;
}

/* The standby that takes over, if there is one now; promote_warm() comes back to it otherwise. */
static void choose(struct domain *domain)
{
	struct worker *worker = find_warm(domain);

	domain->promotion.state = PROMOTE_WAITING;
	if (domain->retiring || domain->daemon->leaving)
		return;
	if (worker)
		activate(domain, worker);
	else if (domain->promotion.lost_one)
		log_warning("no standby is ready: clients are held until one is");
}

void promote_fenced(struct domain *domain, struct worker *worker)
{
	if (worker != domain->active)
		return;
	domain->promotion.fenced_us = timer_now_us();
	domain->promotion.orphan = false;
	domain->active = NULL;
	/* Once more: the old executor may have written the word while it was dying. */
	hold_sessions(domain);
	convict(domain, worker);
	choose(domain);
}

static double ms(uint64_t from_us, uint64_t to_us)
{
	return (double)(to_us - from_us) / 1000.0;
}

static void report(struct domain *domain, const struct worker *worker)
{
	struct promotion *promotion = &domain->promotion;
	char reason[256];

	reason_text(promotion, reason, sizeof(reason));
	log_info("promotion: executor %d serves uid %lld as generation %u; %s; fence %.1f ms, judge %.1f ms, "
		 "wait for a "
		 "standby %.1f ms, activate %.1f ms, in all %.1f ms",
		(int)worker->pid, domain->assigned ? (long long)domain->uid : -1LL, worker->generation,
		reason, ms(promotion->detected_us, promotion->fenced_us),
		ms(promotion->fenced_us, promotion->judged_us),
		ms(promotion->judged_us, promotion->activate_us), ms(promotion->activate_us, timer_now_us()),
		ms(promotion->detected_us, timer_now_us()));
	domain->daemon->counters.promotions++;
}

/*
 * Verdict
 */

static void append(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void append(char *text, size_t size, const char *format, ...)
{
	size_t length = strlen(text);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text + length, size - length, format, arguments);
	va_end(arguments);
}

static bool was_told(const struct promotion *promotion, const struct client *client)
{
	return client->held && client->number != promotion->verdict.culprit &&
	       word_acquire(&client->view.server->state) == SHM_SESSION_FAULTED;
}

/* Who, beside the culprit, got an error. */
static void append_told(const struct domain *domain, char *text, size_t size)
{
	const struct client *client;
	unsigned count = 0;

	TAILQ_FOREACH (client, &domain->clients, domain_link) {
		if (!was_told(&domain->promotion, client) || ++count > VERDICT_NAMES_MAX)
			continue;
		append(text, size, "%s session %llu (process %d, %.63s)", count > 1 ? "," : "",
			(unsigned long long)client->number, (int)client->pid, client->program);
	}
	if (count > VERDICT_NAMES_MAX)
		append(text, size, " and %u more", count - VERDICT_NAMES_MAX);
	if (!count)
		append(text, size, " nobody");
}

/* What the standby answered to Activate: how many sessions go on, how many of them have work repeated. */
static void append_going_on(const struct wire_u64s *values, char *text, size_t size)
{
	unsigned clean = 0, repeats = 0;

	for (uint32_t i = 0; i < values->count; i++) {
		clean += values->at[i] == ACTIVATED_CLEAN;
		repeats += values->at[i] == ACTIVATED_REPEATS;
	}
	append(text, size, "; sessions that go on: %u", clean + repeats);
	if (repeats)
		append(text, size, ", %u of them with commands repeated", repeats);
}

static void judge_text(const struct promotion *promotion, char *text, size_t size)
{
	const struct judge_verdict *verdict = &promotion->verdict;

	*text = '\0';
	if (verdict->culprit)
		append(text, size,
			"culprit is process %d (%s), session %llu, kernel %s, code %d, %s; told an "
			"error beside it:",
			promotion->culprit_pid, promotion->culprit_program,
			(unsigned long long)verdict->culprit,
			verdict->kernel[0] ? verdict->kernel : "(unnamed)", (int)verdict->code,
			judge_ground_text(verdict->ground));
	else if (promotion->quiesced)
		append(text, size,
			"nobody is proved guilty of a fault (work of a program that is gone did not "
			"end); told an error:");
	else if (verdict->ground == JUDGE_NO_FAULT)
		append(text, size,
			"nobody is proved guilty (%s); told an error:", judge_ground_text(verdict->ground));
	else
		append(text, size, "nobody is proved guilty (%s), kernel %s, code %d; told an error:",
			judge_ground_text(verdict->ground),
			verdict->kernel[0] ? verdict->kernel : "(unnamed)", (int)verdict->code);
}

static void give_verdict(struct domain *domain, const struct wire_u64s *values)
{
	struct promotion *promotion = &domain->promotion;
	char *text = promotion->verdict_text;
	const size_t size = sizeof(promotion->verdict_text);

	judge_text(promotion, text, size);
	append_told(domain, text, size);
	append_going_on(values, text, size);
	log_info("verdict: %s", text);
}

static void resume(struct domain *domain, struct worker *worker, const struct wire_u64s *values)
{
	struct promotion *promotion = &domain->promotion;
	struct client *client;

	promotion->state = PROMOTE_STEADY;
	if (promotion->lost_one) {
		give_verdict(domain, values);
		report(domain, worker);
	} else {
		log_debug("executor %d is active", (int)worker->pid);
	}
	promotion->lost_one = promotion->quiesced = false;
	promotion->verdict = (struct judge_verdict){0};
	TAILQ_FOREACH (client, &domain->clients, domain_link) {
		client->recover = CLIENT_RECOVER_NOTHING;
		client->held = false;
	}
	domain_resume(domain);
	domain_fill(domain);
}

static void on_activated(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct domain *domain = context;

	(void)packet;
	/* Its death is promote_fenced()'s. */
	if (!reply || worker->state == WORKER_CONDEMNED)
		return;
	if (reply->code)
		worker_condemn(worker, reply->text[0] ? reply->text : "could not be activated");
	else
		resume(domain, worker, &reply->values);
}

/*
 * Quiesced promotion
 */

/* Whether no survivor has work on the device. The executor issues nothing for a held session. */
static bool all_quiet(struct domain *domain)
{
	struct client *client;

	TAILQ_FOREACH (client, &domain->clients, domain_link)
		if (client_is_live(client) && judge_in_doubt(&client->view))
			return false;
	return true;
}

static void on_quiesce_timer(void *context)
{
	struct domain *domain = context;
	struct promotion *promotion = &domain->promotion;

	if (promotion->state != PROMOTE_QUIESCING)
		return;
	if (all_quiet(domain) || timer_now_us() >= promotion->quiesce_until_us)
		worker_condemn(domain->active, "work of a client that is gone does not end");
	else
		timer_start(promotion->quiesce_timer, QUIESCE_POLL_MS);
}

static void quiesce(struct domain *domain)
{
	struct promotion *promotion = &domain->promotion;

	promotion->state = PROMOTE_QUIESCING;
	promotion->detected_us = timer_now_us();
	promotion->lost_one = promotion->quiesced = true;
	promotion->quiesce_until_us = promotion->detected_us + QUIESCE_MS * 1000;
	domain->daemon->counters.orphans++;
	hold_sessions(domain);
	timer_start(promotion->quiesce_timer, 0);
}

void promote_orphan(struct domain *domain, const struct client *client)
{
	struct promotion *promotion = &domain->promotion;

	log_warning("work of process %d (%s), which is gone, does not end: its executor will be replaced",
		(int)client->pid, client->program);
	promotion->orphan = true;
	if (promotion->state == PROMOTE_STEADY && (find_warm(domain) || !domain->daemon->config->standbys))
		quiesce(domain);
}

void promote_warm(struct domain *domain, struct worker *worker)
{
	struct promotion *promotion = &domain->promotion;

	if (domain->retiring || domain->daemon->leaving)
		return;
	if (promotion->state == PROMOTE_WAITING)
		activate(domain, worker);
	else if (promotion->state == PROMOTE_STEADY && promotion->orphan)
		quiesce(domain);
}
