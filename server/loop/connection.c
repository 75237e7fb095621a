// Packet sockets on libuv. See connection.h for the life cycle.
//
// Edge cases behind this design: a handler may shut its own connection down in the middle of the
// read loop (the memory stays until the close callback, `closing` is checked after every handler);
// a paused connection polls for UV_DISCONNECT only; a peer may hang up while packets are still
// unread (these are delivered first). A turn delivers one packet of a connection, or at its end
// commits the turn between two. A packet leaves the socket at the end of the turn of its handler,
// or of the resume if the handler paused the connection: after a death of the daemon in between,
// the next life finds the packet there (server/adopt/). Where the kernel has no memory for a
// packet, the packet waits like one for a slow peer, and is sent again some milliseconds later.
// Packets of one turn need no memory of the process, so that the daemon can speak where there is
// none.

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
#include "server/loop/turn_end.h"

/* Room for the packets of a turn, bytes; more are allocated. */
#define ROOM_BYTES (UINT64_C(256) << 10)
/* After a packet that the kernel had no memory for. */
#define AGAIN_MS 5

struct outgoing {
	TAILQ_ENTRY(outgoing) link;
	struct shared_fd *fds[WIRE_FDS_MAX];
	unsigned fd_count;
	bool is_in_room;
	size_t length;
	uint8_t bytes[];
};

struct connection {
	uv_poll_t handle;
	int events; /* that the handle waits for */
	struct turn_end *turn_end;
	struct turn_end_member member;
	struct timer *again; /* runs: the kernel has no memory for a packet, or sending has failed */
	int socket;
	unsigned queue_max, queued;
	unsigned behind; /* of the queue, what the peer has not taken in earlier turns */
	TAILQ_HEAD(, outgoing) queue;
	connection_message_fn *on_message;
	connection_closed_fn *on_closed;
	void *context;
	enum connection_peer peer;
	bool paused;
	bool unread;  /* the first packet on the socket was delivered */
	bool handled; /* and leaves the socket at the end of the turn */
	bool broken;  /* a packet cannot be sent */
	bool hung_up; /* closed was called, or is about to be */
	bool closing;
};

/* The daemon reads one packet at a time, on one thread. */
static struct packet incoming;
static uint8_t outgoing_bytes[WIRE_PACKET_MAX];
static struct wire_room room;

/* Packets until the end of the turn. */
static struct {
	_Alignas(struct outgoing) uint8_t bytes[ROOM_BYTES];
	size_t used;
	unsigned count;
} turns_room;

static void on_poll(uv_poll_t *handle, int status, int events);

