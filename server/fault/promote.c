// Promotion: the domain's state machine.
//
//                                                              promote_sign(), promote_orphan(),
//             activate()                 resume()               promote_over_limit()
//   WAITING ─────────────► ACTIVATING ─────────────► STEADY ────────────────────────────────────► HALTING
//      ▲                      │    │                    │                                          │    │
//      │                      │    └── promote_sign() ──┼─────────────────────────────────────────►│    │
//      │                      │                         │ promote_detect()                         │    │
//      │                      └──────────┬──────────────┴──────────────────────────────────────────┘    │
//      │                                 ▼                                                              │
//      ├────── promote_fenced() ◄──── FENCING                                      promote_hand_over()  │
//      └────────────────────────────────────────────────────────────────────────────────────────────────┘
//
//   detect   an executor that lives shows a sign of a fault, or says Lost: promote_sign(). It hung up, broke the protocol
//            or died: promote_detect(). A program's work does not end when it is gone, or is over its limit, and its
//            kernels could not be ended alone (endless.c): promote_orphan(), promote_over_limit()
//   halt     nothing is issued any more, and what survivors have on the device ends: halt.c. Then it can do
//            them no harm, and nobody waits for its end: promote_hand_over()
//            An executor that contains faults (worker->contains) tells of each one itself, and only the
//            session whose kernel it was is hurt: promote_contained(). It serves on; where something that faulted
//            is left on the device it is asked to halt at a moment at which nobody notices, and all of the above
//            is over at once. Other signs of a fault say nothing new then, unless it does not speak
//   fence    where something does not end, the executor takes itself off the device: promote_off_device().
//            Where it cannot, or is dead or dying: SIGKILL at once, then the word of the kernel that the
//            process is reaped: promote_fenced(). Nothing of any session is touched before, because the old
//            context may still write
//   judge    last words, journals and timelines are read when no survivor's can change any more: convict()
//   promote  Activate to a warm standby, at once or when there is one: activate(). With it go the values of
//            modules' variables, where the old executor could hand them over: keep_variables()
//   resolve  the standby applies each session's recover code; the daemon itself ends only sessions that the
//            standby cannot take over: settle_session()
//   resume   requests that were not answered go to the new executor: resume()
//
// What may be trusted: in FENCING nothing that lives in shared memory; in HALTING the states of sessions once
// Halt is answered; in WAITING after a loss, journals, states and timelines of all sessions but a culprit's
// stand still. After a hand-over the old process still dies: it holds what it had mapped, so sessions that it
// knew are not let go, and no new standby is started, before it is reaped (session_close.c, domain.c); the culprit's
// kernels may run until then, and their marks go into a timeline that nobody reads any more. It is not the
// active one, so its end changes nothing here. A loss in ACTIVATING starts over: sessions that the dead
// standby had not reached still carry the older generation, and each session is judged by the generation in
// its own header. A worker that is not the active one never changes the state, it only counts as a standby or
// not.

#include "server/fault/promote.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server/config/config.h"
#include "server/fault/convict.h"
#include "server/fault/device.h"
#include "server/fault/halt.h"
#include "server/fault/overrun.h"
#include "server/fault/verdict.h"
#include "server/log.h"
#include "server/loop/shared_fd.h"
#include "server/loop/timer.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/formers.h"
#include "server/session/request.h"
#include "server/session/rooms.h"
#include "server/session/session.h"
#include "server/worker/worker.h"

/* When an executor in which a fault was contained is asked again for a quiet moment, at least, and by how much longer it
 * is left alone than it had looked for one, because it keeps programs' queues short meanwhile. */
#define QUIET_MS     1000u
#define QUIET_FACTOR 3u
/* How long an executor may take to say that there is no such moment while work of its sessions ends; it looks
 * for one for 5.5 s at most (GATE_FAREWELL_ALL_NS, and one command more). One that does not come back from the
 * driver does not say it (HALT_SILENCE_MS). */
