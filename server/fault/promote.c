// Promotion: carries out the steps of the domain's incident (incident.h has the states) and finds
// the next executor.
//
//   detect   an executor that lives shows a sign of a fault, or sends Lost: promote_sign(). It
//            hangs, breaks the protocol or dies: promote_detect(). Work of a dead program does not
//            end, or work of a program has passed its limit, and ending the kernels alone has
//            failed (endless.c): promote_orphan(), promote_over_limit()
//   halt     the executor issues nothing any more, and survivors' work on the device ends: halt.c.
//            Then the executor can harm nobody, and nobody waits for its end: promote_hand_over()
//            An executor that contains faults (worker->contains) reports each fault itself, which
//            hurts only the session of that kernel: promote_contained(). The executor serves on
//   fence    where something does not end, the executor takes itself off the device:
//            promote_off_device(). An executor that cannot, or is dead or dying, gets SIGKILL at
//            once; then the kernel reports the process as reaped: promote_fenced(). Nothing of any
//            session is touched before, because the old context may still write
//   judge    last words, journals and timelines are read when no survivor's can change any more:
//            attribute()
//   promote  Activate to a warm standby, as soon as there is one: activate()
//   resolve  the standby applies each session's recover code; the daemon itself ends only sessions
//            that the standby cannot take over: settle_session()
//   resume   requests that were not answered go to the new executor: serve()
//
// Trust: in FENCING nothing that lives in shared memory; from HALTED on the states of sessions; in
// LOST the journals, states and timelines of all sessions but a culprit's stand still. After a
// hand-over the old process is still dying, with its mappings: until the process is reaped,
// sessions that it served are not freed, and no new standby is started (session_close.c, domain.c).
// The culprit's kernels may run until then, and write into a timeline without readers. The old
// executor is not the active one, so its end changes nothing here. A loss in TAKING_OVER starts
// over: sessions that the dead standby had not reached still carry the older generation, and each
// session is judged by the generation in its own header. A worker other than the active executor
// never changes the state, and only counts as a standby or not.

#include "server/fault/promote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/config/config.h"
#include "server/fault/attribute.h"
#include "server/fault/evidence.h"
#include "server/fault/halt.h"
#include "server/fault/time_limit.h"
#include "server/incident/incident.h"
#include "server/session/events.h"
#include "server/session/saved.h"
#include "server/fault/verdict.h"
#include "server/log.h"
#include "server/loop/timer.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/due.h"
#include "server/session/session.h"
#include "server/worker/worker.h"

/* Time limit of survivors' kernels before an executor with an orphan is replaced under them. */
#define ORPHAN_PATIENCE_MS 2000u

/* The first executor of all may wait for the device itself. */
bool promote_is_awaited(const struct worker *worker)
{
	const struct domain *domain = worker->domain;
	const struct worker *other;

	if (!domain || !incident_is_waiting(domain->promotion.state) || TAILQ_EMPTY(&domain->sessions) ||
		!domain->daemon->device_known)
		return false;
	TAILQ_FOREACH (other, &domain->workers, link)
		if (other->generation)
			return false;
	return true;
}

static void hold_sessions(struct domain *domain)
{
	struct session *session;

	TAILQ_FOREACH (session, &domain->sessions, domain_link)
		session->evidence.held |= session_is_live(session);
	domain->holds = true;
}

void promote_recorded(struct domain *domain)
{
	struct session *session;

	if (!domain->holds)
		return;
	domain->holds = false;
	TAILQ_FOREACH (session, &domain->sessions, domain_link)
		if (session_is_live(session))
			session_hold(session);
}

/*
 * Steps
 */

static void choose(struct domain *domain);

static void begin(struct domain *domain, unsigned actions, enum promote_cause cause)
{
	struct promotion *promotion = &domain->promotion;
	struct session *session;

	/* A loss during a promotion belongs to the same pause. */
	if (actions & INCIDENT_NEW)
		promotion->times = (struct promote_times){.detected = timer_now_us()};
	promotion->fell_short = actions & INCIDENT_FELL_SHORT;
	promotion->cause = cause;
	promotion->sign[0] = '\0';
	TAILQ_FOREACH (session, &domain->sessions, domain_link)
		session->evidence.held |= session_is_live(session);
	due_domain(domain, DOMAIN_DUE_TROUBLE);
}

/* Time limit of work on the device. */
static uint64_t patience_ms(const struct domain *domain)
{
	enum promote_cause cause = domain->promotion.cause;

	return cause == PROMOTE_ORPHAN || cause == PROMOTE_LIMIT ? ORPHAN_PATIENCE_MS
								 : domain->daemon->config->fault_patience_ms;
}

