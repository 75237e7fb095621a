// See device_drain.h. A drain looks at all sessions and workers every LOOK_MS until nothing is left
// to wait for: it is rare, and what it waits for has many ends.

#include "server/daemon/device_drain.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/cuda_abi.h"
#include "server/daemon/keeping.h"
#include "server/daemon/life.h"
#include "server/daemon/requests.h"
#include "server/daemon/witnesses.h"
#include "server/fault/promote.h"
#include "server/incident/incident.h"
#include "server/log.h"
#include "server/loop/timer.h"
#include "server/session/chunk.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/due.h"
#include "server/session/events.h"
#include "server/session/export.h"
#include "server/session/holdings.h"
#include "server/session/reclaim.h"
#include "server/session/session.h"
#include "server/standby/leaving.h"
#include "server/standby/swap.h"
#include "server/worker/worker.h"

#define LOOK_MS UINT64_C(5)
/* Time limit of what has to end before memory can leave: requests, starts and ends of programs. */
#define PATIENCE_US UINT64_C(10000000)
/* Time after which the operator learns that a killed worker does not end. */
#define END_US UINT64_C(30000000)
/* Of what is said to operators. */
#define TEXT_BYTES 1200u

/* What is waited for. */
enum drain_phase {
	DRAIN_NOTHING,
	DRAIN_LEAVES, /* DRAINING */
	DRAIN_ENDS,   /* DRAINED: workers are to end */
	DRAIN_FILLS,  /* SERVING, after DRAINED: workers start, and memory comes back */
};

struct device_drain {
	struct daemon *daemon;
	enum drain_phase phase;
	struct timer *look;
	uint64_t until_us;	    /* of the phase; what is waited for then is an obstacle */
	char failure[TEXT_BYTES];   /* why a session could not leave; empty: none has failed */
	device_drain_done_fn *done; /* NULL: nobody waits */
	void *context;
};

/*
 * Texts
 */

static void append(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* @text: TEXT_BYTES */
static void append(char *text, const char *format, ...)
{
	size_t length = strlen(text);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text + length, TEXT_BYTES - length, format, arguments);
	va_end(arguments);
}

static void append_session(char *text, const struct session *session, const char *what)
{
	append(text, "%ssession %llu (process %d, %.63s): %s", *text ? "; " : "",
		(unsigned long long)session->number, (int)session->pid, session->program, what);
}

static void say(struct device_drain *drain, int32_t code, const char *text)
{
	device_drain_done_fn *done = drain->done;

	drain->done = NULL;
	if (done)
		done(drain->context, code, text);
}

static void await(struct device_drain *drain, device_drain_done_fn *done, void *context)
{
	say(drain, CUDA_ERROR_ILLEGAL_STATE, "an order after this one is about the same device");
	drain->done = done;
	drain->context = context;
}

static void note(struct daemon *daemon, const char *what)
{
	const struct event_about nobody = events_about_user(NULL);

	events_note(daemon, EVENT_device, LOG_LEVEL_INFO, &nobody, "%s", what);
}

static void set_state(struct daemon *daemon, enum device_state state)
{
	daemon->health.state = state;
}

static void enter(struct device_drain *drain, enum drain_phase phase, uint64_t limit_us)
{
	drain->phase = phase;
	drain->until_us = timer_now_us() + limit_us;
	*drain->failure = '\0';
	timer_start(drain->look, LOOK_MS);
}

/*
 * Obstacles
 */

/* Of all sessions of an owner. */
static uint64_t bytes_to_leave(const struct daemon *daemon, uid_t owner)
{
	const struct session *session;
	uint64_t bytes = 0;

	TAILQ_FOREACH (session, &daemon->sessions, link)
		bytes += session->owner == owner ? leaving_bytes(session) : 0;
	return bytes;
}

/* @ret_text: TEXT_BYTES, empty: there is no obstacle */
static void survey(const struct daemon *daemon, char *ret_text)
{
	const uint64_t unheld = exports_unheld_bytes(&daemon->exports);
	const struct session *session;
	const char *text;

	*ret_text = '\0';
	TAILQ_FOREACH (session, &daemon->sessions, link) {
		text = leaving_refuses(session);
		if (text)
			append_session(ret_text, session, text);
		text = session_is_first_of_owner(session) ? swap_refuses_bytes(daemon, session->owner,
								    bytes_to_leave(daemon, session->owner))
							  : NULL;
		if (text)
			append(ret_text, "%s%s", *ret_text ? "; " : "", text);
	}
	if (unheld)
		append(ret_text,
			"%s%llu MiB of exported memory belong to no program, but a process has their "
			"descriptor",
			*ret_text ? "; " : "", (unsigned long long)(unheld >> 20));
}

