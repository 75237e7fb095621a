// See verdict.h.

#include "server/fault/verdict.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "protocol/cuda_abi.h"
#include "server/config/config.h"
#include "server/fault/evidence.h"
#include "server/incident/judge.h"
#include "server/log.h"
#include "server/loop/timer.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/events.h"
#include "server/session/session.h"
#include "server/worker/worker.h"

/* Sessions that a verdict names. */
#define NAMES_MAX 8u

/* Values of the reply to Activate. */
enum { ACTIVATED_CLEAN, ACTIVATED_REPEATS, ACTIVATED_FAULTED };

static const char *name_of(const char *kernel)
{
	return kernel[0] ? kernel : "(not known)";
}

/* The class of a fault, by the driver's name. */
static const char *class_of(int32_t code)
{
	switch (code) {
#define X(name, value, text)                                                                                 \
	case value:                                                                                          \
		return #name;
#include "protocol/errors.def"
#undef X
	default:
		return "of no known class";
	}
}

void verdict_reason(const struct promotion *promotion, char *text, size_t size)
{
	const struct judge_verdict *verdict = &promotion->verdict;

	if (promotion->cause == PROMOTE_ORPHAN && !verdict->culprit)
		snprintf(text, size, "work of a program that is gone did not end");
	else if (!verdict->culprit)
		snprintf(text, size, "the executor was lost (%s)", judge_ground_text(verdict->ground));
	else
		snprintf(text, size, "fault in kernel %s of process %d (%s), code %d, %s",
			name_of(verdict->kernel), promotion->culprit_pid, promotion->culprit_program,
			(int)verdict->code, judge_ground_text(verdict->ground));
}

static void append(struct domain *domain, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* To the text of the verdict. */
static void append(struct domain *domain, const char *format, ...)
{
	char *text = domain->promotion.verdict_text;
	size_t length = strlen(text);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text + length, sizeof(domain->promotion.verdict_text) - length, format, arguments);
	va_end(arguments);
}

static void begin(struct domain *domain, const char *text)
{
	snprintf(domain->promotion.verdict_text, sizeof(domain->promotion.verdict_text), "%s", text);
}

static void append_session(struct domain *domain, const struct session *session, unsigned count)
{
	append(domain, "%s session %llu (process %d, %.63s)", count > 1 ? "," : "",
		(unsigned long long)session->number, (int)session->pid, session->program);
}

static bool got_error(const struct promotion *promotion, const struct session *session)
{
	return session->evidence.held && !judge_blames(&promotion->verdict, session->number) &&
	       word_acquire(&session->view.server->state) == SHM_SESSION_FAULTED;
}

/* Sessions, beside the culprit, that got an error. */
static void append_failed(struct domain *domain)
{
	const struct session *session;
	unsigned count = 0;

	TAILQ_FOREACH (session, &domain->sessions, domain_link)
		if (got_error(&domain->promotion, session) && ++count <= NAMES_MAX)
			append_session(domain, session, count);
	if (count > NAMES_MAX)
		append(domain, " and %u more", count - NAMES_MAX);
	if (!count)
		append(domain, " nobody");
}

/* Sessions with kernels that faulted beside the culprit's. */
static void append_others(struct domain *domain)
{
	const struct judge_verdict *verdict = &domain->promotion.verdict;
	const struct session *session;
	unsigned count = 0;

	if (verdict->also_count)
		append(domain, " and at the same time");
	TAILQ_FOREACH (session, &domain->sessions, domain_link)
		if (session->number != verdict->culprit && judge_blames(verdict, session->number))
			append_session(domain, session, ++count);
	if (verdict->others)
		append(domain, " and others that nobody can be named for");
}

/* The standby's answer to Activate: how many sessions go on, how many of them have work
 * repeated. */
static void append_going_on(struct domain *domain, const struct wire_u64s *values)
{
	unsigned clean = 0, repeats = 0;

	for (uint32_t i = 0; i < values->count; i++) {
		clean += values->at[i] == ACTIVATED_CLEAN;
		repeats += values->at[i] == ACTIVATED_REPEATS;
	}
	append(domain, "; sessions that go on: %u", clean + repeats);
	if (repeats)
		append(domain, ", %u of them with commands repeated", repeats);
}

