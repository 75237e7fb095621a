// Attribution. See attribute.h; judge.c has the rules of guilt.
//
// Nobody looks for the culprit of a loss that the executor itself has not explained. The evidence
// about a session's own work decides its treatment:
//
//   culprit  the executor has named the session: the session gets the error of its kernel
//   unsure   an exception was found, not all its kernels are known, and this session had work on
//            the device at the first sign (the executor has then written SHM_DOUBT_WORKED).
//            Completion words prove nothing: the kernel that faulted may look finished. The session
//            gets an error
//   policy   commands that were issued are not known done: the next executor repeats them where
//            possible (executor/takeover.c), otherwise the session gets an error
//   nothing  all commands that were issued are done: the session goes on
//
// A kernel that crashes each executor would be repeated for ever. So each session records the
// commands that were in flight in each of its latest losses without a culprit; at
// ATTRIBUTE_LOSSES_MAX these are not repeated again (promote.c). The count begins anew when the
// commands are known done.
//
// Only work of the lost executor is judged: that executor did not serve a session whose header
// names an older generation (the session ended earlier, or was not reached), though commands of its
// journal are in flight. But an executor that ended during a take-over may have ended at any
// session: the loss counts for each session with commands in flight.

#include "server/fault/attribute.h"

#include <stdio.h>
#include <stdlib.h>

#include "protocol/command.h"
#include "server/executor/journal.h"
#include "server/fault/evidence.h"
#include "server/incident/in_flight.h"
#include "server/incident/judge.h"
#include "server/log.h"
#include "server/loop/timer.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/fault_history.h"
#include "server/session/session.h"
#include "server/worker/words.h"
#include "server/worker/worker.h"

bool attribute_was_served(const struct session *session, const struct worker *worker)
{
	/* Another device may write the word meanwhile. */
	if (session->is_detached)
		return false;
	return session->view.server && word_acquire(&session->view.server->generation) == worker->generation;
}

uint32_t attribute_doubt(const struct domain *domain, const struct worker *worker)
{
	const struct session *session;
	uint32_t doubt = 0;

	/* The word of a session that is closed there stays as written. */
	TAILQ_FOREACH (session, &domain->sessions, domain_link)
		if (session_is_live(session) && attribute_was_served(session, worker))
			doubt |= word_acquire(&session->view.server->doubtful);
	return doubt;
}

static void collect(const struct domain *domain, const struct worker *worker, struct judge_evidence *evidence)
{
	const struct promotion *promotion = &domain->promotion;
	uint32_t doubt = attribute_doubt(domain, worker);
	bool sign = promotion->cause == PROMOTE_SIGN;
	/* Evidence, but not of itself that there was a fault. */
	bool reported = evidence_is_reported(worker) && (doubt || !worker->contains) &&
			(promotion->cause == PROMOTE_LOST || sign);
	const struct worker_evidence *known = evidence_of(worker);

	*evidence = (struct judge_evidence){.lost = worker->lost || reported,
		.lost_code = worker->lost ? worker->lost_code : known->reported_code,
		.lost_address = reported ? known->reported_address : 0,
		.exit_signal = worker->exit_signal,
		.asked = worker->asked,
		/* The executor was at work on a fault, or did not end after a sign of a fault. */
		.suspected = doubt || (promotion->state == INCIDENT_FENCING && sign),
		.over_limit = promotion->over_limit};
	words_read(worker, evidence->words);
}

static void judge_domain(
	const struct domain *domain, const struct judge_evidence *evidence, struct judge_verdict *ret_verdict)
{
	uint64_t sessions[WINDOW_COUNT];
	const struct session *session;
	uint32_t count = 0;

	TAILQ_FOREACH (session, &domain->sessions, domain_link)
		if (count < WINDOW_COUNT)
			sessions[count++] = session->number;
	judge(evidence, sessions, count, ret_verdict);
}

void attribute_preview(
	const struct domain *domain, const struct worker *worker, struct judge_verdict *ret_verdict)
{
	struct judge_evidence evidence;

	collect(domain, worker, &evidence);
	judge_domain(domain, &evidence, ret_verdict);
}

/* With the steps of the incident and the faults that were contained these lines are the whole basis
 * of a verdict (tests/gpu/matrix_traces.py). */
