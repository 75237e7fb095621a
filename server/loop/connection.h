// One end of a packet socket in the daemon's loop: a handler gets decoded messages, messages leave
// at the end of the turn (turn_end.h) or, when the peer is slow, later through a bounded queue
// that keeps order. Daemon, loop thread only.
//
//   connection_new ──► open ──(peer hangs up, error, connection_drain)──► hung up: closed() was
//   called once
//                        └───────────── connection_shutdown ─────────────┴──► closing ──(loop is done)──►
//                        freed
//
// connection_shutdown() may be called at any time, also from a handler; after it no handler is
// called. The socket is closed at the end of the turn. Messages of the turn still reach the peer
// unless the peer is slow.

#ifndef FRMPS_SERVER_LOOP_CONNECTION_H
#define FRMPS_SERVER_LOOP_CONNECTION_H

#include <stdbool.h>
#include <stddef.h>

#include "protocol/socket.h"
#include "protocol/wire.h"

struct uv_loop_s;
struct connection;
struct shared_fd;

/* Whose process the other end is. */
enum connection_peer {
	CONNECTION_OURS,
	/* Descriptors are not allowed, and none is received (discard.h). */
	CONNECTION_OUTSIDE,
};

/* A well-formed message. Both arguments are valid until the handler returns; descriptors that the
 * handler does not take (packet_take_fd) are closed afterwards. None arrive where this process has
 * no room for them. */
typedef void connection_message_fn(void *context, const struct wire_message *message, struct packet *packet);
/* The peer is gone or broke the protocol; called once. The owner calls connection_shutdown(). */
typedef void connection_closed_fn(void *context, const char *reason);

/* Outcomes of connection_send(). */
#define CONNECTION_E_CLOSED 1 /* the peer is gone; closed() was or will be called */
#define CONNECTION_E_FULL   2 /* the peer has left the most packets unread */
#define CONNECTION_E_LARGE  3 /* the message does not fit a packet; nothing was sent */

/**
 * Takes over a socket and starts reading.
 * @socket: SOCK_SEQPACKET; owned by the connection, on failure closed; becomes non-blocking
 * @loop: has turns (turn_end_new())
 * @queue_max: most packets that wait for a slow peer before its next message is refused
 * Return: NULL when out of memory or when the socket cannot be polled
 */
struct connection *connection_new(struct uv_loop_s *loop, enum connection_peer peer, int socket,
	unsigned queue_max, connection_message_fn *message, connection_closed_fn *closed, void *context);

/** From now on the connection is one with a process outside (CONNECTION_OUTSIDE). */
void connection_leave_outside(struct connection *connection);
/** The other end has proved that it is a process of the service (CONNECTION_OURS). */
void connection_trust(struct connection *connection);

/** Hands the connection to another owner. */
void connection_set_owner(struct connection *connection, connection_message_fn *message,
	connection_closed_fn *closed, void *context);

/**
 * Has the end of the turn send the message, with references to the descriptors. A failure
 * then ends the connection: closed() is called in a later turn.
 * Return: 0, CONNECTION_E_* or -ENOMEM: nothing will be sent
 */
int connection_send(struct connection *connection, const struct wire_message *message,
	struct shared_fd *const *fds, unsigned fd_count);

/**
 * Stops delivering messages until connection_resume(); a peer that hangs up is still noticed. A
 * message whose handler pauses stays on the socket until the end of the turn that resumes,
 * otherwise until the end of its turn: a message that the daemon has not dealt with outlives the
 * daemon.
 */
void connection_pause(struct connection *connection);
void connection_resume(struct connection *connection);

/** Delivers at once everything that the peer sent before ending; then calls `closed` unless that
 * has happened. */
void connection_drain(struct connection *connection);

/** Delivers one message now, if any. */
void connection_deliver(struct connection *connection);

/** Packets of earlier turns that the peer has not taken. */
unsigned connection_behind(const struct connection *connection);

/** True if the peer has taken everything. */
bool connection_is_read(const struct connection *connection);

/** The socket, for credentials; stays the connection's. */
int connection_socket(const struct connection *connection);

/** Closes. NULL is fine. Return: NULL. */
struct connection *connection_shutdown(struct connection *connection);
/** As connection_shutdown(), but the socket goes on in another process, which finds there the
 * message that was not dealt with. */
struct connection *connection_leave(struct connection *connection);

#endif
