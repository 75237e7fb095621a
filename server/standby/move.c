// Moves a session into a domain of its own: its kernels need larger limits (cuCtxSetLimit) than
// kernels of others, or an operator ordered the move. The program notices a pause; other programs
// notice nothing.
//
//   move_begin()         the new domain's          all answered,             1: detached from
//        │               executor serves           no request under way      the old executor
//        └──► STARTING ──────────────► TELLING ───────────────────► LETTING_GO ─────────────► arrive()
//                 │                       │                            │   0: its own work does not end
//                 └───────────┬───────────┴────────────────────────────┘
//                             ▼ the limit is over, or an answer differs in the new executor
//                          call_off(): the session stays, the new domain goes
//
//   STARTING    a new domain that no other session may enter, with one executor, which starts
//   TELLING     that executor gets the session's holdings like a standby (warm.c), and also each
//               new holding. The old executor serves the session
//   LETTING_GO  the old executor is to detach the session (executor/detach.c). Requests of the
//               session wait
//
// arrive(): the session is the new domain's. No work of the session is on the device and its words
// stand still, so the new executor takes the session over at once (Activate). The old domain's
// executors get CloseSession; the session's windows stay taken until they have closed it
// (session/unpinning.c).
//
// Events during a move:
//   the old executor   is in trouble: the move is off in any state: the session is judged and
//                      promoted with all others. An executor that is halted or dying detaches
//                      nothing. An executor that does not answer within ANSWER_MS is in trouble:
//                      promote_silent()
//   the new executor   cannot start, or dies: the next executor is tried until the limit is over. A
//                      session that is detached at that moment arrives in a domain whose next
//                      executor takes the session over, as after any loss
//   the session        ends: the new domain goes
//   the daemon         dies: before LETTING_GO no record mentions a move, the new domain is empty
//                      and goes, and a request for a limit is read again. LETTING_GO is recorded
//                      with the session and goes on (move_adopt()). The step to the new domain is
//                      recorded as a whole
//
// Not movable: contents that a kernel may have left in its module's variables, or in the device's
// heap, are in the old context, and nobody can detect them. So a session moves only if the program
// has looked up no kernel, or if its modules have neither (holding->value of LOAD_MODULE,
// server/backend/cubin.h). A program that copies into a variable has looked up that variable. Only
// executors that contain faults report a fault before the completion word arrives: in other
// executors, only a session that has run no kernel may move.
//
// A session whose own work did not end in time does not move before that work is over: each try
// needs an executor, and delays the session.
//
// Memory that sessions share is the keeper's, and stays shared.

#include "server/standby/move.h"

#include <stdio.h>
#include <stdlib.h>

#include "protocol/cuda_abi.h"
#include "server/config/config.h"
#include "server/fault/evidence.h"
#include "server/fault/promote.h"
#include "server/incident/session_evidence.h"
#include "server/log.h"
#include "server/loop/timer.h"
#include "server/role.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/events.h"
#include "server/session/unpinning.h"
#include "server/session/guarantee.h"
#include "server/session/due.h"
#include "server/session/request.h"
#include "server/session/session.h"
#include "server/session/window.h"
#include "server/standby/residue.h"
#include "server/standby/warm.h"
#include "server/worker/worker.h"

/* Time that the session's own work has to end, and then the executor to answer: an executor answers
 * in time even while its serving threads wait (executor/detach.c). */
#define LET_GO_MS 5000u
#define ANSWER_MS 5000u
#define OWN_WORK  "its own work does not end"

enum move_state { MOVE_STARTING, MOVE_TELLING, MOVE_LETTING_GO };

struct move {
	struct session *session;
	struct domain *to;
	enum move_state state;
	enum move_cause cause;
	uint64_t begun_us;
	struct timer *limit;
	move_done_fn *done;
	void *context;
};

bool move_holds(const struct session *session)
{
	const struct move *move = session->move;

	return move && (move->state == MOVE_LETTING_GO || move->cause == MOVE_LIMIT);
}

/*
 * May the session move?
 */

