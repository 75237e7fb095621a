// Connections and the end of a turn: what is sent leaves after the record and before the message
// that it answers is taken off, order and bounds of what is sent, hang-ups, ends from within.

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <uv.h>

#include "protocol/socket.h"
#include "server/loop/connection.h"
#include "server/loop/shared_fd.h"
#include "server/loop/turn_end.h"
#include "tests/lib/scarce.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/fake_children.h"

struct seen {
	unsigned messages, closed, records, rounds;
	struct connection *connection;
	bool shut_down_inside;
	bool answers; /* each message */
	int peer;
	char reason[64];
};

static int refused; /* packets that the kernel has no memory for, from now on */

ssize_t sendmsg(int socket, const struct msghdr *message, int flags)
{
	if (refused > 0) {
		refused--;
		errno = ENOBUFS;
		return -1;
	}
	return syscall(SYS_sendmsg, socket, message, flags);
}

static void on_message(void *context, const struct wire_message *message, struct packet *packet)
{
	struct seen *seen = context;

	(void)message;
	(void)packet;
	seen->messages++;
	if (seen->answers)
		ck_assert_int_eq(connection_send(seen->connection, message, NULL, 0), 0);
	if (seen->shut_down_inside)
		seen->connection = connection_shutdown(seen->connection);
}

static void on_closed(void *context, const char *reason)
{
	struct seen *seen = context;

	snprintf(seen->reason, sizeof(seen->reason), "%s", reason);
	seen->closed++;
}

/*
 * The end of a turn
 */

static bool is_readable(int socket)
{
	struct pollfd wait = {.fd = socket, .events = POLLIN};

	return poll(&wait, 1, 0) > 0;
}

static void change(void *context)
{
	(void)context;
}

/* Nothing has left yet, and what was dealt with is still there: a daemon that dies now, before the
 * record, has done nothing. */
static void record(void *context)
{
	struct seen *seen = context;

	if (seen->answers && seen->records < seen->messages) {
		ck_assert(!is_readable(seen->peer));
		ck_assert(is_readable(connection_socket(seen->connection)));
	}
	seen->records = seen->messages;
}

/* Everything has left, and what was dealt with is still there. */
static bool answered(void *context)
{
	struct seen *seen = context;

	if (seen->answers && seen->rounds < seen->messages) {
		ck_assert(is_readable(seen->peer));
		ck_assert(is_readable(connection_socket(seen->connection)));
	}
	seen->rounds = seen->messages;
	return false;
}

static const struct turn_end_steps steps = {.change = change, .record = record, .answered = answered};
static struct turn_end *turn_end;

static struct connection *connect_pair(uv_loop_t *loop, struct seen *seen, unsigned queue_max, int *ret_peer)
{
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
	uv_loop_init(loop);
	turn_end = turn_end_new(loop, &steps, seen);
	*seen = (struct seen){.connection = connection_new(
				      loop, CONNECTION_OURS, pair[0], queue_max, on_message, on_closed, seen),
		.peer = pair[1]};
	*ret_peer = pair[1];
	return seen->connection;
}

static void part(uv_loop_t *loop, struct connection *connection)
{
	connection_shutdown(connection);
	turn_end = turn_end_free(turn_end);
	uv_run(loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(loop), 0);
}

TEST(connection, an_answer_leaves_after_the_record_and_before_its_message)
{
	struct wire_message message = {.type = WIRE_PING, .id = 1};
	struct packet *packet = malloc(sizeof(*packet));
	struct connection *connection;
	struct seen seen;
	uv_loop_t loop;
	int peer;

	connection = connect_pair(&loop, &seen, 3, &peer);
	seen.answers = true;
	for (unsigned i = 1; i < 4; i++) {
		ck_assert_int_eq(message_send(peer, &message, NULL, 0), 0);
		uv_run(&loop, UV_RUN_NOWAIT);
		ck_assert_uint_eq(seen.messages, i);
		ck_assert_uint_eq(seen.records, i);
		ck_assert_uint_eq(seen.rounds, i);
		ck_assert_int_eq(packet_receive(peer, packet), 0);
		ck_assert(!is_readable(connection_socket(connection)));
	}
	part(&loop, connection);
	close(peer);
	free(packet);
}

