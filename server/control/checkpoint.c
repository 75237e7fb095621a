// See checkpoint.h.

#include "server/control/checkpoint.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/cuda_abi.h"
#include "server/control/caller.h"
#include "server/daemon/quota.h"
#include "server/log.h"
#include "server/loop/timer.h"
#include "server/session/daemon.h"
#include "server/session/domain.h"
#include "server/session/session.h"
#include "server/standby/swap.h"
#include "server/worker/worker.h"

/* Pause between looks at a session that cannot be locked or checkpointed at this moment. */
#define LOOK_MS 5u
/* The program may ask for something all the time: a suspension that finds no gap is refused. */
#define GAP_MS 5000u

enum order_kind { ORDER_LOCK, ORDER_CHECKPOINT, ORDER_RESTORE, ORDER_SUSPEND, ORDER_RESUME };

/* An order under way: session->order. */
struct order {
	struct session *session; /* a reference; NULL: over */
	unsigned refs;		 /* of the session, and of an executor's answer to come */
	enum order_kind kind;
	struct caller *caller;	 /* NULL: gone */
	uint64_t id;		 /* of the caller's message */
	bool ours;		 /* by an operator of the service */
	struct timer *look;	 /* at a session that is not ready */
	struct timer *limit;	 /* of a lock, or of a suspension that has not begun; NULL: none */
	enum swap_manner manner; /* of a suspension */
};

static void look(void *context);

/* Return: NULL after an answer: there is one already, of the caller or for the session */
static struct order *order_new(struct caller *caller, struct session *session, enum order_kind kind)
{
	struct order *order;

	if (session->order || caller->awaited_id || !caller->request.id) {
		caller_refuse(caller, caller->request.id, CUDA_ERROR_ILLEGAL_STATE,
			"an order before this one is under way");
		return NULL;
	}
	order = calloc(1, sizeof(*order));
	log_bug_on(!order);
	*order = (struct order){.session = session_ref(session),
		.refs = 1,
		.kind = kind,
		.caller = caller,
		.id = caller->request.id,
		.ours = quota_is_operator(caller->guest.uid)};
	order->look = timer_new(session->daemon->loop, look, order);
	caller->awaited_id = order->id;
	session->order = order;
	return order;
}

static void order_unref(struct order *order)
{
	if (!--order->refs)
		free(order);
}

/* The last step of an order, which may free the caller. @reason: of a failure */
static void order_end(struct order *order, int32_t code, const char *reason)
{
	struct caller *caller = order->caller;
	struct session *session = order->session;

	swap_forget(session, order);
	session->order = NULL;
	order->session = NULL;
	order->look = timer_free(order->look);
	order->limit = timer_free(order->limit);
	order->caller = NULL;
	if (caller)
		caller->awaited_id = 0;
	if (caller && code)
		caller_refuse(caller, order->id, code, reason);
	else if (caller)
		caller_say(caller, order->id, NULL, 0);
	order_unref(order);
	session_unref(session);
}

void checkpoint_abandon(struct session *session)
{
	if (session->order)
		order_end(session->order, CUDA_ERROR_INVALID_VALUE, "the program ends");
}

/*
 * Lock
 */

static void undo_lock(struct order *order, const char *reason)
{
	session_pause(order->session, false, order->ours);
	order_end(order, CUDA_ERROR_NOT_READY, reason);
}

static void on_limit(void *context)
{
	undo_lock(context, "its work did not end in time, and it goes on");
}

static void on_drained(
	void *context, struct worker *worker, const struct wire_reply *reply, struct packet *packet)
{
	struct order *order = context;
	struct session *session = order->session;

	(void)packet;
	if (session && reply && !reply->code && !session->request &&
		worker == domain_serving(session->domain))
		order_end(order, CUDA_SUCCESS, "");
	else if (session)
		timer_start(order->look, LOOK_MS);
	order_unref(order);
}

/* The session is paused. Its request ends first, then its work on the device. */
static void look_at_lock(struct order *order)
{
	struct session *session = order->session;
	struct worker *active = domain_serving(session->domain);
	struct wire_message message = {.type = WIRE_CARRY_MEMORY, .session = session->number};

	if (session->request || !active) {
		timer_start(order->look, LOOK_MS);
		return;
	}
	order->refs++;
	worker_request(active, &message, NULL, 0, on_drained, order);
}

static void begin_lock(struct caller *caller, struct session *session, uint64_t limit_ms)
{
	struct order *order = order_new(caller, session, ORDER_LOCK);

	if (!order)
		return;
	session_pause(session, true, order->ours);
	if (limit_ms) {
		order->limit = timer_new(session->daemon->loop, on_limit, order);
		timer_start(order->limit, limit_ms);
	}
	look_at_lock(order);
}

/*
 * Checkpoint, suspend
 */

/* The memory is no longer the session's. Standbys and the keeper may still have it. */
static void await_free_memory(struct order *order)
{
	if (order->session->freeing)
		timer_start(order->look, LOOK_MS);
	else
		order_end(order, CUDA_SUCCESS, "");
}