static bool has_run(const struct session *session, bool *ret_leaves_traces)
{
	const struct holding *entry;
	bool runs = false, keeps = false;

	TAILQ_FOREACH (entry, &session->holdings.entries, link) {
		runs |= entry->type == WIRE_FIND_FUNCTION;
		keeps |= entry->type == WIRE_LOAD_MODULE && !entry->value;
		/* Contents copied there are in the old context. */
		if (entry->type == WIRE_FIND_GLOBAL && residue_is_in_context(session, entry))
			*ret_leaves_traces = true;
	}
	*ret_leaves_traces |= runs && keeps;
	return runs;
}

/* A move that was off for this is not begun again before something of that work is over. */
static bool is_stuck(const struct session *session)
{
	return session->is_stuck && shm_view_in_doubt(&session->view);
}

/* Return: NULL or why not. */
static const char *obstacle(const struct session *session, enum move_cause cause)
{
	const struct domain *from = session->domain;
	const struct worker *active = domain_serving(from);
	bool traces = false, ran;

	if (session->move)
		return "it is being moved already";
	if (session->memory != SESSION_MEMORY_HERE)
		return "it is suspended: resume it first";
	if (domain_is_alone(from))
		return "it is alone already: it has an executor of its own";
	if (!session_is_live(session) || session->attach.worker || !active || from->life == DOMAIN_RETIRES ||
		from->daemon->phase >= DAEMON_STOPS)
		return "it is not served now: it starts or ends, or its executor is being replaced; try "
		       "again";
	if (session->mirroring == SESSION_LEFT_OUT)
		return "executors die at what they are told of it (the log says at what)";
	if (cause != MOVE_ORDER && is_stuck(session))
		return OWN_WORK;
	if (session->daemon->heritage->exclusive)
		return "the device lets one process have a context (compute mode EXCLUSIVE_PROCESS)";
	if (!guarantee_allows_executors(session->daemon, 1))
		return "an executor of its own would take device memory that is guaranteed to programs, or "
		       "theirs (memory_guarantee, device_memory)";
	ran = has_run(session, &traces);
	if (traces)
		return "its kernels have run, and its modules have variables whose values stay in the "
		       "context of its present executor: only a program that has run none of them can move";
	if (ran && !active->contains)
		return "its executor cannot tell of a fault itself, and one of this program's could go "
		       "unnoticed in the move";
	return NULL;
}

/*
 * Ends
 */

static struct session *detach(struct move *move)
{
	struct session *session = move->session;

	session->move = NULL;
	session->destination = NULL;
	move->to->arrival = NULL;
	timer_free(move->limit);
	return session;
}

static void say_done(struct move *move, int32_t code, const char *text)
{
	if (move->done)
		move->done(move->context, code, text);
	free(move);
}

static void on_left(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	(void)worker;
	(void)reply;
	(void)packet;
	session_unref(context);
}

/* The new executor has the session's memory and windows mapped until it is reaped. */
static void wait_for_end(struct session *session, struct worker *worker)
{
	struct wire_message message = {.type = WIRE_CLOSE_SESSION, .session = session->number};

	worker_request(worker, &message, NULL, 0, on_left, session_ref(session));
}

/* The session stays where it is. */
static void call_off(struct move *move, int32_t code, const char *text)
{
	struct worker *told = move->session->destination;
	struct session *session = detach(move);
	const struct event_about about = events_about(session);
	struct domain *to = move->to;

	if (session->state != SESSION_CLOSING)
		events_note(session->daemon, EVENT_move, LOG_LEVEL_WARNING, &about,
			"session %llu (process %d, %s) stays with the others: %s",
			(unsigned long long)session->number, (int)session->pid, session->program, text);
	if (told)
		wait_for_end(session, told);
	domain_retire(to);
	say_done(move, code, text);
	due_session(session, SESSION_DUE_GO_ON);
}