#define ANSWER_MS      10000u
#define ANSWER_LOOK_MS 100u
/* How long survivors' kernels may take to end before an executor with an orphan is replaced under them. */
#define ORPHAN_PATIENCE_MS 2000u
/* How long an executor that was halted in a quiet moment is left alone once its sessions have gone on. It has nothing on the device but what the fault has left. While the kernel-mode driver takes its context apart so soon after a
 * fault, the next executor's calls and kernels may not come through: ended at once, 13 of 20 survivors had a second
 * gap of 16 to 131 ms, ended half a second later none of 20 had one (H200, driver 580; reads of an unmapped
 * address and illegal instructions). */
#define UNDISTURBED_MS 500u

const char *promote_state_name(enum promote_state state)
{
	static const char *const names[] = {"waiting", "activating", "steady", "halting", "fencing"};

	return names[state];
}

int promote_init(struct domain *domain)
{
	domain->promotion = (struct promotion){.state = PROMOTE_WAITING};
	domain->promotion.halt_timer = timer_new(domain->daemon->loop, halt_look, domain);
	return domain->promotion.halt_timer ? overrun_init(domain) : -ENOMEM;
}

void promote_deinit(struct domain *domain)
{
	overrun_deinit(domain);
	domain->promotion.variables = shared_fd_unref(domain->promotion.variables);
	domain->promotion.halt_timer = timer_free(domain->promotion.halt_timer);
}

void promote_hold_sessions(struct domain *domain)
{
	struct session *session;

	TAILQ_FOREACH (session, &domain->sessions, domain_link)
		if (session_is_live(session)) {
			session->held = true;
			session_hold(session);
		}
}

/*
 * Detect
 */

/* Something is wrong with the active executor. */
static void begin(struct domain *domain, enum promote_state state, enum promote_cause cause)
{
	struct promotion *promotion = &domain->promotion;

	/* A loss during a promotion belongs to the same pause, but its verdict takes the place of the former. */
	if (promotion->lost_one && promotion->state == PROMOTE_ACTIVATING)
		verdict_cut_short(domain);
	if (!promotion->lost_one)
		promotion->times = (struct promote_times){.detected = timer_now_us()};
	promotion->fell_short = promotion->state == PROMOTE_ACTIVATING;
	promotion->lost_one = true;
	promotion->state = state;
	promotion->cause = cause;
	promotion->silent = false;
	promotion->fence_until_us = 0;
	promotion->sign[0] = '\0';
	promote_hold_sessions(domain);
	domain->daemon->standby_room->in_trouble(domain);
}

static void halt(struct domain *domain, enum promote_cause cause, uint64_t patience_ms)
{
	begin(domain, PROMOTE_HALTING, cause);
	halt_begin(domain, patience_ms);
}

static void note_sign(struct domain *domain, const struct worker *worker, const char *sign)
{
	snprintf(domain->promotion.sign, sizeof(domain->promotion.sign), "%s", sign);
	log_warning("executor %d shows a sign of a fault: %s", (int)worker->pid, sign);
}

/* While it is halted. A fault explains more than an orphan does, and what ends on the device has from now on as long
 * as behind any other fault. */
static void turn_into_fault(struct domain *domain, const struct worker *worker, const char *sign)
{
	struct promotion *promotion = &domain->promotion;

	if (promotion->cause == PROMOTE_SIGN)
		return;
	promotion->cause = PROMOTE_SIGN;
	halt_extend(domain, domain->daemon->config->fault_patience_ms);
	note_sign(domain, worker, sign);
}

bool promote_sign(struct domain *domain, struct worker *worker, const char *sign)
{
	struct promotion *promotion = &domain->promotion;

	if (worker != domain->active)
		return false;
	if (promotion->state == PROMOTE_HALTING) {
		turn_into_fault(domain, worker, sign);
		promotion->silent = false;
		halt_hurry(domain);
		return true;
	}
	if (promotion->state != PROMOTE_STEADY && promotion->state != PROMOTE_ACTIVATING)
		return false;
	halt(domain, PROMOTE_SIGN, domain->daemon->config->fault_patience_ms);
	note_sign(domain, worker, sign);
	return true;
}