static void on_away(void *context, int32_t code, const char *text)
{
	struct order *order = context;
	struct session *session = order->session;
	bool paused = session_is_paused(session);

	if (!code && paused)
		session_set_checkpointed(session, true);
	if (order->kind == ORDER_SUSPEND)
		order_end(order, code, text);
	else if (!code)
		await_free_memory(order);
	else if (code == CUDA_ERROR_NOT_READY && paused)
		timer_start(order->look, LOOK_MS);
	else
		order_end(order, code, text);
}

/* True if the memory is on its way, or the session is not served at this moment. */
static bool is_busy(const struct session *session)
{
	return session->memory == SESSION_MEMORY_LEAVES || session->memory == SESSION_MEMORY_RETURNS ||
	       session->request || session->move || session->attach.worker ||
	       !domain_serving(session->domain);
}

static void look_at_checkpoint(struct order *order)
{
	struct session *session = order->session;
	const char *obstacle;

	if (is_busy(session)) {
		timer_start(order->look, LOOK_MS);
		return;
	}
	if (session->memory == SESSION_MEMORY_AWAY || !session->holdings.memory_bytes) {
		on_away(order, CUDA_SUCCESS, "");
		return;
	}
	/* It is paused, but others that share its memory may work. */
	obstacle = swap_begin(session, SWAP_NOW, on_away, order);
	if (obstacle)
		on_away(order, CUDA_ERROR_NOT_SUPPORTED, obstacle);
}

/* A request that an executor has ends first. */
static void look_at_suspension(struct order *order)
{
	const char *obstacle;

	if (order->session->request && order->limit) {
		timer_start(order->look, LOOK_MS);
		return;
	}
	order->limit = timer_free(order->limit);
	obstacle = swap_begin(order->session, order->manner, on_away, order);
	if (obstacle)
		on_away(order, CUDA_ERROR_NOT_SUPPORTED, obstacle);
}

static void on_no_gap(void *context)
{
	struct order *order = context;

	order->limit = timer_free(order->limit);
	look_at_suspension(order);
}

static void look(void *context)
{
	struct order *order = context;

	if (order->kind == ORDER_LOCK)
		look_at_lock(order);
	else if (order->kind == ORDER_SUSPEND)
		look_at_suspension(order);
	else if (order->session->checkpointed)
		await_free_memory(order);
	else
		look_at_checkpoint(order);
}

/*
 * Restore, resume
 */

static void on_back(void *context, int32_t code, const char *text)
{
	struct order *order = context;
	struct session *session = order->session;

	if (order->kind == ORDER_RESTORE && code && session->swap) {
		swap_stay_away(session);
		session_set_checkpointed(session, true);
	}
	order_end(order, code, text);
}

/*
 * Commands for a session by its number
 */

/* An order of the driver's interface that this one overtakes. */
static void overtake(struct session *session)
{
	if (session->order)
		order_end(session->order, CUDA_ERROR_ILLEGAL_STATE,
			"an operator has paused or resumed it meanwhile");
}

void checkpoint_answer_pause(struct caller *caller)
{
	struct session *session = caller_find_living(caller, false);

	if (!session)
		return;
	if (session->order && session->order->kind == ORDER_LOCK)
		overtake(session);
	session_pause(session, true, quota_is_operator(caller->guest.uid));
	caller_say(caller, caller->request.id, NULL, 0);
}

void checkpoint_answer_suspend(struct caller *caller)
{
	const struct caller_request *request = &caller->request;
	bool now = request->argument_count == 2 && !strcmp(request->arguments[1], "now");
	enum swap_manner manner = !now					 ? SWAP_AT_REST
				  : quota_is_operator(caller->guest.uid) ? SWAP_PAUSED_BY_US
									 : SWAP_PAUSED;
	struct session *session = caller_find_living(caller, now);
	struct order *order = session ? order_new(caller, session, ORDER_SUSPEND) : NULL;

	if (!order)
		return;
	order->manner = manner;
	order->limit = timer_new(session->daemon->loop, on_no_gap, order);
	timer_start(order->limit, GAP_MS);
	look_at_suspension(order);
}

#define NOT_YOURS "the session was paused by the service's operator, who alone resumes it"

void checkpoint_answer_resume(struct caller *caller)
{
	bool is_ours = quota_is_operator(caller->guest.uid);
	struct session *session = caller_find_living(caller, false);
	struct order *order;

	if (!session)
		return;
	if (session->pause_is_ours && !is_ours) {
		caller_refuse(caller, caller->request.id, CUDA_ERROR_NOT_PERMITTED, NOT_YOURS);
		return;
	}
	if (!caller->awaited_id)
		overtake(session);
	order = order_new(caller, session, ORDER_RESUME);
	if (!order)
		return;
	session_pause(session, false, is_ours);
	swap_end(session, on_back, order);
}

/*
 * Commands for a process
 */

