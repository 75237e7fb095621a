// A session moves, alive, into a domain of its own; everybody else stays where they are. States and
// rules: move.c. Daemon, loop thread only.

#ifndef FRMPS_SERVER_STANDBY_MOVE_H
#define FRMPS_SERVER_STANDBY_MOVE_H

#include <stdbool.h>
#include <stdint.h>

#include "server/session/rooms.h"

struct domain;
struct move;
struct session;
struct worker;

/**
 * Begins.
 * @why: for operators and the log, what the new domain is for
 * @done: may be NULL
 * Return: NULL, or why it cannot be (static text).
 */
const char *move_begin(struct session *session, enum move_cause cause, const char *why, uint64_t limit_ms,
	move_done_fn *done, void *context);

/** The caller is not there any more. */
void move_forget(struct session *session, const void *context);

/** Whether requests of the session wait for the end of its move. */
bool move_holds(const struct session *session);

/* Something that moves wait for has happened; each of these may end one. */
void move_look(struct session *session);
/** The domain's executor serves, or knows what it was told. */
void move_look_into(struct domain *domain);

/** The domain's executor is in trouble: the moves out of it are off, its sessions are promoted as
 * all. */
void move_call_off(struct domain *domain);
/** The session ends. */
void move_abandon(struct session *session);
/** A worker of the domain is gone. */
void move_lost(struct domain *domain, const struct worker *worker);

/**
 * A session that was being let go when an earlier life of the daemon ended.
 * @to: number of the domain
 */
void move_adopt(struct session *session, uint32_t to);
/** Asks the executor once more to let the session go, as its next request. */
void move_let_go_again(struct session *session, struct worker *worker);

#endif