static void update_poll(struct connection *connection)
{
	int events = UV_DISCONNECT;

	if (connection->closing || connection->hung_up) {
		if (!connection->closing)
			uv_poll_stop(&connection->handle);
		connection->events = 0;
		return;
	}
	if (!connection->paused)
		events |= UV_READABLE;
	if (connection->behind && !timer_running(connection->again))
		events |= UV_WRITABLE;
	/* libuv takes a descriptor out of its set and puts it back, even for the same events. */
	if (events != connection->events)
		uv_poll_start(&connection->handle, events, on_poll);
	connection->events = events;
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
static void be_handled(struct connection *connection)
{
	if (!connection->unread)
		return;
	connection->handled = true;
	turn_end_join(connection->turn_end, &connection->member);
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
	int r;

	if (connection->unread)
		turn_end_now(connection->turn_end);
	r = peek(connection);
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
			be_handled(connection);
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

/* Return: NULL without memory */
static struct outgoing *outgoing_new(const uint8_t *bytes, size_t length)
{
	size_t size = (sizeof(struct outgoing) + length + _Alignof(struct outgoing) - 1) /
		      _Alignof(struct outgoing) * _Alignof(struct outgoing);
	bool fits = size <= ROOM_BYTES - turns_room.used;
	struct outgoing *packet = fits ? (void *)(turns_room.bytes + turns_room.used) : malloc(size);

	if (!packet)
		return NULL;
	if (fits) {
		turns_room.used += size;
		turns_room.count++;
	}
	*packet = (struct outgoing){.is_in_room = fits, .length = length};
	memcpy(packet->bytes, bytes, length);
	return packet;
}

/* The room is empty again once it has no packet. */
static void outgoing_release(struct outgoing *packet)
{
	if (!packet->is_in_room)
		free(packet);
	else if (!--turns_room.count)
		turns_room.used = 0;
}

static void pop(struct connection *connection)
{
	struct outgoing *first = TAILQ_FIRST(&connection->queue);

	TAILQ_REMOVE(&connection->queue, first, link);
	connection->queued--;
	for (unsigned i = 0; i < first->fd_count; i++)
		shared_fd_unref(first->fds[i]);
	outgoing_release(first);
}

static void drop_all(struct connection *connection)
{
	while (connection->queued)
		pop(connection);
}

/* Packets that the peer does not take in this turn leave the room. Return: false without memory */
static bool leave_room(struct connection *connection)
{
	struct outgoing *packet, *next, *copy;

	for (packet = TAILQ_FIRST(&connection->queue); packet; packet = next) {
		next = TAILQ_NEXT(packet, link);
		if (!packet->is_in_room)
			continue;
		copy = malloc(sizeof(*copy) + packet->length);
		if (!copy)
			return false;
		memcpy(copy, packet, sizeof(*copy) + packet->length);
		copy->is_in_room = false;
		TAILQ_INSERT_BEFORE(packet, copy, link);
		TAILQ_REMOVE(&connection->queue, packet, link);
		outgoing_release(packet);
	}
	return true;
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

static struct connection *of_member(struct turn_end_member *member)
{
	return (struct connection *)((char *)member - offsetof(struct connection, member));
}

/* The turn sends. A failure calls no handler here: on_again() does. */
static void send_all(struct turn_end_member *member)
{
	struct connection *connection = of_member(member);
	int r = 0;

	while (connection->queued) {
		struct outgoing *first = TAILQ_FIRST(&connection->queue);

		r = send_bytes(connection, first->bytes, first->length, first->fds, first->fd_count);
		if (r)
			break;
		pop(connection);
	}
	if (r == CONNECTION_E_FULL && !leave_room(connection))
		r = -ENOMEM;
	if (r && r != CONNECTION_E_FULL)
		drop_all(connection);
	connection->behind = connection->queued;
	if (connection->closing)
		return;
	if (r < 0) {
		connection->broken = true;
		timer_start(connection->again, 0);
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
		turn_end_join(connection->turn_end, &connection->member);
	if ((events & UV_READABLE) && !connection->paused && !connection->closing && !read_one(connection))
		return;
	/* Unread packets come first; a paused peer that is gone gets no more answers anyway. */
	if ((events & UV_DISCONNECT) && (connection->paused || !(events & UV_READABLE)) &&
		!connection->closing)
		hang_up(connection, "the other side closed the connection");
}

static void on_again(void *context)
{
	struct connection *connection = context;

	if (connection->hung_up)
		return;
	if (!connection->broken)
		turn_end_join(connection->turn_end, &connection->member);
	else if (connection->peer == CONNECTION_OURS)
		on_error(connection);
	else
		/* A program that only does not read could go on writing for ever. */
		hang_up(connection, "it cannot be written to");
}

static void take_off(struct turn_end_member *member);

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

	if (!connection || fcntl(socket, F_SETFL, O_NONBLOCK) < 0 ||
		uv_poll_init(loop, &connection->handle, socket) < 0) {
		free(connection);
		close_socket(socket, peer);
		return NULL;
	}
	connection->again = timer_new(loop, on_again, connection);
	connection->turn_end = turn_end_of(loop);
	log_bug_on(!connection->turn_end);
	connection->member = (struct turn_end_member){.send = send_all, .take_off = take_off};
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

void connection_trust(struct connection *connection)
{
	connection->peer = CONNECTION_OURS;
	discard_allow(connection->socket);
}

void connection_set_owner(struct connection *connection, connection_message_fn *message,
	connection_closed_fn *closed, void *context)
{
	connection->on_message = message;
	connection->on_closed = closed;
	connection->context = context;
}

static int enqueue(struct connection *connection, size_t length, struct shared_fd *const *fds, unsigned count)
{
	struct outgoing *packet;

	if (connection->behind >= connection->queue_max)
		return CONNECTION_E_FULL;
	packet = outgoing_new(outgoing_bytes, length);
	if (!packet)
		return -ENOMEM;
	packet->fd_count = count;
	for (unsigned i = 0; i < count; i++)
		packet->fds[i] = shared_fd_ref(fds[i]);
	TAILQ_INSERT_TAIL(&connection->queue, packet, link);
	connection->queued++;
	turn_end_join(connection->turn_end, &connection->member);
	return 0;
}

int connection_send(struct connection *connection, const struct wire_message *message,
	struct shared_fd *const *fds, unsigned fd_count)
{
	size_t length;

	if (connection->hung_up || connection->closing)
		return CONNECTION_E_CLOSED;
	if (wire_encode_in(&room, message, outgoing_bytes, sizeof(outgoing_bytes), &length))
		return CONNECTION_E_LARGE;
	return enqueue(connection, length, fds, fd_count);
}

void connection_pause(struct connection *connection)
{
	connection->paused = true;
	update_poll(connection);
}

void connection_resume(struct connection *connection)
{
	connection->paused = false;
	be_handled(connection);
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

unsigned connection_behind(const struct connection *connection)
{
	return connection->behind;
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

	free(connection);
}

static void close_now(struct connection *connection)
{
	drop_all(connection);
	timer_free(connection->again);
	uv_close((uv_handle_t *)&connection->handle, on_close);
	close_socket(connection->socket, connection->peer);
}

static void take_off(struct turn_end_member *member)
{
	struct connection *connection = of_member(member);

	if (connection->handled) {
		packet_discard(connection->socket);
		connection->unread = connection->handled = false;
	}
	if (connection->closing)
		close_now(connection);
}

static void end(struct connection *connection)
{
	connection->closing = true;
	timer_stop(connection->again);
	uv_poll_stop(&connection->handle);
	turn_end_join(connection->turn_end, &connection->member);
}

struct connection *connection_shutdown(struct connection *connection)
{
	if (!connection || connection->closing)
		return NULL;
	/* An unread packet would discard messages to the peer. */
	be_handled(connection);
	end(connection);
	return NULL;
}

struct connection *connection_leave(struct connection *connection)
{
	if (!connection || connection->closing)
		return NULL;
	/* Our descriptor alone is closed. */
	connection->peer = CONNECTION_OURS;
	end(connection);
	return NULL;
}