void promote_silent(struct domain *domain, struct worker *worker)
{
	struct promotion *promotion = &domain->promotion;

	if (worker != domain->active || promotion->state != PROMOTE_STEADY)
		return;
	promote_sign(domain, worker, "it does not answer any more");
	promotion->silent = promotion->state != PROMOTE_STEADY;
	domain_keep(domain);
}

void promote_lost(struct worker *worker, const char *text)
{
	if (!device_take_lost(worker) && !(worker->domain && promote_sign(worker->domain, worker, text)))
		worker_condemn(worker, "lost its context");
}

void promote_close_overdue(struct domain *domain)
{
	if (domain->promotion.state == PROMOTE_ACTIVATING)
		worker_condemn(domain->active, "did not close a session in time");
	else if (!domain->promotion.worn)
		promote_silent(domain, domain->active);
}

void promote_detect(struct domain *domain, struct worker *worker)
{
	struct promotion *promotion = &domain->promotion;

	if (worker != domain->active || promotion->state == PROMOTE_FENCING)
		return;
	if (promotion->state == PROMOTE_HALTING) {
		halt_end(domain);
		promotion->state = PROMOTE_FENCING;
		promote_hold_sessions(domain);
	} else {
		begin(domain, PROMOTE_FENCING, PROMOTE_LOST);
	}
}

/*
 * Promote
 */

/* Decides whether the standby is to serve a session; those that it cannot serve end here, with a reason. */
static bool settle_session(struct domain *domain, const struct worker *worker, struct session *session)
{
	const struct judge_verdict *verdict = &domain->promotion.verdict;

	if (!session_is_live(session))
		return false;
	if (worker_is_immovable(worker, session->number)) {
		session_finish(session, SHM_SESSION_FAULTED, verdict->code,
			"another program's fault ended the executor, and this program's modules or memory "
			"could not "
			"be rebuilt in the next one at the same addresses");
		return false;
	}
	if (session->losses >= CONVICT_LOSSES_MAX && session->recover == SESSION_RECOVER_BY_POLICY) {
		session_finish(session, SHM_SESSION_FAULTED, verdict->code,
			"the same commands of this program were on the device when several executors in a "
			"row "
			"ended, and are not repeated again");
		return false;
	}
	return true;
}

static void on_activated(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet);

static uint32_t recover_code(const struct session *session)
{
	return session->recover == SESSION_RECOVER_BY_POLICY ? session_policy(session)
							     : (uint32_t)session->recover;
}

static void send_activate(struct domain *domain, struct worker *worker)
{
	uint64_t numbers[WINDOW_COUNT];
	uint32_t recover[WINDOW_COUNT], count = 0;
	struct wire_message message = {.type = WIRE_ACTIVATE};
	struct formers formers;
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
	formers_list(worker, &formers);
	message.activate = (struct wire_activate){.generation = worker->generation,
		.sessions = {numbers, count},
		.recover = {recover, count},
		.formers = {formers.pids, formers.count},
		.code = domain->promotion.verdict.code,
		.reason = reason,
		.canary_ms = (uint32_t)domain->daemon->config->canary_patience_ms};
	worker_request(worker, &message, &domain->promotion.variables, domain->promotion.variables ? 1 : 0,
		on_activated, domain);
}

static void activate(struct domain *domain, struct worker *worker)
{
	struct promotion *promotion = &domain->promotion;

	promotion->state = PROMOTE_ACTIVATING;
	promotion->times.activate = timer_now_us();
	worker->generation = ++promotion->generation;
	worker->state = WORKER_ACTIVE;
	domain->active = worker;
	domain_keep_all(domain, true);
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
		if (worker->state == WORKER_WARM && !worker->mirrors)
			return worker;
	return NULL;
}

/* The standby that takes over, if there is one now; promote_warm() comes back to it otherwise. */
static void choose(struct domain *domain)
{
	struct worker *worker = promote_find_warm(domain);

	domain->promotion.state = PROMOTE_WAITING;
	if (domain->retiring || domain->daemon->leaving)
		return;
	if (worker)
		activate(domain, worker);
	else if (domain->promotion.lost_one)
		log_warning("no standby is ready: clients are held until one is");
}