/* The fault, as far as known. */
static void append_fault(struct domain *domain, const struct judge_verdict *verdict)
{
	append(domain, ", kernel %s, code %d %s", name_of(verdict->kernel), (int)verdict->code,
		class_of(verdict->code));
	if (verdict->address)
		append(domain, ", address %#llx", (unsigned long long)verdict->address);
	if (verdict->instruction)
		append(domain, ", instruction at %#llx", (unsigned long long)verdict->instruction);
}

static void append_culprit(struct domain *domain)
{
	const struct promotion *promotion = &domain->promotion;
	const struct judge_verdict *verdict = &promotion->verdict;

	append(domain, "culprit is process %d (%s), session %llu", promotion->culprit_pid,
		promotion->culprit_program, (unsigned long long)verdict->culprit);
	append_others(domain);
	append_fault(domain, verdict);
	append(domain, ", %s; told an error beside it:", judge_ground_text(verdict->ground));
}

/* The reason for a replacement of the executor without a fault in it. */
static const char *occasion(const struct promotion *promotion)
{
	switch (promotion->cause) {
	case PROMOTE_ORPHAN:
		return "nobody is proved guilty of a fault (work of a program that is gone did not end)";
	case PROMOTE_SIGN:
	case PROMOTE_SILENT:
		return "nobody is proved guilty (the sign led nowhere: no fault was found)";
	case PROMOTE_LOST:
	case PROMOTE_LIMIT:
		break;
	}
	return NULL;
}

static void append_judgement(struct domain *domain)
{
	const struct promotion *promotion = &domain->promotion;
	const struct judge_verdict *verdict = &promotion->verdict;
	bool fault = verdict->ground != JUDGE_NO_FAULT;

	if (verdict->culprit) {
		append_culprit(domain);
		return;
	}
	if (!fault && occasion(promotion)) {
		append(domain, "%s", occasion(promotion));
	} else {
		append(domain, "nobody is proved guilty (%s)",
			verdict->gone ? "the program that did it is gone"
				      : judge_ground_text(verdict->ground));
		if (fault)
			append_fault(domain, verdict);
	}
	append(domain, "; told an error:");
}

static double ms(uint64_t from_us, uint64_t to_us)
{
	return to_us > from_us ? (double)(to_us - from_us) / 1000.0 : 0;
}

/* One phase after the other, without phases that were skipped. */
static void append_times(struct domain *domain)
{
	const struct promote_times *times = &domain->promotion.times;
	const struct {
		const char *name;
		uint64_t until_us;
	} phases[] = {{"halting", times->halted}, {"waiting for kernels", times->quiet},
		{"fencing", times->fenced}, {"judging", times->judged},
		{"waiting for a standby", times->activate}, {"activating it", timer_now_us()}};
	uint64_t from_us = times->detected;
	const char *before = " (";

	append(domain, "; took %.1f ms",
		ms(times->detected, phases[sizeof(phases) / sizeof(*phases) - 1].until_us));
	for (size_t i = 0; i < sizeof(phases) / sizeof(*phases); i++) {
		if (!phases[i].until_us)
			continue;
		append(domain, "%s%s %.1f", before, phases[i].name, ms(from_us, phases[i].until_us));
		from_us = phases[i].until_us;
		before = ", ";
	}
	append(domain, ")");
}

/* Once for each pause: a promotion that is cut short goes on in the next promotion. */
static void count_pause(struct domain *domain, uint64_t us)
{
	domain->daemon->counters.paused_us += us;
}

/* The text in verdict_text is one more verdict, of this moment. @culprit: 0 where none is proved or
 * known */
static void publish_about(struct domain *domain, const struct event_about *culprit)
{
	struct promotion *promotion = &domain->promotion;

	domain_changed(domain);
	promotion->verdict_ms = events_note(
		domain->daemon, EVENT_verdict, LOG_LEVEL_WARNING, culprit, "%s", promotion->verdict_text);
}

/* The session may be gone: a culprit whose error has arrived may end before the daemon does. */
static void publish(struct domain *domain, uint64_t number)
{
	const struct session *session = number ? domain_find_session(domain, number) : NULL;
	struct event_about about = session ? events_about(session) : events_about_user(domain);

	about.session = number;
	publish_about(domain, &about);
}

