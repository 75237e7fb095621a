// Turns of operators: what they ask waits, and the loop answers one user at a time, between what
// programs ask. An operator's connection is paused until its answer, so each has at most one
// request here.
//
//   on_message ──► waits ── the user's turn ──► answered (caller.c)
//
// Users take turns in the order of their numbers, and each user's operators in the order in which
// they were answered last. After a turn the loop rests from operators for four times as long as the
// turn took, a millisecond at least: they have a fifth of the daemon's time at most, however many
// they are. Daemon, loop thread only.

#ifndef FRMPS_SERVER_CONTROL_TURN_H
#define FRMPS_SERVER_CONTROL_TURN_H

#include <sys/types.h>

struct daemon;
struct caller;
struct timer;

struct turns {
	struct timer *timer; /* runs while somebody waits, or a rest is not over */
	uid_t latest;	     /* whose turn it was */
};

void turn_init(struct daemon *daemon);
void turn_deinit(struct daemon *daemon);

/** The operator's request waits for its turn; its connection is paused. */
void turn_await(struct caller *caller);
/**
 * Takes an operator of this user that waits with this command out of turn: what one was answered
 * answers it as well.
 * Return: NULL if there is none
 */
struct caller *turn_take(struct daemon *daemon, uid_t uid, const char *command);

#endif