static uint64_t time_left_ms(const struct domain *domain)
{
	uint64_t now_us = timer_now_us(), until_us = domain->promotion.halt_until_us;

	return until_us > now_us ? (until_us - now_us) / 1000 : 0;
}

static void judge_loss(struct domain *domain)
{
	const struct worker *worker = domain->active;

	domain->promotion.orphan = false;
	domain->active = NULL;
	/* Once more: the old executor may have written the word while stopping. */
	hold_sessions(domain);
	/* Nobody is left who could be at fault. */
	if (domain->life != DOMAIN_RETIRES)
		attribute(domain, worker);
}

static unsigned step(struct domain *domain, enum incident_event event, enum promote_cause cause)
{
	struct incident_step step = incident_step(domain->promotion.state, event);

	if (step.actions)
		log_debug("domain %u: %s, %s: %s", domain->number,
			incident_state_name(domain->promotion.state), incident_event_name(event),
			incident_state_name(step.next));
	if (step.actions & INCIDENT_CUT_SHORT)
		verdict_cut_short(domain);
	if (step.actions & INCIDENT_JUDGE)
		judge_loss(domain);
	domain->promotion.state = step.next;
	if (step.actions & INCIDENT_BEGIN)
		begin(domain, step.actions, cause);
	if (step.actions & INCIDENT_STOP)
		halt_end(domain);
	if (step.actions & INCIDENT_HALT)
		halt_begin(domain, patience_ms(domain));
	if (step.actions & INCIDENT_HALT_AGAIN)
		halt_begin(domain, time_left_ms(domain));
	if (step.actions & (INCIDENT_BEGIN | INCIDENT_HOLD))
		hold_sessions(domain);
	if (step.actions & INCIDENT_FENCE)
		halt_ask_for_fence(domain);
	if (step.actions & INCIDENT_CHOOSE)
		choose(domain);
	return step.actions;
}

unsigned promote_take(struct domain *domain, enum incident_event event)
{
	return step(domain, event, PROMOTE_LOST);
}

/*
 * Detect
 */

static void note_sign(struct domain *domain, const struct worker *worker, const char *sign)
{
	const struct event_about about = events_about_user(domain);

	snprintf(domain->promotion.sign, sizeof(domain->promotion.sign), "%s", sign);
	events_note(domain->daemon, EVENT_fault, LOG_LEVEL_WARNING, &about,
		"executor %d shows a sign of a fault: %s", (int)worker->pid, sign);
}

/* During HALTING. A fault explains more than an orphan does, and work on the device now gets the
 * time that any other fault allows. */
static void explain(struct domain *domain, const struct worker *worker, const char *sign)
{
	struct promotion *promotion = &domain->promotion;

	if (promotion->cause != PROMOTE_SIGN && promotion->cause != PROMOTE_SILENT) {
		halt_extend(domain, domain->daemon->config->fault_patience_ms);
		note_sign(domain, worker, sign);
	}
	promotion->cause = PROMOTE_SIGN;
	halt_hurry(domain);
}

bool promote_sign(struct domain *domain, struct worker *worker, const char *sign)
{
	unsigned actions = worker == domain->active ? step(domain, INCIDENT_SIGN, PROMOTE_SIGN) : 0;

	if (actions & INCIDENT_EXPLAIN)
		explain(domain, worker, sign);
	else if (actions)
		note_sign(domain, worker, sign);
	return actions;
}

void promote_silent(struct domain *domain, struct worker *worker)
{
	if (worker != domain->active || !incident_is_serving(domain->promotion.state))
		return;
	step(domain, INCIDENT_SIGN, PROMOTE_SILENT);
	note_sign(domain, worker, "it does not answer any more");
	domain_changed(domain);
}

void promote_close_overdue(struct domain *domain)
{
	if (incident_is_activating(domain->promotion.state))
		worker_terminate(domain->active, "it did not close a session in time");
	else
		promote_silent(domain, domain->active);
}

void promote_detect(struct domain *domain, struct worker *worker)
{
	if (worker == domain->active)
		promote_take(domain, INCIDENT_TERMINATED);
}

/*
 * Promote
 */

/* Decides whether the standby is to serve a session; sessions that the standby cannot serve end
 * here, with a reason. */