static CUprocessState state_of(const struct session *session)
{
	uint32_t state = word_acquire(&session->view.server->state);

	if (state == SHM_SESSION_FAULTED || state == SHM_SESSION_CLOSED)
		return CU_PROCESS_STATE_FAILED;
	if (!session_is_paused(session) || (session->order && session->order->kind == ORDER_LOCK))
		return CU_PROCESS_STATE_RUNNING;
	return session->checkpointed ? CU_PROCESS_STATE_CHECKPOINTED : CU_PROCESS_STATE_LOCKED;
}

/* Return: NULL after an answer */
static struct session *find_process(struct caller *caller)
{
	char *end;
	long long pid = strtoll(caller->request.arguments[0], &end, 10);
	struct session *session;

	TAILQ_FOREACH (session, &caller->daemon->sessions, link)
		if (session->state == SESSION_SERVED && pid > 0 && !*end && session->pid == pid)
			break;
	if (session && caller_may_command(caller, session))
		return session;
	if (session)
		caller_refuse(caller, caller->request.id, CUDA_ERROR_NOT_PERMITTED,
			"the process is another user's");
	else
		caller_refuse(caller, caller->request.id, CUDA_ERROR_INVALID_VALUE,
			"the service has no program with this process number");
	return NULL;
}

static void begin_checkpoint(struct caller *caller, struct session *session)
{
	struct order *order = order_new(caller, session, ORDER_CHECKPOINT);

	if (order)
		look_at_checkpoint(order);
}

static void begin_restore(struct caller *caller, struct session *session)
{
	struct order *order = order_new(caller, session, ORDER_RESTORE);

	if (!order)
		return;
	session_set_checkpointed(session, false);
	swap_end(session, on_back, order);
}

static void unlock(struct caller *caller, struct session *session)
{
	session_pause(session, false, quota_is_operator(caller->guest.uid));
	caller_say(caller, caller->request.id, NULL, 0);
}

static const struct step {
	const char *name;
	CUprocessState from;
	bool is_bound; /* to the operator of the service, if he has paused the session */
	void (*begin)(struct caller *caller, struct session *session);
} steps[] = {
	{"checkpoint", CU_PROCESS_STATE_LOCKED, false, begin_checkpoint},
	{"restore", CU_PROCESS_STATE_CHECKPOINTED, true, begin_restore},
	{"unlock", CU_PROCESS_STATE_LOCKED, true, unlock},
};

static void take_step(struct caller *caller, struct session *session, const struct step *step)
{
	const uint64_t id = caller->request.id;

	if (session->order || state_of(session) != step->from)
		caller_refuse(caller, id, CUDA_ERROR_ILLEGAL_STATE,
			"the program is in another state, or an order before this one is under way");
	else if (step->is_bound && session->pause_is_ours && !quota_is_operator(caller->guest.uid))
		caller_refuse(caller, id, CUDA_ERROR_NOT_PERMITTED, NOT_YOURS);
	else
		step->begin(caller, session);
}

/* @limit: milliseconds, as text; 0: none */
static void take_lock(struct caller *caller, struct session *session, const char *limit)
{
	char *end;
	uint64_t limit_ms = strtoull(limit, &end, 10);

	if (*end || limit_ms > UINT32_MAX)
		caller_refuse(caller, caller->request.id, CUDA_ERROR_INVALID_VALUE,
			"lock takes a number of milliseconds");
	else if (state_of(session) != CU_PROCESS_STATE_RUNNING)
		caller_refuse(
			caller, caller->request.id, CUDA_ERROR_ILLEGAL_STATE, "the program is not running");
	else
		begin_lock(caller, session, limit_ms);
}

void checkpoint_answer_process(struct caller *caller)
{
	const struct caller_request *request = &caller->request;
	const unsigned count = request->argument_count;
	struct session *session = count >= 2 ? find_process(caller) : NULL;
	const struct step *step = steps, *end = steps + sizeof(steps) / sizeof(*steps);

	if (count >= 2 && !session)
		return;
	while (session && step < end && strcmp(step->name, request->arguments[1]) != 0)
		step++;
	if (session && count == 2 && !strcmp(request->arguments[1], "state"))
		caller_say(caller, request->id, "state", state_of(session));
	else if (session && count <= 3 && !strcmp(request->arguments[1], "lock"))
		take_lock(caller, session, count == 3 ? request->arguments[2] : "0");
	else if (session && count == 2 && step < end)
		take_step(caller, session, step);
	else
		caller_refuse(caller, request->id, CUDA_ERROR_INVALID_VALUE,
			"process takes a process number and a step");
}

void checkpoint_forget(struct session *session, const struct caller *caller)
{
	struct order *order = session->order;

	if (!order || order->caller != caller)
		return;
	order->caller = NULL;
	/* An order about a session that ends goes at the end of the turn. */
	if (order->kind == ORDER_LOCK && session->state != SESSION_CLOSING)
		undo_lock(order, "");
}
