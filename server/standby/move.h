// A session moves, alive, into a domain of its own; all other sessions stay. States and rules:
// move.c. Daemon, loop thread only.

#ifndef FRMPS_SERVER_STANDBY_MOVE_H
#define FRMPS_SERVER_STANDBY_MOVE_H

#include <stdbool.h>
#include <stdint.h>

struct domain;
struct session;
struct worker;

/* Why a session moves. */
enum move_cause {
	MOVE_ORDER, /* by an operator */
	MOVE_LIMIT, /* its kernels need larger limits than the kernels of others */
};

/**
 * The end of a move; not called after a refusal of move_begin().
 * @code: CUDA_SUCCESS: the session is in its new domain
 * @text: the reason of a failure
 */
typedef void move_done_fn(void *context, int32_t code, const char *text);

/**
 * Begins.
 * @why: for operators and the log, the purpose of the new domain
 * @done: may be NULL
 * Return: NULL, or the obstacle (static text).
 */
const char *move_begin(struct session *session, enum move_cause cause, const char *why, uint64_t limit_ms,
	move_done_fn *done, void *context);

/** The caller is not there any more. */
void move_forget(struct session *session, const void *context);

/** True if requests of the session wait for the end of its move. */
bool move_holds(const struct session *session);

/* An event that moves wait for has happened; each of these may end a move. */
void move_look(struct session *session);
/** The domain's executor serves, or has answered all that it was sent. */
void move_look_into(struct domain *domain);

/** The domain's executor is in trouble: calls off the moves out of the domain; these sessions are
 * promoted like all others. */
void move_call_off(struct domain *domain);
/** The session ends. */
void move_abandon(struct session *session);
/** A worker of the domain was reaped. */
void move_lost(struct domain *domain, const struct worker *worker);

/**
 * Goes on with a session that was in LETTING_GO when an earlier life of the daemon ended.
 * @to: number of the domain
 */
void move_adopt(struct session *session, uint32_t to);
/** Sends DetachSession once more, as the executor's next request. */
void move_let_go_again(struct session *session, struct worker *worker);

#endif