/* The old executor is out of the way: whose fault it was, and who comes next. */
static void replace(struct domain *domain, const struct worker *worker)
{
	domain->promotion.orphan = domain->promotion.worn = false;
	domain->promotion.asked_us = 0;
	domain->active = NULL;
	/* Once more: the old executor may have written the word while it stopped. */
	promote_hold_sessions(domain);
	/* Nobody is left whose fault it could be. */
	if (!domain->retiring)
		convict(domain, worker);
	choose(domain);
}

void promote_fenced(struct domain *domain, struct worker *worker)
{
	if (worker != domain->active)
		return;
	domain->promotion.times.fenced = timer_now_us();
	replace(domain, worker);
}

void promote_off_device(struct domain *domain)
{
	struct worker *worker = domain->active;

	halt_end(domain);
	domain->promotion.state = PROMOTE_FENCING;
	promote_fenced(domain, worker);
	worker_condemn(worker, "its clients go on in the next one");
}

void promote_hand_over(struct domain *domain)
{
	struct worker *worker = domain->active;
	const char *reason = "its clients go on in the next one";
	bool undisturbed =
		domain->promotion.cause == PROMOTE_WORN && !domain->retiring && !domain->daemon->leaving;

	halt_end(domain);
	/* It halted between two jobs, and what is queued there stays so. Otherwise it may be at one, and put something on
	 * the device that the next one would do as well: that one is asked when it has ended. */
	if (undisturbed)
		request_forgo_all(worker);
	replace(domain, worker);
	/* Not the active one any more, so its end is nobody's business but the driver's. */
	if (undisturbed)
		worker_condemn_later(worker, UNDISTURBED_MS, reason);
	else
		worker_condemn(worker, reason);
}

/* Whether a replacement would be there at once, or cannot be had earlier. */
static bool can_replace(struct domain *domain)
{
	return promote_find_warm(domain) || !domain->daemon->config->standbys || domain->alone;
}

static void replace_orphan(struct domain *domain)
{
	domain->daemon->counters.orphans++;
	halt(domain, PROMOTE_ORPHAN, ORPHAN_PATIENCE_MS);
}

static void resume(struct domain *domain, struct worker *worker, const struct wire_u64s *values)
{
	struct promotion *promotion = &domain->promotion;
	struct session *session;

	promotion->state = PROMOTE_STEADY;
	if (promotion->lost_one) {
		verdict_report(domain, worker, values);
		domain->daemon->counters.promotions++;
	} else {
		log_debug("executor %d is active", (int)worker->pid);
	}
	promotion->lost_one = false;
	promotion->variables = shared_fd_unref(promotion->variables);
	promotion->verdict = (struct judge_verdict){0};
	TAILQ_FOREACH (session, &domain->sessions, domain_link) {
		session->recover = SESSION_RECOVER_NOTHING;
		session->held = false;
	}
	domain_resume(domain);
	domain_fill(domain);
	promote_look(domain);
	/* Of one that was known before. */
	if (promotion->state == PROMOTE_STEADY && promotion->orphan && !promotion->worn &&
		can_replace(domain))
		replace_orphan(domain);
}

static void on_activated(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct domain *domain = context;

	(void)packet;
	/* Its death is promote_fenced()'s, and a sign that it has failed halt.c's. */
	if (!reply || worker_is_failing(worker))
		return;
	if (reply->code)
		worker_condemn(worker, reply->text[0] ? reply->text : "could not be activated");
	else
		resume(domain, worker, &reply->values);
}

/*
 * Faults that were contained
 */

/* A daemon that dies loses them, and who needs them is told (executor/takeover.c). */
static void keep_variables(struct promotion *promotion, struct packet *packet)
{
	int fd = packet_take_fd(packet, 0);

	shared_fd_unref(promotion->variables);
	promotion->variables = fd < 0 ? NULL : shared_fd_new(fd);
}