/*
 * DRAINING
 */

/* Sessions and requests that waited go on, and what has left comes back. */
static void let_go_on(struct daemon *daemon)
{
	struct domain *domain;

	TAILQ_FOREACH (domain, &daemon->domains, link)
		if (domain_serving(domain))
			due_domain(domain, DOMAIN_DUE_SERVE);
}

static void on_stays(void *context, int32_t code, const char *text)
{
	(void)context;
	(void)code;
	(void)text;
}

static void call_off(struct device_drain *drain, const char *text)
{
	struct daemon *daemon = drain->daemon;
	struct session *session;
	char what[TEXT_BYTES + 64];

	drain->phase = DRAIN_NOTHING;
	set_state(daemon, DEVICE_SERVING);
	TAILQ_FOREACH (session, &daemon->sessions, link)
		if (session->memory == SESSION_MEMORY_LEAVES && session->drained)
			swap_end(session, on_stays, NULL);
	let_go_on(daemon);
	snprintf(what, sizeof(what), "the device is not drained: %s", text);
	note(daemon, what);
	say(drain, CUDA_ERROR_NOT_SUPPORTED, text);
}

static void on_left(void *context, int32_t code, const char *text)
{
	struct session *session = context;
	struct device_drain *drain = session->daemon->drain;

	/* One that ends is no obstacle, nor is one whose set lost a member: it is tried again. */
	if (code && code != CUDA_ERROR_MPS_CLIENT_TERMINATED && drain->phase == DRAIN_LEAVES &&
		session->state != SESSION_CLOSING)
		append_session(drain->failure, session, text);
}

static bool has_error(const struct session *session)
{
	uint32_t state = word_acquire(&session->view.server->state);

	return state == SHM_SESSION_FAULTED || state == SHM_SESSION_CLOSED;
}

/* A session without a program that works. May free it. Return: what it is in the middle of; NULL:
 * nothing */
static const char *settle(struct session *session)
{
	if (session->state == SESSION_OPENING && session->opening)
		return "it starts";
	if (session->state == SESSION_OPENING) {
		session_refuse(session, CUDA_ERROR_MPS_SERVER_NOT_READY, DEVICE_DRAIN_REFUSAL);
		return NULL;
	}
	/* Its program has its error. */
	session_end(session, 0);
	return "it ends";
}

/* Return: why its memory is not away; NULL: it is */
static const char *leave(struct device_drain *drain, struct session *session)
{
	const char *text;

	if (session->state != SESSION_SERVED || has_error(session))
		return settle(session);
	if (session->request && request_is_under_way(session->request))
		return "it waits for an answer of the service";
	switch (session->memory) {
	case SESSION_MEMORY_AWAY:
		return NULL;
	case SESSION_MEMORY_RETURNS:
		return "its device memory comes back";
	case SESSION_MEMORY_HERE:
		text = leaving_refuses(session);
		if (text)
			append_session(drain->failure, session, text);
		text = text ? text : swap_begin(session, SWAP_DRAINED, on_left, session);
		if (text)
			return text;
		break;
	case SESSION_MEMORY_LEAVES:
		break;
	}
	/* The executor bounds the time of its work, and copies take as long as they take. */
	drain->until_us = timer_now_us() + PATIENCE_US;
	return "its device memory leaves";
}

/* @ret_text: TEXT_BYTES: who is waited for; empty: nobody */
static void leave_all(struct device_drain *drain, char *ret_text)
{
	struct session *session = TAILQ_FIRST(&drain->daemon->sessions), *next;
	const char *text;

	*ret_text = '\0';
	if (session)
		session_ref(session);
	for (; session; session = next) {
		next = TAILQ_NEXT(session, link);
		if (next)
			session_ref(next);
		text = leave(drain, session);
		if (text)
			append_session(ret_text, session, text);
		session_unref(session);
	}
}

static void look_leaving(struct device_drain *drain)
{
	struct daemon *daemon = drain->daemon;
	char text[TEXT_BYTES];

	leave_all(drain, text);
	if (*text && !*drain->failure && timer_now_us() < drain->until_us) {
		timer_start(drain->look, LOOK_MS);
		return;
	}
	/* Once more: all have left, and some kernel may have left something behind. */
	if (!*text && !*drain->failure)
		survey(daemon, drain->failure);
	else if (!*drain->failure)
		append(drain->failure, "%s; try again", text);
	if (*drain->failure) {
		call_off(drain, drain->failure);
	} else {
		set_state(daemon, DEVICE_DRAINED);
		note(daemon, "the device is drained: programs wait until it is refilled (frmpsctl refill)");
		enter(drain, DRAIN_ENDS, END_US);
	}
}

