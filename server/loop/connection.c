// Packet sockets on libuv. See connection.h for the life cycle.
//
// Edge cases behind this design: a handler may shut its own connection down in the middle of the
// read loop (the memory stays until the close callback, `closing` is checked after every handler);
// a paused connection polls for UV_DISCONNECT only; a peer may hang up while packets are still
// unread (these are delivered first). A packet leaves the socket only after its handler, or at the
// resume if the handler paused the connection: after a death of the daemon in between, the next
// life finds the packet there (server/adopt/). Where the kernel has no memory for a packet, the
// packet waits like one for a slow peer, and is sent again some milliseconds later.

#include "server/loop/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "server/log.h"
#include "server/loop/discard.h"
#include "server/loop/shared_fd.h"
#include "server/loop/timer.h"

/* Packets that are read before other connections get their turn. */
#define READ_BURST 16
/* After a packet that the kernel had no memory for. */
#define AGAIN_MS 5

struct outgoing {
	TAILQ_ENTRY(outgoing) link;
	struct shared_fd *fds[WIRE_FDS_MAX];
	unsigned fd_count;
	size_t length;
	uint8_t bytes[];
};

struct connection {
	uv_poll_t handle;
	struct timer *again; /* runs: the kernel has no memory for a packet */
	int socket;
	unsigned queue_max, queued;
	TAILQ_HEAD(, outgoing) queue;
	connection_message_fn *on_message;
	connection_closed_fn *on_closed;
	void *context;
	enum connection_peer peer;
	bool paused;
	bool unread;  /* the first packet on the socket was delivered, and leaves the socket after its
		       * handler */
	bool hung_up; /* closed was called, or is about to be */
	bool closing;
};

/* The daemon reads one packet at a time, on one thread. */
static struct packet incoming;
static uint8_t outgoing_bytes[WIRE_PACKET_MAX];
static struct wire_room room;

static void on_poll(uv_poll_t *handle, int status, int events);

static void update_poll(struct connection *connection)
{
	int events = UV_DISCONNECT;

	if (connection->closing || connection->hung_up) {
		if (!connection->closing)
			uv_poll_stop(&connection->handle);
		return;
	}
	if (!connection->paused)
		events |= UV_READABLE;
	if (connection->queued && !timer_running(connection->again))
		events |= UV_WRITABLE;
	uv_poll_start(&connection->handle, events, on_poll);
}

static void hang_up(struct connection *connection, const char *reason)
{
	if (connection->hung_up || connection->closing)
		return;
	connection->hung_up = true;
	update_poll(connection);
	connection->on_closed(connection->context, reason);
}

/* The message that was delivered has been dealt with. */
static void take_off(struct connection *connection)
{
	if (connection->unread)
		packet_discard(connection->socket);
	connection->unread = false;
}

/* A packet that must not be delivered stays on the socket. */
static int peek(struct connection *connection)
{
	return connection->peer == CONNECTION_OUTSIDE ? packet_peek_bare(connection->socket, &incoming)
						      : packet_peek(connection->socket, &incoming);
}

/* Reads and delivers one packet. Return: false to stop. */
static bool read_one(struct connection *connection)
{
	struct wire_message message;
	int r = peek(connection);

	if (r == PACKET_E_AGAIN)
		return false;
	if (r == PACKET_E_NO_FDS) {
		log_error("a message comes without its descriptors: this process has none left (limit of "
			  "open files)");
	} else if (r) {
		hang_up(connection, r == PACKET_E_CLOSED    ? "the other side closed the connection"
				    : r == PACKET_E_INVALID ? "a malformed packet came"
							    : strerror(-r));
		return false;
	}
	if (wire_decode(incoming.bytes, incoming.length, &message)) {
		packet_close_fds(&incoming);
		hang_up(connection, "a malformed message came");
	} else {
		connection->unread = true;
		connection->on_message(connection->context, &message, &incoming);
		packet_close_fds(&incoming);
		if (!connection->paused)
			take_off(connection);
	}
	return !connection->closing && !connection->hung_up;
}

static int send_bytes(struct connection *connection, const uint8_t *bytes, size_t length,
	struct shared_fd *const *fds, unsigned fd_count)
{
	int plain[WIRE_FDS_MAX], r;

	for (unsigned i = 0; i < fd_count; i++)
		plain[i] = fds[i]->fd;
	r = packet_send(connection->socket, bytes, length, plain, fd_count);
	if (r == -ENOBUFS || r == -ENOMEM) {
		timer_start(connection->again, AGAIN_MS);
		return CONNECTION_E_FULL;
	}
	if (r == PACKET_E_AGAIN)
		return CONNECTION_E_FULL;
	/* The loop reports the hang-up. */
	return r == PACKET_E_CLOSED ? CONNECTION_E_CLOSED : r;
}

static struct outgoing *outgoing_free(struct outgoing *packet)
{
	for (unsigned i = 0; i < packet->fd_count; i++)
		shared_fd_unref(packet->fds[i]);
	free(packet);
	return NULL;
}

static void pop(struct connection *connection)
{
	struct outgoing *first = TAILQ_FIRST(&connection->queue);

	TAILQ_REMOVE(&connection->queue, first, link);
	connection->queued--;
	outgoing_free(first);
}

/* An error of the socket: the other side has ended, and may have left our messages unread. The
 * peer's messages can be read after the error. */
static void on_error(struct connection *connection)
{
	socklen_t size = sizeof(int);
	int error;

	getsockopt(connection->socket, SOL_SOCKET, SO_ERROR, &error, &size);
	while (!connection->paused && !connection->closing && read_one(connection))
		;
	hang_up(connection, "the other side closed the connection");
}

