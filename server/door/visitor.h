// A visitor: a connection before its first message, which makes the connection a program's (Hello)
// or an operator's (Admin), or is answered at once (LendMemory, of another device's daemon). That
// message must come within a few seconds. The number of visitors is bounded for each user, and for
// all users (guests.h). After its Hello, a program waits for a turn: each round of the loop greets
// one program, users in turn, so a user who opens many sessions delays no other user. A user is one
// with his subordinate users (owner.h). Daemon, loop thread only.

#ifndef FRMPS_SERVER_DOOR_VISITOR_H
#define FRMPS_SERVER_DOOR_VISITOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "server/identity.h"
#include "server/session/session.h"

struct connection;
struct daemon;
struct timer;

struct visitor {
	TAILQ_ENTRY(visitor) link;
	struct daemon *daemon;
	struct connection *connection;
	struct timer *timer;
	struct session_peer peer;
	uint64_t started; /* start of the visitor's process (vitals.h) */
	struct identity identity;
	uint8_t *hello; /* the Hello, while the visitor waits for a turn; on the heap */
	size_t hello_bytes;
	bool asks; /* for a description: waits until the device is known, too */
};

/** The number of visitors of a user. */
unsigned visitor_count(const struct daemon *daemon, uid_t owner);
/** Greets the oldest visitor of a user that waits for its turn, out of turn. Return: false if no
 * visitor waits */
bool visitor_hurry(struct daemon *daemon, uid_t owner);
/** The timer of a daemon: greets the next visitor. */
void visitor_take_turn(void *context);
/** Takes an accepted socket over. */
void visitor_new(struct daemon *daemon, int socket);
/** Disconnects a visitor. Return: NULL. */
struct visitor *visitor_free(struct visitor *visitor);

#endif