TEST(connection, slow_reader_gets_everything_in_order_with_descriptors)
{
	struct wire_message message = {.type = WIRE_REFUSE, .refuse = {.text = ""}}, got;
	struct packet *packet = malloc(sizeof(*packet));
	struct shared_fd *fd = shared_fd_new(fake_memfd(1, 0));
	struct connection *connection;
	struct seen seen;
	uv_loop_t loop;
	int peer, r, sent = 0, received = 0;

	connection = connect_pair(&loop, &seen, 5000, &peer);
	while (connection_behind(connection) < 500) {
		message.refuse.code = sent++;
		ck_assert_int_eq(connection_send(connection, &message, &fd, 1), 0);
		turn_end_now(turn_end);
	}
	ck_assert_uint_gt(fd->refs, 1);
	while (received < sent) {
		uv_run(&loop, UV_RUN_NOWAIT);
		r = packet_receive(peer, packet);
		if (r == PACKET_E_AGAIN)
			continue;
		ck_assert_int_eq(r, 0);
		ck_assert_int_eq(wire_decode(packet->bytes, packet->length, &got), 0);
		ck_assert_int_eq(got.refuse.code, received++);
		ck_assert_uint_eq(packet->fd_count, 1);
		packet_close_fds(packet);
	}
	ck_assert_uint_eq(fd->refs, 1);
	part(&loop, connection);
	close(peer);
	shared_fd_unref(fd);
	free(packet);
}

/* An executor that cannot be spoken with is given up, and its programs may get errors. */
TEST(connection_2, messages_come_and_go_without_memory)
{
	struct wire_message message = {.type = WIRE_REFUSE, .refuse = {.text = ""}};
	struct connection *connection;
	struct seen seen;
	uv_loop_t loop;
	int peer, r;

	connection = connect_pair(&loop, &seen, 1, &peer);
	ck_assert_int_eq(message_send(peer, &message, NULL, 0), 0);
	uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_int_eq(message_send(peer, &message, NULL, 0), 0);
	scarce_begin();
	r = connection_send(connection, &message, NULL, 0);
	uv_run(&loop, UV_RUN_NOWAIT);
	scarce_end();
	ck_assert_int_eq(r, 0);
	ck_assert_uint_eq(seen.messages, 2);
	ck_assert_uint_eq(seen.closed, 0);
	part(&loop, connection);
	close(peer);
}

/* The peer may be an executor that others need as well. */
TEST(connection_3, what_the_kernel_has_no_memory_for_is_sent_again)
{
	struct wire_message message = {.type = WIRE_REFUSE, .refuse = {.text = ""}}, got;
	struct packet *packet = malloc(sizeof(*packet));
	struct connection *connection;
	struct seen seen;
	uv_loop_t loop;
	int peer;

	connection = connect_pair(&loop, &seen, 5, &peer);
	refused = 3;
	for (message.refuse.code = 0; message.refuse.code < 3; message.refuse.code++)
		ck_assert_int_eq(connection_send(connection, &message, NULL, 0), 0);
	turn_end_now(turn_end);
	ck_assert_uint_eq(connection_behind(connection), 3);
	while (connection_behind(connection))
		uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_int_eq(refused, 0);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(message_receive(peer, packet, &got), 0);
		ck_assert_int_eq(got.refuse.code, i);
	}
	ck_assert_uint_eq(seen.closed, 0);
	part(&loop, connection);
	close(peer);
	free(packet);
}

TEST(connection_3, queue_is_bounded_and_freed)
{
	struct wire_message message = {.type = WIRE_REFUSE, .refuse = {.text = "x"}};
	struct shared_fd *fd = shared_fd_new(fake_memfd(1, 0));
	struct connection *connection;
	struct seen seen;
	uv_loop_t loop;
	int peer, r;

	connection = connect_pair(&loop, &seen, 3, &peer);
	while ((r = connection_send(connection, &message, &fd, 1)) == 0)
		turn_end_now(turn_end);
	ck_assert_int_eq(r, CONNECTION_E_FULL);
	ck_assert_uint_eq(connection_behind(connection), 3);
	part(&loop, connection);
	close(peer);
	ck_assert_uint_eq(fd->refs, 1);
	shared_fd_unref(fd);
}

TEST(connection_3, last_words_are_read_before_the_hang_up)
{
	struct wire_message message = {.type = WIRE_PING, .id = 1};
	struct connection *connection;
	struct seen seen;
	uv_loop_t loop;
	int peer;

	connection = connect_pair(&loop, &seen, 3, &peer);
	for (int i = 0; i < 40; i++)
		ck_assert_int_eq(message_send(peer, &message, NULL, 0), 0);
	close(peer);
	for (int i = 0; i < 50; i++)
		uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(seen.messages, 40);
	ck_assert_uint_eq(seen.closed, 1);
	connection_drain(connection);
	ck_assert_uint_eq(seen.closed, 1);
	part(&loop, connection);
}