static bool settle_session(struct domain *domain, const struct worker *worker, struct session *session)
{
	const struct judge_verdict *verdict = &domain->promotion.verdict;

	if (!session_is_live(session))
		return false;
	if (worker_is_immovable(worker, session->number)) {
		session_finish(session, SHM_SESSION_FAULTED, verdict->code,
			"another program's fault ended the executor, and this program's modules or memory "
			"could not be rebuilt in the next executor at the same addresses");
		return false;
	}
	if (session->evidence.losses >= ATTRIBUTE_LOSSES_MAX &&
		session->evidence.recover == SESSION_RECOVER_BY_POLICY) {
		session_finish(session, SHM_SESSION_FAULTED, verdict->code,
			"the same commands of this program were on the device when several executors in a "
			"row ended, and are not repeated again");
		return false;
	}
	return true;
}

static void on_activated(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet);

static uint32_t recover_code(const struct session *session)
{
	enum session_recover recover = session->evidence.recover;

	return recover == SESSION_RECOVER_BY_POLICY ? session_policy(session) : (uint32_t)recover;
}

static void send_activate(struct domain *domain, struct worker *worker)
{
	uint64_t numbers[WINDOW_COUNT];
	uint32_t recover[WINDOW_COUNT], count = 0;
	struct wire_message message = {.type = WIRE_ACTIVATE};
	struct session *session;
	char reason[256];

	TAILQ_FOREACH (session, &domain->sessions, domain_link) {
		if (!settle_session(domain, worker, session))
			continue;
		log_bug_on(count == WINDOW_COUNT); /* every session has a window */
		numbers[count] = session->number;
		recover[count++] = recover_code(session);
	}
	verdict_reason(&domain->promotion, reason, sizeof(reason));
	message.activate = (struct wire_activate){.generation = worker->generation,
		.sessions = {numbers, count},
		.recover = {recover, count},
		.code = domain->promotion.verdict.code,
		.reason = reason,
		.canary_ms = (uint32_t)domain->daemon->config->canary_patience_ms};
	worker_request(worker, &message, NULL, 0, on_activated, domain);
}

static void activate(struct domain *domain, struct worker *worker)
{
	struct promotion *promotion = &domain->promotion;

	if (!(promote_take(domain, INCIDENT_STANDBY) & INCIDENT_ACTIVATE))
		return;
	promotion->times.activate = timer_now_us();
	worker->generation = ++domain->generation;
	worker->state = WORKER_ACTIVE;
	domain->active = worker;
	/* Should the daemon die, the next life sends Activate again. */
	domain->activate_id = worker->next_request;
	domain_all_changed(domain);
	send_activate(domain, worker);
}

void promote_activate_again(struct domain *domain)
{
	send_activate(domain, domain->active);
}

struct worker *promote_find_warm(const struct domain *domain)
{
	struct worker *worker;

	TAILQ_FOREACH (worker, &domain->workers, link)
		if (worker->state == WORKER_WARM && !worker->mirrors && !worker->lost)
			return worker;
	return NULL;
}

/* Picks the standby that takes over, if there is one now; otherwise promote_warm() tries again. */
static void choose(struct domain *domain)
{
	struct worker *worker = promote_find_warm(domain);

	if (domain->life == DOMAIN_RETIRES || domain->daemon->phase == DAEMON_LEAVES)
		return;
	if (worker)
		activate(domain, worker);
	else if (domain->promotion.state == INCIDENT_LOST)
		log_warning("no standby is ready: programs are held until one is");
}

void promote_fenced(struct domain *domain, struct worker *worker)
{
	if (worker != domain->active)
		return;
	domain->promotion.times.fenced = timer_now_us();
	promote_take(domain, INCIDENT_REAPED);
}

void promote_off_device(struct domain *domain)
{
	struct worker *worker = domain->active;

	promote_take(domain, INCIDENT_OFF_DEVICE);
	promote_fenced(domain, worker);
	worker_terminate(worker, "its programs go on in the next executor");
}

void promote_hand_over(struct domain *domain)
{
	struct worker *worker = domain->active;

	promote_take(domain, INCIDENT_DRAINED);
	/* Not the active executor any more, so its end concerns nobody but the driver. */
	worker_terminate(worker, "its programs go on in the next executor");
}

bool promote_dismiss(struct domain *domain, const char *reason)
{
	struct worker *worker = domain->active;
	struct session *session;

	if (!promote_take(domain, INCIDENT_DISMISSED))
		return false;
	domain->active = NULL;
	TAILQ_FOREACH (session, &domain->sessions, domain_link)
		session->evidence.recover = SESSION_RECOVER_NOTHING;
	/* Before the end: a daemon that finds the executor dead knows that this is no loss. */
	domain_all_changed(domain);
	worker_terminate(worker, reason);
	return true;
}