static void on_limit(void *context)
{
	struct move *move = context;

	/* promote_silent() calls the move off: `move` is invalid then. */
	if (move->state == MOVE_LETTING_GO)
		promote_silent(move->session->domain, move->session->domain->active);
	else
		call_off(move, CUDA_ERROR_TIMEOUT,
			move->to->start_error[0] ? move->to->start_error
						 : "no executor of its own was ready in time");
}

/*
 * Steps
 */

/* The session's windows: unpinnings hold them in the old domain. */
static void take_windows_along(struct session *session, struct window_set *from, struct window_set *to)
{
	const struct request *request = session->request;
	const struct holding *entry;

	window_pass(from, to, session->window);
	window_pass(from, to, session->again.window);
	TAILQ_FOREACH (entry, &session->holdings.entries, link)
		if (entry->type == WIRE_RESERVE_WINDOW)
			window_pass(from, to, entry->range.address);
	if (request)
		window_pass(from, to, request->window);
	session->holdings.window_set = to;
}

static void change_domain(struct session *session, struct domain *to)
{
	struct domain *from = session->domain;
	struct worker *worker;

	TAILQ_FOREACH (worker, &from->workers, link)
		if (worker->told)
			unpinning_leave(session, worker);
	take_windows_along(session, &from->windows, &to->windows);
	TAILQ_REMOVE(&from->sessions, session, domain_link);
	TAILQ_INSERT_TAIL(&to->sessions, session, domain_link);
	session->domain = to;
	session->is_stuck = false;
	session->mirroring = SESSION_MIRRORED;
	session->evidence.recover = SESSION_RECOVER_NOTHING;
	session_evidence_forget_losses(&session->evidence);
}

/* The old executor has detached the session. */
static void arrive(struct move *move)
{
	struct worker *told = move->session->destination;
	struct session *session = detach(move);
	struct domain *from = session->domain, *to = move->to;
	const struct event_about about = events_about(session);
	struct worker *worker, *serving = domain_serving(to);

	change_domain(session, to);
	events_note(session->daemon, EVENT_move, LOG_LEVEL_INFO, &about,
		"session %llu (process %d, %s) has an executor of its own, %d, after %.0f ms: %s",
		(unsigned long long)session->number, (int)session->pid, session->program,
		serving ? (int)serving->pid : 0, (double)(timer_now_us() - move->begun_us) / 1000.0,
		to->reason);
	session->daemon->counters.sessions_moved++;
	if (serving && serving == told) {
		session_attach(session, serving);
	} else {
		session_hold(session);
		session_changed(session);
		/* An executor that has become ready meanwhile lacks the session; its successor will
		 * have it. */
		TAILQ_FOREACH (worker, &to->workers, link)
			if (worker_knows_sessions(worker))
				worker_terminate(worker, "was ready before its client came");
	}
	domain_watch_idle(from);
	say_done(move, CUDA_SUCCESS, "");
	due_session(session, SESSION_DUE_GO_ON);
}

static void stay(struct move *move, const struct wire_reply *reply)
{
	move->session->is_stuck = true;
	session_changed(move->session);
	call_off(move, CUDA_ERROR_NOT_READY, reply && reply->text && reply->text[0] ? reply->text : OWN_WORK);
}

static void on_let_go(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct session *session = context;
	struct move *move = session->move;
	bool gone = reply && !reply->code && reply->values.count && reply->values.at[0];

	(void)packet;
	/* An executor that was replaced may end after its successor got the request: the
	 * successor's answer counts. */
	if (session->let_go.worker != worker->number) {
		session_unref(session);
		return;
	}
	session->let_go = (struct kept_call){0};
	if (!move || move->state != MOVE_LETTING_GO)
		session_changed(session);
	else if (gone && worker == domain_serving(session->domain))
		arrive(move);
	else
		stay(move, reply);
	session_unref(session);
}

void move_let_go_again(struct session *session, struct worker *worker)
{
	struct wire_message message = {.type = WIRE_DETACH_SESSION, .session = session->number};

	message.close_session.patience_ms = LET_GO_MS;
	worker_request(worker, &message, NULL, 0, on_let_go, session_ref(session));
}

