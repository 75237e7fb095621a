// Turns of operators: their requests wait, and the loop answers one user at a time, between
// requests of programs. An operator's connection is paused until the answer, so each has at most
// one request here.
//
//   on_message ──► waits ── the user's turn ──► answered (caller.c)
//
// Users take turns in the order of their numbers, and each user's operators in the order of their
// latest answers. After a turn the loop rests from operators for four times as long as the turn
// took, a millisecond at least: operators get a fifth of the daemon's time at most, however many
// there are. Daemon, loop thread only.

#ifndef FRMPS_SERVER_CONTROL_TURN_H
#define FRMPS_SERVER_CONTROL_TURN_H

#include <sys/types.h>

struct daemon;
struct caller;
struct timer;

struct turns {
	struct timer *timer; /* runs while somebody waits, or a rest is not over */
	uid_t latest;	     /* of the latest turn */
};

void turn_init(struct daemon *daemon);
void turn_deinit(struct daemon *daemon);

/** The operator's request waits for its turn; the connection is paused. */
void turn_await(struct caller *caller);
/**
 * Takes an operator of this user with the same command out of turn: one answer serves both.
 * Return: NULL if there is none
 */
struct caller *turn_take(struct daemon *daemon, uid_t uid, const char *command);

#endif
