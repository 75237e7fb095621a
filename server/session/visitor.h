// A connection before its first message says what it is: a program (Hello) or an operator (Admin).
// It has a few seconds and a user has a bounded number of them; for all users there is a bound, too
// (guests.h). Who has said Hello waits for a turn: one is greeted in a round of the loop, users in
// turn, so that who opens many sessions keeps nobody else waiting. A user is one with his
// subordinate users (owner.h). Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_VISITOR_H
#define FRMPS_SERVER_SESSION_VISITOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "server/identity.h"
#include "server/session/session.h"

/* Packets that wait for a program which does not read: it asks one thing at a time. */
#define VISITOR_QUEUE_MAX 16u

struct connection;
struct daemon;
struct timer;

struct visitor {
	TAILQ_ENTRY(visitor) link;
	struct daemon *daemon;
	struct connection *connection;
	struct timer *timer;
	struct session_peer peer;
	uint64_t started; /* when its process did (vitals.h) */
	struct identity identity;
	uint8_t *hello; /* its Hello, while it waits for its turn; on the heap */
	size_t hello_bytes;
};

/** How many a user has. */
unsigned visitor_count(const struct daemon *daemon, uid_t owner);
/** Greets the oldest visitor of a user that waits for that, out of turn. Return: whether there was
 * one */
bool visitor_hurry(struct daemon *daemon, uid_t owner);
/** The timer, of a daemon: greets the next one. */
void visitor_take_turn(void *context);
/** Takes an accepted socket over. */
void visitor_new(struct daemon *daemon, int socket);
/** Sends it away. Return: NULL. */
struct visitor *visitor_free(struct visitor *visitor);

#endif