/* What was sent to it lies there, and the kernel tells an error. What it has said before counts. */
TEST(connection_3, a_peer_that_dies_in_the_middle_of_something_has_hung_up)
{
	struct wire_message message = {.type = WIRE_REFUSE, .refuse = {.text = ""}};
	struct wire_message last = {.type = WIRE_PING, .id = 1};
	struct connection *connection;
	struct seen seen;
	uv_loop_t loop;
	int peer;

	connection = connect_pair(&loop, &seen, 4, &peer);
	ck_assert_int_eq(connection_send(connection, &message, NULL, 0), 0);
	ck_assert_int_eq(message_send(peer, &last, NULL, 0), 0);
	close(peer);
	while (!seen.closed)
		uv_run(&loop, UV_RUN_ONCE);
	ck_assert_str_eq(seen.reason, "the other side closed the connection");
	ck_assert_uint_eq(seen.messages, 1);
	part(&loop, connection);
}

/* It had read what it was sent, and more waits for it. */
TEST(connection_3, last_words_are_read_before_it_is_known_that_nothing_can_be_written)
{
	struct wire_message message = {.type = WIRE_PING, .id = 1};
	struct packet *packet = malloc(sizeof(*packet));
	struct connection *connection;
	struct seen seen;
	uv_loop_t loop;
	int peer;

	connection = connect_pair(&loop, &seen, 3, &peer);
	while (!connection_behind(connection)) {
		ck_assert_int_eq(connection_send(connection, &message, NULL, 0), 0);
		turn_end_now(turn_end);
	}
	while (packet_receive(peer, packet) != PACKET_E_AGAIN)
		;
	for (int i = 0; i < 40; i++)
		ck_assert_int_eq(message_send(peer, &message, NULL, 0), 0);
	close(peer);
	for (int i = 0; i < 50; i++)
		uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(seen.messages, 40);
	ck_assert_uint_eq(seen.closed, 1);
	part(&loop, connection);
	free(packet);
}

/* The sender is not there any more: the connection ends. */
TEST(connection_3, what_the_kernel_does_not_take_ends_the_connection)
{
	char text[6000];
	struct wire_message message = {.type = WIRE_REFUSE, .refuse = {.text = text}};
	struct connection *connection;
	const int least = 1;
	struct seen seen;
	uv_loop_t loop;
	int peer;

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	connection = connect_pair(&loop, &seen, 3, &peer);
	ck_assert_int_eq(
		setsockopt(connection_socket(connection), SOL_SOCKET, SO_SNDBUF, &least, sizeof(least)), 0);
	ck_assert_int_eq(connection_send(connection, &message, NULL, 0), 0);
	while (!seen.closed)
		uv_run(&loop, UV_RUN_ONCE);
	part(&loop, connection);
	close(peer);
}

TEST(connection_3, paused_connection_still_sees_the_hang_up)
{
	struct wire_message message = {.type = WIRE_PING, .id = 1};
	struct connection *connection;
	struct seen seen;
	uv_loop_t loop;
	int peer;

	connection = connect_pair(&loop, &seen, 3, &peer);
	connection_pause(connection);
	ck_assert_int_eq(message_send(peer, &message, NULL, 0), 0);
	uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(seen.messages + seen.closed, 0);
	close(peer);
	uv_run(&loop, UV_RUN_NOWAIT);
	ck_assert_uint_eq(seen.closed, 1);
	part(&loop, connection);
}

TEST(connection_3, handler_may_shut_its_connection_down)
{
	struct wire_message message = {.type = WIRE_PING, .id = 1};
	struct seen seen;
	uv_loop_t loop;
	int peer;

	connect_pair(&loop, &seen, 3, &peer);
	seen.shut_down_inside = true;
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(message_send(peer, &message, NULL, 0), 0);
	uv_run(&loop, UV_RUN_DEFAULT);
	ck_assert_uint_eq(seen.messages, 1);
	ck_assert_uint_eq(seen.closed, 0);
	close(peer);
	part(&loop, NULL);
}

int main(void)
{
	Suite *suite = suite_create("connection");
	TCase *tests = suite_case(suite, "connection");

	fake_prepare();
	suite_add(tests, "connection");
	if (SCARCE_POSSIBLE)
		suite_add(tests, "connection_2");
	suite_add(tests, "connection_3");
	return suite_run(suite);
}