static void await_answer(struct move *move)
{
	move->state = MOVE_LETTING_GO;
	timer_start(move->limit, LET_GO_MS + ANSWER_MS);
}

static void let_go(struct move *move)
{
	struct session *session = move->session;
	struct worker *active = domain_serving(session->domain);

	await_answer(move);
	session->let_go = (struct kept_call){active->number, active->next_request};
	session->let_go_to = move->to->number;
	session_changed(session);
	move_let_go_again(session, active);
}

void move_look(struct session *session)
{
	struct move *move = session->move;
	const struct request *request = session->request;

	if (!move || move->state != MOVE_TELLING || session->destination->mirrors)
		return;
	if (worker_is_immovable(session->destination, session->number))
		call_off(move, CUDA_ERROR_NOT_SUPPORTED, "something of it comes out differently there");
	else if (request && request->place == REQUEST_AT_WORKER)
		return;
	else
		let_go(move);
}

void move_look_into(struct domain *domain)
{
	struct move *move = domain->arrival;

	if (!move)
		return;
	if (move->state == MOVE_STARTING) {
		move->state = MOVE_TELLING;
		warm_tell(domain_serving(domain), move->session);
		move->session->destination = domain_serving(domain);
	}
	move_look(move->session);
}

/*
 * Beginning
 */

static struct domain *make_place(const struct session *session, const char *why)
{
	struct domain *to = domain_new_alone(session->domain);

	if (!to)
		return NULL;
	snprintf(to->reason, sizeof(to->reason), "%s", why);
	domain_changed(to);
	return to;
}

static struct move *move_new(struct session *session, struct domain *to)
{
	struct move *move = calloc(1, sizeof(*move));

	log_bug_on(!move);
	move->session = session;
	move->to = to;
	move->begun_us = timer_now_us();
	move->limit = timer_new(session->daemon->loop, on_limit, move);
	session->move = to->arrival = move;
	return move;
}

const char *move_begin(struct session *session, enum move_cause cause, const char *why, uint64_t limit_ms,
	move_done_fn *done, void *context)
{
	const char *text = obstacle(session, cause);
	struct domain *to;
	struct move *move;

	text = text ? text : domain_refuses(session->daemon, session->uid, 1);
	to = text ? NULL : make_place(session, why);
	if (!to)
		return text ? text : "the service is out of memory";
	move = move_new(session, to);
	move->cause = cause;
	move->done = done;
	move->context = context;
	timer_start(move->limit, limit_ms);
	log_debug("session %llu (process %d, %s) is to have an executor of its own: %s",
		(unsigned long long)session->number, (int)session->pid, session->program, why);
	domain_fill(to);
	return NULL;
}

void move_adopt(struct session *session, uint32_t number)
{
	struct domain *to = daemon_find_domain(session->daemon, number);
	struct move *move;

	if (!to || to->life == DOMAIN_RETIRES || session->state != SESSION_SERVED)
		return;
	move = move_new(session, to);
	await_answer(move);
	session->destination = to->active;
}

void move_forget(struct session *session, const void *context)
{
	if (session->move && session->move->context == context)
		session->move->done = NULL;
}

/*
 * Trouble
 */

void move_call_off(struct domain *domain)
{
	struct session *session = TAILQ_FIRST(&domain->sessions), *next;

	/* A request that goes on may end its session. */
	for (; session; session = next) {
		next = TAILQ_NEXT(session, domain_link);
		if (session->move)
			call_off(session->move, CUDA_ERROR_NOT_READY, "its executor is being replaced");
	}
}

void move_abandon(struct session *session)
{
	if (session->move)
		call_off(session->move, CUDA_ERROR_NOT_READY, "it ends");
}

void move_lost(struct domain *domain, const struct worker *worker)
{
	struct move *move = domain->arrival;

	if (!move || move->session->destination != worker)
		return;
	move->session->destination = NULL;
	/* The next executor gets the holdings. */
	if (move->state == MOVE_TELLING)
		move->state = MOVE_STARTING;
}