static void on_quiet(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct domain *domain = context;
	struct promotion *promotion = &domain->promotion;
	uint64_t took_ms = (timer_now_us() - promotion->asked_us) / 1000;

	if (!reply || worker != domain->active)
		return;
	promotion->asked_us = 0;
	/* Also where a fault came in between: what halted gently has written them in a gap. */
	if (!reply->code)
		keep_variables(promotion, packet);
	if (promotion->state != PROMOTE_STEADY)
		return;
	if (reply->code) {
		timer_start(promotion->halt_timer,
			took_ms * QUIET_FACTOR > QUIET_MS ? took_ms * QUIET_FACTOR : QUIET_MS);
		return;
	}
	begin(domain, PROMOTE_HALTING, PROMOTE_WORN);
	domain_keep_all(domain, false);
	halt_answered(domain);
}

static void ask_for_quiet(struct domain *domain)
{
	struct promotion *promotion = &domain->promotion;
	struct wire_message halt = {.type = WIRE_HALT, .halt.gently = true};

	/* Where there is no standby it goes on: nobody is held until one is made. */
	if (promotion->asked_us || !promote_find_warm(domain))
		return;
	promotion->asked_us = promotion->moved_us = timer_now_us();
	halt_note_progress(domain, promotion->asked_us);
	worker_request(domain->active, &halt, NULL, 0, on_quiet, domain);
}

static bool is_silent(struct domain *domain)
{
	struct promotion *promotion = &domain->promotion;
	uint64_t now_us = timer_now_us();

	if (!promotion->asked_us)
		return false;
	halt_note_progress(domain, now_us);
	return now_us >= promotion->asked_us + ANSWER_MS * 1000 ||
	       now_us >= promotion->moved_us + HALT_SILENCE_MS * 1000;
}

void promote_look(struct domain *domain)
{
	struct promotion *promotion = &domain->promotion;

	if (promotion->state != PROMOTE_STEADY || domain->retiring || domain->daemon->leaving)
		return;
	if (is_silent(domain)) {
		promote_silent(domain, domain->active);
		return;
	}
	if (promotion->worn)
		ask_for_quiet(domain);
	if (promotion->asked_us)
		timer_start(promotion->halt_timer, ANSWER_LOOK_MS);
}

void promote_contained(
	struct domain *domain, struct worker *worker, uint64_t session, const struct wire_trouble *fault)
{
	struct promotion *promotion = &domain->promotion;

	if (worker != domain->active)
		return;
	/* What is halted already is judged with everything else. */
	if (promotion->state != PROMOTE_STEADY && promotion->state != PROMOTE_ACTIVATING)
		return;
	worker_settle(worker, fault->number);
	promotion->worn |= !fault->ended;
	/* A grid of many warps may fault again and again until all of it has ended. That is one fault of its program. */
	if (promotion->contained != session) {
		promotion->contained = session;
		convict_contained(domain, session);
		verdict_contained(domain, session, fault);
	}
	domain_fill(domain);
	promote_look(domain);
}

/*
 * Work that does not end
 */

void promote_over_limit(struct domain *domain, struct session *session)
{
	if (domain->promotion.state != PROMOTE_STEADY || !can_replace(domain))
		return;
	log_warning("work of process %d (%s) has been on the device for longer than max_kernel_seconds",
		(int)session->pid, session->program);
	session->over_limit = true;
	halt(domain, PROMOTE_LIMIT, ORPHAN_PATIENCE_MS);
}

void promote_orphan(struct domain *domain, const struct session *session)
{
	struct promotion *promotion = &domain->promotion;

	log_warning("work of process %d (%s), which is gone, does not end: its executor will be replaced",
		(int)session->pid, session->program);
	/* One that is being replaced anyway is in no hurry. */
	if (promotion->worn)
		return;
	promotion->orphan = true;
	if (promotion->state == PROMOTE_STEADY && can_replace(domain))
		replace_orphan(domain);
}

void promote_warm(struct domain *domain, struct worker *worker)
{
	struct promotion *promotion = &domain->promotion;

	/* The last of its answers brings it here again. */
	if (domain->retiring || domain->daemon->leaving || worker->mirrors)
		return;
	if (promotion->state == PROMOTE_WAITING)
		activate(domain, worker);
	else if (promotion->state == PROMOTE_STEADY && promotion->orphan)
		replace_orphan(domain);
	else if (promotion->state == PROMOTE_STEADY && promotion->worn)
		promote_look(domain);
}
