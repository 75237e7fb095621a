// A turn of the loop: the handlers of timers, or those of what was ready, and then its end. The end
// has an order, and this room alone decides it:
//
//   change   what the handlers found is carried through: work that is due, and what follows from it
//   record   each noun that has changed writes its record, and all records count at once
//   send     messages leave, and children are killed: nobody knows what no record says
//   answered what follows once a program has its answer. The record still says that the program
//            waits; so this changes something, and the order begins anew
//   take off messages that were dealt with leave their sockets: they outlive a daemon until then
//
// So a daemon that dies leaves the state at the end of a turn, perhaps messages that were recorded
// and not sent, and messages that were dealt with and are still on their sockets. holder/holder.c
// says what the next life makes of them. Daemon, loop thread only.

#ifndef FRMPS_SERVER_LOOP_TURN_END_H
#define FRMPS_SERVER_LOOP_TURN_END_H

#include <stdbool.h>
#include <sys/queue.h>

struct turn_end;
struct uv_loop_s;

/* The daemon's work at the end of a turn. */
struct turn_end_steps {
	void (*change)(void *context);
	void (*record)(void *context); /* calls no handler */
	/* Return: false if no program got an answer in this round */
	bool (*answered)(void *context);
};

/* A connection with something for the end of the turn. Neither function calls a handler. */
struct turn_end_member {
	TAILQ_ENTRY(turn_end_member) link;
	bool is_listed;
	void (*send)(struct turn_end_member *member);
	void (*take_off)(struct turn_end_member *member);
};

/** Ends the loop's turns from now on; keeps no loop alive. Takes the loop's `data`. Return: NULL
 * when out of memory. */
struct turn_end *turn_end_new(struct uv_loop_s *loop, const struct turn_end_steps *steps, void *context);
/** Stops; what is left is sent, without a record. The memory is freed after the loop has closed the
 * handles. NULL is fine. Return: NULL. */
struct turn_end *turn_end_free(struct turn_end *turn_end);
/** The turns of a loop. */
struct turn_end *turn_end_of(const struct uv_loop_s *loop);

/** The member has something to send or to take off. Twice is fine. */
void turn_end_join(struct turn_end *turn_end, struct turn_end_member *member);

/**
 * Records, sends and takes off in the middle of a turn: where one connection has several messages
 * to deliver at once, and each must be recorded before it leaves the socket.
 */
void turn_end_now(struct turn_end *turn_end);

#endif