static void flush(struct connection *connection)
{
	while (connection->queued) {
		struct outgoing *first = TAILQ_FIRST(&connection->queue);
		int r = send_bytes(connection, first->bytes, first->length, first->fds, first->fd_count);

		if (r == CONNECTION_E_FULL)
			break;
		if (r && connection->peer == CONNECTION_OURS) {
			on_error(connection);
			return;
		}
		if (r) {
			/* A program that only does not read could go on writing for ever. */
			hang_up(connection, "it cannot be written to");
			return;
		}
		pop(connection);
	}
	update_poll(connection);
}

static void on_poll(uv_poll_t *handle, int status, int events)
{
	struct connection *connection = handle->data;

	if (status == UV_EBADF) {
		on_error(connection);
		return;
	}
	if (status < 0) {
		hang_up(connection, uv_strerror(status));
		return;
	}
	if (events & UV_WRITABLE)
		flush(connection);
	if (events & UV_READABLE)
		for (int i = 0; i < READ_BURST && !connection->paused && !connection->closing; i++)
			if (!read_one(connection))
				return;
	/* Unread packets come first; a paused peer that is gone gets no more answers anyway. */
	if ((events & UV_DISCONNECT) && (connection->paused || !(events & UV_READABLE)) &&
		!connection->closing)
		hang_up(connection, "the other side closed the connection");
}

static void on_again(void *context)
{
	struct connection *connection = context;

	if (!connection->hung_up)
		flush(connection);
}

static void close_socket(int socket, enum connection_peer peer)
{
	if (peer == CONNECTION_OUTSIDE)
		discard_socket(socket);
	else
		close(socket);
}

struct connection *connection_new(struct uv_loop_s *loop, enum connection_peer peer, int socket,
	unsigned queue_max, connection_message_fn *message, connection_closed_fn *closed, void *context)
{
	struct connection *connection = calloc(1, sizeof(*connection));

	if (connection)
		connection->again = timer_new(loop, on_again, connection);
	if (!connection || !connection->again || fcntl(socket, F_SETFL, O_NONBLOCK) < 0 ||
		uv_poll_init(loop, &connection->handle, socket) < 0) {
		if (connection)
			timer_free(connection->again);
		free(connection);
		close_socket(socket, peer);
		return NULL;
	}
	connection->socket = socket;
	connection->queue_max = queue_max;
	connection->peer = peer;
	connection->on_message = message;
	connection->on_closed = closed;
	connection->context = context;
	connection->handle.data = connection;
	TAILQ_INIT(&connection->queue);
	update_poll(connection);
	return connection;
}

void connection_leave_outside(struct connection *connection)
{
	connection->peer = CONNECTION_OUTSIDE;
}

void connection_set_owner(struct connection *connection, connection_message_fn *message,
	connection_closed_fn *closed, void *context)
{
	connection->on_message = message;
	connection->on_closed = closed;
	connection->context = context;
}

static int enqueue(struct connection *connection, const uint8_t *bytes, size_t length,
	struct shared_fd *const *fds, unsigned count)
{
	struct outgoing *packet;

	if (connection->queued >= connection->queue_max)
		return CONNECTION_E_FULL;
	packet = malloc(sizeof(*packet) + length);
	if (!packet)
		return -ENOMEM;
	memcpy(packet->bytes, bytes, length);
	packet->length = length;
	packet->fd_count = count;
	for (unsigned i = 0; i < count; i++)
		packet->fds[i] = shared_fd_ref(fds[i]);
	TAILQ_INSERT_TAIL(&connection->queue, packet, link);
	connection->queued++;
	update_poll(connection);
	return 0;
}

int connection_send(struct connection *connection, const struct wire_message *message,
	struct shared_fd *const *fds, unsigned fd_count)
{
	size_t length;
	int r;

	if (connection->hung_up || connection->closing)
		return CONNECTION_E_CLOSED;
	if (wire_encode_in(&room, message, outgoing_bytes, sizeof(outgoing_bytes), &length))
		return CONNECTION_E_LARGE;
	if (!connection->queued) {
		r = send_bytes(connection, outgoing_bytes, length, fds, fd_count);
		if (r != CONNECTION_E_FULL)
			return r;
	}
	return enqueue(connection, outgoing_bytes, length, fds, fd_count);
}

void connection_pause(struct connection *connection)
{
	connection->paused = true;
	update_poll(connection);
}

void connection_resume(struct connection *connection)
{
	connection->paused = false;
	take_off(connection);
	update_poll(connection);
}

void connection_drain(struct connection *connection)
{
	while (!connection->closing && !connection->hung_up && read_one(connection))
		;
	hang_up(connection, "the other side closed the connection");
}

void connection_deliver(struct connection *connection)
{
	if (!connection->closing && !connection->hung_up && !connection->paused)
		read_one(connection);
}

unsigned connection_queued(const struct connection *connection)
{
	return connection->queued;
}

bool connection_is_read(const struct connection *connection)
{
	int unread = 0;

	return !connection->queued && ioctl(connection->socket, SIOCOUTQ, &unread) == 0 && !unread;
}

int connection_socket(const struct connection *connection)
{
	return connection->socket;
}

static void on_close(uv_handle_t *handle)
{
	struct connection *connection = handle->data;

	while (connection->queued)
		pop(connection);
	free(connection);
}

struct connection *connection_shutdown(struct connection *connection)
{
	if (!connection || connection->closing)
		return NULL;
	/* An unread packet would discard messages to the peer. */
	take_off(connection);
	connection->closing = true;
	timer_free(connection->again);
	uv_poll_stop(&connection->handle);
	uv_close((uv_handle_t *)&connection->handle, on_close);
	close_socket(connection->socket, connection->peer);
	return NULL;
}