/*
 * DRAINED
 */

/* The guard's memory. Return: whether there was any */
static bool drop_sink(struct session *session)
{
	if (!session->sink)
		return false;
	session->sink = chunk_unref(session->sink);
	session_changed(session);
	return true;
}

/* An incident goes on to its end, and an Activate is answered. Return: whether there is any */
static bool end_executors(struct domain *domain)
{
	static const char why[] = "the device is drained";
	struct worker *worker;

	TAILQ_FOREACH (worker, &domain->workers, link)
		if (worker != domain->active && worker->state != WORKER_TERMINATING)
			worker_terminate(worker, why);
	promote_dismiss(domain, why);
	return !TAILQ_EMPTY(&domain->workers);
}

/* Return: true if no process has the device open, and no descriptor of its memory is left */
static bool end_all(struct daemon *daemon)
{
	struct session *session;
	struct domain *domain;
	bool is_over = witnesses_leave_device(daemon);

	TAILQ_FOREACH (session, &daemon->sessions, link)
		is_over &= !drop_sink(session);
	TAILQ_FOREACH (domain, &daemon->domains, link)
		is_over &= !end_executors(domain);
	/* What the keeper has made is released first. */
	is_over &= !reclaim_expects(daemon);
	if (is_over && daemon->keeper && daemon->keeper->state != WORKER_TERMINATING)
		worker_terminate(daemon->keeper, "the device is drained");
	return is_over && !daemon->keeper;
}

static void append_workers(const struct daemon *daemon, char *text)
{
	const struct worker *worker;

	TAILQ_FOREACH (worker, &daemon->crew.workers, crew_link)
		append(text, "%sprocess %d does not end: the kernel or a driver holds it", *text ? "; " : "",
			(int)worker->pid);
}

static void look_ending(struct device_drain *drain)
{
	char text[TEXT_BYTES] = "";

	if (end_all(drain->daemon)) {
		drain->phase = DRAIN_NOTHING;
		say(drain, CUDA_SUCCESS, "");
		return;
	}
	timer_start(drain->look, LOOK_MS);
	if (timer_now_us() < drain->until_us)
		return;
	append_workers(drain->daemon, text);
	say(drain, CUDA_ERROR_NOT_READY, *text ? text : "some memory of the device is not released yet");
}

/*
 * SERVING again
 */

/* Workers that ended too early, at an earlier refill for example, count no more. */
static void start_executors(struct daemon *daemon)
{
	struct domain *domain;

	domain_prewarm(daemon);
	TAILQ_FOREACH (domain, &daemon->domains, link) {
		domain->start_failures = 0;
		timer_stop(domain->respawn);
	}
	TAILQ_FOREACH (domain, &daemon->domains, link)
		domain_fill_all(domain);
}

static void fill(struct device_drain *drain)
{
	struct daemon *daemon = drain->daemon;

	set_state(daemon, DEVICE_SERVING);
	note(daemon, "the device is being refilled: programs go on");
	if (!daemon->keeper)
		keeping_start(daemon);
	start_executors(daemon);
	enter(drain, DRAIN_FILLS, 0);
}

bool device_drain_take_back(struct daemon *daemon, const char *reason)
{
	struct device_drain *drain = daemon->drain;
	char what[TEXT_BYTES];

	if (drain->phase != DRAIN_FILLS || domain_serves_anybody(daemon))
		return false;
	set_state(daemon, DEVICE_DRAINED);
	snprintf(what, sizeof(what), "the device stays drained: %s", reason);
	note(daemon, what);
	enter(drain, DRAIN_ENDS, END_US);
	say(drain, CUDA_ERROR_DEVICE_UNAVAILABLE, reason);
	return true;
}

/* Return: why executors of some domain cannot start; NULL: not known */
static const char *find_failure(const struct daemon *daemon)
{
	const struct domain *domain;

	TAILQ_FOREACH (domain, &daemon->domains, link)
		if (domain->life != DOMAIN_RETIRES && !domain->active &&
			domain->start_failures >= DOMAIN_START_FAILURES)
			return domain->start_error;
	return NULL;
}

static bool is_served(const struct daemon *daemon)
{
	const struct domain *domain;

	TAILQ_FOREACH (domain, &daemon->domains, link)
		if (domain->life != DOMAIN_RETIRES && !domain_serving(domain))
			return false;
	return daemon->keeper && daemon->keeper->state == WORKER_WARM;
}