/* True if a replacement would be there at once, or cannot be had earlier. */
static bool can_replace(struct domain *domain)
{
	return promote_find_warm(domain) || domain_executors_wanted(domain) < 2;
}

static void replace_orphan(struct domain *domain)
{
	domain->daemon->counters.orphans++;
	step(domain, INCIDENT_ENDLESS, PROMOTE_ORPHAN);
}

static void serve(
	struct domain *domain, struct worker *worker, unsigned actions, const struct wire_u64s *values)
{
	struct promotion *promotion = &domain->promotion;
	struct session *session;

	if (actions & INCIDENT_REPORT) {
		verdict_report(domain, worker, values);
		domain->daemon->counters.promotions++;
	} else {
		log_debug("executor %d is active", (int)worker->pid);
	}
	promotion->verdict = (struct judge_verdict){0};
	TAILQ_FOREACH (session, &domain->sessions, domain_link) {
		session->evidence.recover = SESSION_RECOVER_NOTHING;
		session->evidence.held = false;
	}
	domain->activate_id = 0;
	domain_all_changed(domain);
	due_domain(domain, DOMAIN_DUE_SERVE);
	time_limit_watch(domain);
	domain_fill(domain);
	/* For an orphan that was found before. */
	if (incident_is_serving(promotion->state) && promotion->orphan && can_replace(domain))
		replace_orphan(domain);
}

static void on_activated(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct domain *domain = context;
	unsigned actions;

	(void)packet;
	/* promote_fenced() handles the executor's death, halt.c a sign that the executor has
	 * failed. */
	if (!reply || domain_worker_is_failing(worker))
		return;
	if (reply->code) {
		worker_terminate(worker, reply->text[0] ? reply->text : "it could not be activated");
		return;
	}
	actions = promote_take(domain, INCIDENT_ACTIVATED);
	if (actions & INCIDENT_SERVE)
		serve(domain, worker, actions, &reply->values);
}

/*
 * Faults that were contained
 */

void promote_contained(
	struct domain *domain, struct worker *worker, uint64_t session, const struct wire_trouble *fault)
{
	struct promotion *promotion = &domain->promotion;

	if (worker != domain->active)
		return;
	/* A halted executor's loss is judged with everything else. */
	if (!incident_is_serving(promotion->state) && !incident_is_activating(promotion->state))
		return;
	log_debug("domain %u: fault: session %llu, fault %u, code %d, kernel %s", domain->number,
		(unsigned long long)session, fault->number, (int)fault->code, fault->text);
	evidence_settle(worker, fault->number);
	if (!attribute_is_noted(domain, session)) {
		attribute_contained(domain, session);
		verdict_contained(domain, session, fault);
	}
}

/*
 * Work that does not end
 */

void promote_over_limit(struct domain *domain, struct session *session)
{
	if (!incident_is_serving(domain->promotion.state) || !can_replace(domain))
		return;
	log_warning("work of process %d (%s) has been on the device for longer than max_kernel_seconds",
		(int)session->pid, session->program);
	domain->promotion.over_limit = session->number;
	step(domain, INCIDENT_ENDLESS, PROMOTE_LIMIT);
}

void promote_orphan(struct domain *domain, const struct session *session)
{
	struct promotion *promotion = &domain->promotion;

	log_warning("work of process %d (%s), which is gone, does not end: its executor will be replaced",
		(int)session->pid, session->program);
	promotion->orphan = true;
	domain_changed(domain);
	if (incident_is_serving(promotion->state) && can_replace(domain))
		replace_orphan(domain);
}

void promote_warm(struct domain *domain, struct worker *worker)
{
	struct promotion *promotion = &domain->promotion;

	/* The last answer brings the standby here again. */
	if (domain->life == DOMAIN_RETIRES || domain->daemon->phase == DAEMON_LEAVES || worker->mirrors)
		return;
	if (incident_is_waiting(promotion->state))
		activate(domain, worker);
	else if (incident_is_serving(promotion->state) && promotion->orphan)
		replace_orphan(domain);
}

/*
 * Another life of the daemon
 */

void promote_resume(struct domain *domain)
{
	saved_forget(domain);
	time_limit_watch(domain);
	if (!domain->active) {
		promote_take(domain, INCIDENT_RESUMED_WITHOUT);
	} else if (domain->active->state == WORKER_TERMINATING) {
		/* The reason of a replacement that had begun before the termination stays known. */
		promote_take(domain, INCIDENT_RESUMED_KILLED);
	} else {
		promote_take(domain, INCIDENT_RESUMED);
	}
}