/* The culprit of a promotion was noted in time. */
static void publish_promotion(struct domain *domain)
{
	const struct promotion *promotion = &domain->promotion;
	struct event_about about = events_about_user(domain);

	about.session = promotion->verdict.culprit;
	if (about.session) {
		about.pid = promotion->culprit_pid;
		about.program = promotion->culprit_program;
	}
	publish_about(domain, &about);
}

void verdict_cut_short(struct domain *domain)
{
	begin(domain, "");
	append_judgement(domain);
	append_failed(domain);
	append(domain, "; the executor that took over failed before it served everybody");
	append_times(domain);
	publish_promotion(domain);
}

void verdict_report(struct domain *domain, const struct worker *worker, const struct wire_u64s *values)
{
	struct promotion *promotion = &domain->promotion;
	const struct event_about about = events_about_user(domain);
	char reason[256];

	begin(domain, "");
	append_judgement(domain);
	append_failed(domain);
	append_going_on(domain, values);
	if (promotion->sign[0])
		append(domain, "; sign: %s", promotion->sign);
	append_times(domain);
	count_pause(domain, timer_now_us() - promotion->times.detected);
	publish_promotion(domain);
	verdict_reason(promotion, reason, sizeof(reason));
	events_note(domain->daemon, EVENT_switch, LOG_LEVEL_INFO, &about,
		"promotion: executor %d serves uid %lld as generation %u; %s", (int)worker->pid,
		domain->use != DOMAIN_NOBODYS ? (long long)domain->identity.uid : -1LL, worker->generation,
		reason);
}

/*
 * Faults that cost nobody an executor
 */

/* The session may be gone: a culprit whose error has arrived may end before the daemon does. */
static void append_numbered(struct domain *domain, uint64_t number)
{
	const struct session *session = domain_find_session(domain, number);

	if (session)
		append(domain, "process %d (%.63s), ", (int)session->pid, session->program);
	append(domain, "session %llu", (unsigned long long)number);
}

/* For a session whose fault, or work without end, an executor has examined. */
static void begin_with_culprit(
	struct domain *domain, uint64_t session, const struct wire_trouble *fault, enum judge_ground ground)
{
	struct judge_verdict verdict = {.code = fault->code, .instruction = fault->instruction};

	snprintf(verdict.kernel, sizeof(verdict.kernel), "%s", fault->text);
	begin(domain, "culprit is ");
	append_numbered(domain, session);
	append_fault(domain, &verdict);
	append(domain, ", %s", judge_ground_text(ground));
}

void verdict_contained(struct domain *domain, uint64_t session, const struct wire_trouble *fault)
{
	double took_ms = (double)fault->took / 1e6;

	begin_with_culprit(domain, session, fault, JUDGE_LAST_WORDS);
	append(domain, "; told an error beside it: nobody; nobody waits; contained in %.1f ms", took_ms);
	count_pause(domain, fault->took / 1000);
	publish(domain, session);
}

void verdict_over_limit(
	struct domain *domain, const struct session *session, const char *kernel, uint64_t took_us)
{
	const struct wire_trouble limit = {.code = CUDA_ERROR_LAUNCH_TIMEOUT, .text = kernel};
	double took_ms = (double)took_us / 1000.0;

	begin_with_culprit(domain, session->number, &limit, JUDGE_OVER_LIMIT);
	append(domain, "; told an error beside it: nobody; nobody waits; ended in %.1f ms", took_ms);
	count_pause(domain, took_us);
	publish(domain, session->number);
}

void verdict_orphan(struct domain *domain, const struct session *session)
{
	begin(domain, "nobody is proved guilty of a fault (work of a program that is gone did not end:");
	append_session(domain, session, 1);
	append(domain, "); its kernels were ended; told an error: nobody; nobody waits");
	publish(domain, session->number);
}

void verdict_guard_hit(struct domain *domain, uint64_t owner, const char *hit)
{
	const struct judge_verdict verdict = {.code = CUDA_ERROR_ILLEGAL_ADDRESS};
	bool tells = domain->daemon->config->guard == CONFIG_GUARD_ERROR;

	begin(domain, "culprit is ");
	append_numbered(domain, owner);
	append_fault(domain, &verdict);
	append(domain, ", %s; %s, and nobody beside it: %s", judge_ground_text(JUDGE_GUARD),
		tells ? "it is told" : "it is not told (guard = warn)", hit);
	publish(domain, owner);
}
