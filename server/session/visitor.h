// A connection before its first message says what it is: a program (Hello) or an operator (Admin).
// It has a few seconds and a user has a bounded number of them; for all users there is a bound, too
// (guests.h). Daemon, loop thread only.

#ifndef FRMPS_SERVER_SESSION_VISITOR_H
#define FRMPS_SERVER_SESSION_VISITOR_H

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
};

/** How many a user has. */
unsigned visitor_count(const struct daemon *daemon, uid_t uid);
/** Takes an accepted socket over. */
void visitor_new(struct daemon *daemon, int socket);
/** Sends it away. Return: NULL. */
struct visitor *visitor_free(struct visitor *visitor);

#endif
