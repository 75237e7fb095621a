// Halting. The daemon holds the sessions and sends Halt: the executor issues nothing more. While
// the executor lives, commands that were issued go on: kernels of others run to their end after a
// fault, so the completion words of all survivors arrive, and nothing is in flight. Their memory
// then stands still without a fence, because none of their commands is left in the old context.
//
//   success      Halt is answered, no survivor has anything on the device, and the culprit is known
//                (or nothing more will be learnt): promote_hand_over()
//   cut          patience is over, or the driver has abandoned the context (Lost) and no completion
//                word has moved for fault_stall_ms: the daemon asks the executor, which issues
//                nothing any more, to take itself off the device. Then no write of its context can
//                land either, but running work is cut and stays in flight. promote_off_device(). At
//                once where the executor has failed to explain a fault: each session with work on
//                the device then gets an error anyway, and no other session has any work there
//   failure      an executor that was silent before neither answers nor has a completion word move
//                for a while, or does not leave the device in time: the daemon terminates it and
//                awaits the end of its process
//
// The daemon does not wait for the culprit: its kernel may never end, its completion words prove
// nothing, and its resources stay taken until the process is reaped. Where no session is named,
// halting for a sign goes on until the executor had its time to report more: fault_stall_ms after
// Lost, NAME_MS after the last movement otherwise.
//
// Completion words lie in memory; the daemon polls every LOOK_MS.

#include "server/fault/halt.h"

#include <stdio.h>

#include "server/config/config.h"
#include "server/fault/attribute.h"
#include "server/fault/evidence.h"
#include "server/fault/promote.h"
#include "server/incident/incident.h"
#include "server/incident/judge.h"
#include "server/loop/timer.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/session.h"
#include "server/worker/worker.h"

#define LOOK_MS 1u
/* How long an executor that was silent before Halt has for its answer. */
#define LAST_CALL_MS 500u
/* How long after the end of all work the driver may take to report a fault. */
#define NAME_MS 1000u
/* How long an executor may take to leave the device. At a fault the kernel-mode driver does its own
 * work first, 58 to 151 ms (backend/cuda/channels.c); waiting longer than the end of the process
 * may take is useless. */
#define FENCE_MS 200u

/* Highest commands known done of a session, added up; only ever grows. */
static uint64_t progress_of(const struct session *session)
{
	uint32_t used = shm_view_used(&session->view);
	uint64_t sum = 0;

	for (uint32_t slot = 0; slot < used; slot++)
		if (word_acquire(&session->view.states[slot].issued))
			sum += shm_view_known_done(&session->view, slot);
	return sum;
}

/* True if the device has nothing of the sessions that are not to blame. Seen quiet once is quiet:
 * nobody issues. */
static bool survivors_are_quiet(struct domain *domain, const struct judge_verdict *verdict)
{
	struct promotion *promotion = &domain->promotion;
	uint64_t progress = 0;
	struct session *session;
	bool quiet = true;

	TAILQ_FOREACH (session, &domain->sessions, domain_link) {
		if (session->evidence.quiet || !session_is_live(session) ||
			!attribute_was_served(session, domain->active) ||
			judge_blames(verdict, session->number))
			continue;
		session->evidence.quiet = !shm_view_in_doubt(&session->view);
		quiet &= session->evidence.quiet;
		progress += session->evidence.quiet ? 1 : progress_of(session);
	}
	if (progress != promotion->progress) {
		promotion->progress = progress;
		promotion->moved_us = timer_now_us();
	}
	return quiet;
}

/* Looks whether anything of anybody ended since the last look. */
static void note_progress(struct domain *domain, uint64_t now_us)
{
	struct promotion *promotion = &domain->promotion;
	const struct session *session;
	uint64_t progress = 0;

	TAILQ_FOREACH (session, &domain->sessions, domain_link)
		if (session_is_live(session) && attribute_was_served(session, domain->active))
			progress += progress_of(session);
	if (progress == promotion->progress)
		return;
	promotion->progress = progress;
	promotion->moved_us = now_us;
}

static bool has_passed(uint64_t now_us, uint64_t since_us, uint64_t ms)
{
	return now_us >= since_us + ms * 1000;
}

/* Lost means that the driver has finished with the context, whatever was still in it. */
static bool is_stalled(const struct domain *domain, uint64_t now_us)
{
	uint64_t lost_us = evidence_of(domain->active)->lost_us;
	uint64_t ms = domain->daemon->config->fault_stall_ms;

	return lost_us && has_passed(now_us, lost_us, ms) &&
	       has_passed(now_us, domain->promotion.moved_us, ms);
}

/* True if the executor has failed to explain a fault. The executor may yet contain a fault that it
 * still examines, and reports nothing meanwhile. */
static bool is_unexplained(const struct domain *domain)
{
	const struct promotion *promotion = &domain->promotion;

	return promotion->cause == PROMOTE_SIGN &&
	       (attribute_doubt(domain, domain->active) & SHM_DOUBT_FAULT);
}