static void log_evidence(const struct domain *domain, const struct judge_evidence *evidence)
{
	log_debug("domain %u: evidence: lost %d code %d, signal %d, asked %d, suspected %d, limit %llu",
		domain->number, evidence->lost, (int)evidence->lost_code, evidence->exit_signal,
		evidence->asked, evidence->suspected, (unsigned long long)evidence->over_limit);
	for (uint32_t i = 0; i < JUDGE_WORDS_MAX; i++) {
		const struct last_words *words = &evidence->words[i];

		if (words->magic == LAST_WORDS_MAGIC)
			log_debug("domain %u: words: session %llu, fault %u, code %d, kernel %.127s",
				domain->number, (unsigned long long)words->session, words->fault,
				(int)words->code, words->kernel);
	}
}

void attribute_contained(struct domain *domain, uint64_t number)
{
	struct session *session = domain_find_session(domain, number);

	domain->promotion.contained = number;
	domain->daemon->counters.faults++;
	domain->daemon->counters.culprits++;
	if (!session)
		return;
	session->evidence.faulted = true;
	fault_history_note(domain->daemon, session);
}

bool attribute_is_noted(const struct domain *domain, uint64_t number)
{
	const struct session *session = domain_find_session(domain, number);

	return number == domain->promotion.contained || (session && session->evidence.faulted);
}

static void count_loss(struct session *session, const struct in_flight *now)
{
	struct session_evidence *evidence = &session->evidence;

	if (evidence->losses && in_flight_intersect(&evidence->common, now)) {
		evidence->losses++;
		return;
	}
	session_evidence_forget_losses(&session->evidence);
	in_flight_copy(&evidence->common, now);
	evidence->losses = now->count != 0;
}

static void set_recover(
	struct session *session, const struct judge_verdict *verdict, bool is_unsure, bool in_flight)
{
	enum session_recover *recover = &session->evidence.recover;

	/* The result of this promotion stands until a standby has carried it out. */
	if (*recover == SESSION_RECOVER_CULPRIT || *recover == SESSION_RECOVER_UNSURE)
		return;
	if (judge_blames(verdict, session->number))
		*recover = SESSION_RECOVER_CULPRIT;
	else if (is_unsure)
		*recover = SESSION_RECOVER_UNSURE;
	else
		*recover = in_flight ? SESSION_RECOVER_BY_POLICY : SESSION_RECOVER_NOTHING;
}

/* True if the session had work on the device at the fault. An executor that does not see exceptions
 * may have ended before writing the sessions that had work: then the kernel log is the first
 * sign. */
static bool had_work(const struct session *session, const struct worker *worker)
{
	uint32_t doubt = word_acquire(&session->view.server->doubtful);

	if (doubt & SHM_DOUBT_WORKED)
		return true;
	return !worker->contains && evidence_is_reported(worker) && !doubt &&
	       shm_view_had_work(&session->view, evidence_of(worker)->reported_us * 1000);
}

/* @open: the kernel of at least one fault is not known. @fell_short: the executor ended during its
 * take-over */
static void settle(struct session *session, const struct worker *worker, const struct judge_verdict *verdict,
	bool open, bool fell_short)
{
	bool served = attribute_was_served(session, worker);
	bool worked = served && had_work(session, worker);
	struct in_flight now;

	in_flight_init(&now, &session->view);
	set_recover(session, verdict, open && worked, now.count != 0);
	if (verdict->culprit || verdict->gone)
		session_evidence_forget_losses(&session->evidence);
	else if (served || fell_short)
		count_loss(session, &now);
	log_debug("domain %u: session %llu: served %d, doubtful %u, in doubt %d, losses %u, recover %d",
		session->domain->number, (unsigned long long)session->number, served,
		word_acquire(&session->view.server->doubtful), now.count != 0, session->evidence.losses,
		(int)session->evidence.recover);
	in_flight_deinit(&now);
}

/* True if the verdict names the rest of a grid whose fault was noted when it was contained. */
static bool is_noted(const struct domain *domain, const struct judge_verdict *verdict)
{
	return verdict->culprit && attribute_is_noted(domain, verdict->culprit) && !verdict->also_count;
}

static const char *name_of(const struct holdings *holdings, uint32_t function)
{
	const struct holding *entry;

	TAILQ_FOREACH (entry, &holdings->entries, link)
		if (entry->type == WIRE_FIND_FUNCTION && entry->function == function)
			return entry->name;
	return "";
}