/* @ret_short: TEXT_BYTES: sessions for whose memory there is no room. Return: true if others are on
 * their way back */
static bool is_coming_back(const struct daemon *daemon, char *ret_short)
{
	const struct session *session;
	bool comes = false;

	*ret_short = '\0';
	TAILQ_FOREACH (session, &daemon->sessions, link) {
		if (!session->drained || session->state == SESSION_CLOSING)
			continue;
		if (swap_is_short(session))
			append_session(ret_short, session,
				"there is no room for its device memory, which comes back when there is");
		else
			comes = true;
	}
	return comes;
}

static void look_filling(struct device_drain *drain)
{
	struct daemon *daemon = drain->daemon;
	const char *failure = find_failure(daemon);
	char text[TEXT_BYTES];

	if (failure && device_drain_take_back(daemon, failure))
		return;
	if (!failure && (!is_served(daemon) || is_coming_back(daemon, text))) {
		timer_start(drain->look, LOOK_MS);
		return;
	}
	drain->phase = DRAIN_NOTHING;
	/* Other users' programs go on. */
	if (failure)
		say(drain, CUDA_ERROR_NOT_READY, failure);
	else
		say(drain, *text ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS, text);
}

/*
 * Orders
 */

static void on_look(void *context)
{
	struct device_drain *drain = context;

	struct daemon *daemon = drain->daemon;

	if (daemon->phase == DAEMON_LEAVES)
		return;
	if (daemon_has_failed(daemon)) {
		drain->phase = DRAIN_NOTHING;
		say(drain, daemon->health.code, daemon->health.reason);
		return;
	}
	switch (drain->phase) {
	case DRAIN_NOTHING:
		break;
	case DRAIN_LEAVES:
		look_leaving(drain);
		break;
	case DRAIN_ENDS:
		look_ending(drain);
		break;
	case DRAIN_FILLS:
		look_filling(drain);
		break;
	}
}

void device_drain_begin(struct daemon *daemon, device_drain_done_fn *done, void *context)
{
	struct device_drain *drain = daemon->drain;
	char text[TEXT_BYTES];

	await(drain, done, context);
	if (daemon->phase >= DAEMON_STOPS) {
		say(drain, CUDA_ERROR_NOT_PERMITTED, "the service stops");
		return;
	}
	switch (daemon->health.state) {
	case DEVICE_FAILED:
		say(drain, daemon->health.code, daemon->health.reason);
		break;
	case DEVICE_DRAINING:
		break;
	case DEVICE_DRAINED:
		if (drain->phase == DRAIN_NOTHING)
			say(drain, CUDA_SUCCESS, "");
		break;
	case DEVICE_SERVING:
		survey(daemon, text);
		if (*text) {
			say(drain, CUDA_ERROR_NOT_SUPPORTED, text);
			break;
		}
		set_state(daemon, DEVICE_DRAINING);
		enter(drain, DRAIN_LEAVES, PATIENCE_US);
		break;
	}
}

void device_drain_refill(struct daemon *daemon, device_drain_done_fn *done, void *context)
{
	struct device_drain *drain = daemon->drain;
	char text[TEXT_BYTES];

	if (daemon->health.state == DEVICE_DRAINING)
		call_off(drain, "an operator has the device refilled");
	await(drain, done, context);
	if (daemon->health.state == DEVICE_FAILED)
		say(drain, daemon->health.code, daemon->health.reason);
	else if (daemon->health.state == DEVICE_DRAINED)
		fill(drain);
	else if (drain->phase == DRAIN_NOTHING && !is_coming_back(daemon, text))
		say(drain, CUDA_SUCCESS, "");
	else
		enter(drain, DRAIN_FILLS, 0);
}

void device_drain_forget(struct daemon *daemon, const void *context)
{
	if (daemon->drain->context == context)
		daemon->drain->done = NULL;
}

void device_drain_go_on(struct daemon *daemon)
{
	if (daemon_is_drained(daemon))
		enter(daemon->drain, DRAIN_ENDS, END_US);
}

void device_drain_init(struct daemon *daemon)
{
	struct device_drain *drain = calloc(1, sizeof(*drain));

	log_bug_on(!drain);
	drain->daemon = daemon;
	drain->look = timer_new(daemon->loop, on_look, drain);
	daemon->drain = drain;
}

void device_drain_deinit(struct daemon *daemon)
{
	timer_free(daemon->drain->look);
	free(daemon->drain);
	daemon->drain = NULL;
}