/* True if nothing more will be learnt about the cause. */
static bool is_explained(const struct domain *domain, const struct judge_verdict *verdict, uint64_t now_us)
{
	const struct promotion *promotion = &domain->promotion;
	bool planned = promotion->cause == PROMOTE_ORPHAN;

	return ((planned || verdict->culprit || verdict->gone) && !attribute_doubt(domain, domain->active)) ||
	       is_stalled(domain, now_us) || has_passed(now_us, promotion->moved_us, NAME_MS);
}

/* True if the executor's threads are in the driver for good, for the reason that kept them from
 * answering before. */
static bool is_silent(struct domain *domain, uint64_t now_us)
{
	struct promotion *promotion = &domain->promotion;

	if (promotion->state != INCIDENT_HALTING || promotion->cause != PROMOTE_SILENT)
		return false;
	note_progress(domain, now_us);
	return has_passed(now_us, promotion->moved_us, LAST_CALL_MS);
}

static void on_fenced(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct domain *domain = context;

	(void)packet;
	if (!reply || worker != domain->active || domain->promotion.state != INCIDENT_LEAVING)
		return;
	if (reply->code)
		worker_terminate(worker, "it cannot be taken off the device");
	else
		promote_off_device(domain);
}

static struct timer *timer_of(struct domain *domain)
{
	struct promotion *promotion = &domain->promotion;

	if (!promotion->halt_timer)
		promotion->halt_timer = timer_new(domain->daemon->loop, halt_look, domain);
	return promotion->halt_timer;
}

void halt_ask_for_fence(struct domain *domain)
{
	struct wire_message halt = {.type = WIRE_HALT, .halt.fence = true};

	domain->promotion.fence_until_us = timer_now_us() + FENCE_MS * 1000;
	worker_request(domain->active, &halt, NULL, 0, on_fenced, domain);
	timer_start(timer_of(domain), FENCE_MS);
}

static void give_up(struct domain *domain, bool stalled)
{
	if (!promote_take(domain, INCIDENT_STUCK))
		worker_terminate(domain->active,
			stalled ? "its context is dead" : "what was on the device does not end");
}

static void await_fence(struct domain *domain, uint64_t now_us)
{
	uint64_t until_us = domain->promotion.fence_until_us;

	if (now_us >= until_us)
		worker_terminate(domain->active, "it does not leave the device");
	else
		timer_start(timer_of(domain), (until_us - now_us) / 1000 + 1);
}

void halt_look(void *context)
{
	struct domain *domain = context;
	struct promotion *promotion = &domain->promotion;
	uint64_t now_us = timer_now_us();
	struct judge_verdict verdict;
	bool halted = promotion->state == INCIDENT_HALTED, quiet;

	if (!incident_is_halting(promotion->state))
		return;
	if (promotion->state == INCIDENT_LEAVING) {
		await_fence(domain, now_us);
		return;
	}
	attribute_preview(domain, domain->active, &verdict);
	if (halted && is_unexplained(domain)) {
		promote_take(domain, INCIDENT_STUCK);
		return;
	}
	quiet = halted && survivors_are_quiet(domain, &verdict);
	if (quiet && !promotion->times.quiet)
		promotion->times.quiet = now_us;
	if (quiet && is_explained(domain, &verdict, now_us))
		promote_hand_over(domain);
	else if (is_silent(domain, now_us))
		worker_terminate(domain->active, "it does not answer any more");
	else if (now_us >= promotion->halt_until_us)
		give_up(domain, false);
	else if (halted && !quiet && is_stalled(domain, now_us))
		give_up(domain, true);
	else
		timer_start(timer_of(domain), LOOK_MS);
}

static void on_halted(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct domain *domain = context;
	struct promotion *promotion = &domain->promotion;

	(void)packet;
	if (!reply || worker != domain->active || !promote_take(domain, INCIDENT_ANSWERED))
		return;
	promotion->times.halted = promotion->moved_us = timer_now_us();
	halt_look(domain);
}

void halt_begin(struct domain *domain, uint64_t patience_ms)
{
	struct promotion *promotion = &domain->promotion;
	struct wire_message halt = {.type = WIRE_HALT};
	struct session *session;

	TAILQ_FOREACH (session, &domain->sessions, domain_link)
		session->evidence.quiet = false;
	promotion->progress = 0;
	promotion->moved_us = timer_now_us();
	promotion->halt_until_us = promotion->moved_us + patience_ms * 1000;
	domain_all_changed(domain);
	worker_request(domain->active, &halt, NULL, 0, on_halted, domain);
	timer_start(timer_of(domain), LOOK_MS);
}

void halt_extend(struct domain *domain, uint64_t patience_ms)
{
	uint64_t until_us = timer_now_us() + patience_ms * 1000;

	if (until_us > domain->promotion.halt_until_us)
		domain->promotion.halt_until_us = until_us;
}

void halt_hurry(struct domain *domain)
{
	timer_start(timer_of(domain), 0);
}

void halt_end(struct domain *domain)
{
	timer_stop(timer_of(domain));
}