/* Return: true if the record is the command. */
static bool take(
	const struct session *session, const struct frmps_head *record, struct judge_verdict *verdict)
{
	const struct frmps_launch *launch = (const void *)(record + 1);

	if (record->op != FRMPS_OP_LAUNCH && record->op != FRMPS_OP_GRAPH_LAUNCH)
		return false;
	snprintf(verdict->kernel, sizeof(verdict->kernel), "%s",
		record->op == FRMPS_OP_LAUNCH ? name_of(&session->holdings, launch->function) : "of a graph");
	return true;
}

/* Another process of the user may write to the journal yet. */
static bool is_inside(const struct shm_view *view, struct journal_place place)
{
	return place.block < view->shape.journal_blocks &&
	       place.offset <= JOURNAL_RECORDS - sizeof(struct frmps_head) - sizeof(struct frmps_launch);
}

static bool look_at_stream(
	const struct session *session, struct journal *journal, uint32_t slot, struct judge_verdict *verdict)
{
	const struct shm_view *view = &session->view;
	uint64_t issued = word_acquire(&view->states[slot].issued), done = shm_view_known_done(view, slot);
	struct journal_place place;
	struct journal_list list;

	if (issued <= done)
		return false;
	journal_init(journal, view->blocks, view->shape.journal_blocks);
	journal_list_init(&list, &view->states[slot]);
	if (journal_adopt(journal, &list, done, &place) || issued > list.journaled)
		return false;
	for (uint64_t seq = done + 1; seq <= issued; seq++) {
		if (!is_inside(view, place))
			return false;
		if (take(session, journal_at(journal, place), verdict))
			return true;
		if (seq < issued)
			place = journal_next(journal, place);
	}
	return false;
}

/*
 * Where the executor has not named the kernel: the oldest kernel or graph in flight, in the first
 * stream of the culprit that has any. The command is found in the journal as a later executor would
 * find it (executor/journal.c); the kernel's name is from the answer to the session's request for
 * the function. Kernels of graphs have no names here.
 */
static void name_kernel(const struct session *culprit, struct judge_verdict *verdict)
{
	struct journal *journal = malloc(sizeof(*journal));
	uint32_t used = shm_view_used(&culprit->view);

	for (uint32_t slot = 0; journal && slot < used; slot++) {
		if (!word_acquire(&culprit->view.states[slot].issued))
			continue;
		if (look_at_stream(culprit, journal, slot, verdict))
			break;
	}
	free(journal);
}

static void name_culprit(struct domain *domain, const struct judge_verdict *verdict)
{
	struct promotion *promotion = &domain->promotion;
	struct session *session;

	/* A second loss within a promotion does not revoke the proof of the first. */
	if (promotion->verdict.culprit && !verdict->culprit)
		return;
	promotion->verdict = *verdict;
	TAILQ_FOREACH (session, &domain->sessions, domain_link) {
		if (judge_blames(verdict, session->number) && !attribute_is_noted(domain, session->number))
			fault_history_note(domain->daemon, session);
		if (session->number != verdict->culprit)
			continue;
		promotion->culprit_pid = (int)session->pid;
		snprintf(promotion->culprit_program, sizeof(promotion->culprit_program), "%.63s",
			session->program);
		if (!promotion->verdict.kernel[0])
			name_kernel(session, &promotion->verdict);
	}
}

void attribute(struct domain *domain, const struct worker *worker)
{
	struct judge_evidence evidence;
	struct judge_verdict verdict;
	struct session *session;
	bool open, noted;

	collect(domain, worker, &evidence);
	log_evidence(domain, &evidence);
	judge_domain(domain, &evidence, &verdict);
	/* A named session acquits nobody of kernels that were still being examined. */
	open = (verdict.ground == JUDGE_UNKNOWN && !verdict.gone) || verdict.others ||
	       attribute_doubt(domain, worker);
	TAILQ_FOREACH (session, &domain->sessions, domain_link)
		settle(session, worker, &verdict, open, domain->promotion.fell_short);
	domain->promotion.over_limit = 0;
	name_culprit(domain, &verdict);
	noted = is_noted(domain, &verdict);
	domain->daemon->counters.faults +=
		verdict.ground != JUDGE_NO_FAULT && verdict.ground != JUDGE_OVER_LIMIT && (open || !noted);
	domain->daemon->counters.culprits += verdict.culprit && !noted;
	domain->promotion.times.judged = timer_now_us();
}
