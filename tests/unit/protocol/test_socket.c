// Packets and descriptors over a socket pair, with a well-behaved and an ill-behaved peer. The
// frame counts descriptors, so every path that forgets one fails.

#include "protocol/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/lib/suite.h"

static int ours = -1, theirs = -1;
static struct packet *packet;

static void open_pair(void)
{
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	ours = pair[0];
	theirs = pair[1];
	packet = aligned_alloc(64, (sizeof(*packet) + 63) / 64 * 64);
	ck_assert_ptr_nonnull(packet);
}

static void hang_up(void)
{
	if (theirs >= 0)
		close(theirs);
	theirs = -1;
}

static void close_pair(void)
{
	hang_up();
	close(ours);
	free(packet);
}

static void set_nonblocking(int fd)
{
	ck_assert_int_eq(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
}

/* Sends bytes and descriptors without any of our rules. */
static void send_raw(size_t length, unsigned fd_count)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(16 * sizeof(int))];
	} control;
	char *bytes = calloc(1, length + 1);
	struct iovec v = {.iov_base = bytes, .iov_len = length};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
	int fds[16];

	for (unsigned i = 0; i < fd_count; ++i)
		fds[i] = theirs;
	if (fd_count) {
		memset(&control, 0, sizeof(control));
		m.msg_control = &control;
		m.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
		memcpy(CMSG_DATA(c), fds, fd_count * sizeof(int));
	}
	ck_assert_int_eq(sendmsg(theirs, &m, MSG_NOSIGNAL), (ssize_t)length);
	free(bytes);
}

static struct wire_message ping(uint64_t id)
{
	return (struct wire_message){.type = WIRE_PING, .id = id, .session = 7};
}

TEST(good, message_travels)
{
	struct wire_message sent = ping(42), got;

	ck_assert_int_eq(message_send(theirs, &sent, NULL, 0), 0);
	ck_assert_int_eq(packet_receive(ours, packet), 0);
	ck_assert_uint_eq(packet->fd_count, 0);
	ck_assert_int_eq(wire_decode(packet->bytes, packet->length, &got), 0);
	ck_assert_int_eq(got.type, WIRE_PING);
	ck_assert_uint_eq(got.id, 42);
	ck_assert_uint_eq(got.session, 7);
}

TEST(good, packets_keep_their_bounds)
{
	struct wire_message first = ping(1), second = ping(2), got;

	ck_assert_int_eq(message_send(theirs, &first, NULL, 0), 0);
	ck_assert_int_eq(message_send(theirs, &second, NULL, 0), 0);
	for (uint64_t id = 1; id <= 2; ++id) {
		ck_assert_int_eq(message_receive(ours, packet, &got), 0);
		ck_assert_uint_eq(got.id, id);
	}
}

/* _i descriptors, 0 to WIRE_FDS_MAX, arrive in order, are the same files and are closed on exec. */
TEST_LOOP(good, descriptors_travel, 0, WIRE_FDS_MAX + 1)
{
	struct wire_message sent = ping(1);
	int fds[WIRE_FDS_MAX][2], ends[WIRE_FDS_MAX];

	for (int i = 0; i < _i; ++i) {
		ck_assert_int_eq(pipe2(fds[i], O_CLOEXEC), 0);
		ends[i] = fds[i][0];
	}
	ck_assert_int_eq(message_send(theirs, &sent, ends, (unsigned)_i), 0);
	ck_assert_int_eq(packet_receive(ours, packet), 0);
	ck_assert_uint_eq(packet->fd_count, (unsigned)_i);
	for (int i = 0; i < _i; ++i) {
		struct stat a, b;
		int fd = packet_take_fd(packet, (unsigned)i);
		ck_assert_int_ge(fd, 0);
		ck_assert_int_eq(packet_take_fd(packet, (unsigned)i), -1);
		ck_assert_int_ne(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
		ck_assert_int_eq(fstat(fd, &a) | fstat(ends[i], &b), 0);
		ck_assert_uint_eq(a.st_ino, b.st_ino);
		close(fd);
		close(fds[i][0]);
		close(fds[i][1]);
	}
	ck_assert_int_eq(packet_take_fd(packet, (unsigned)_i), -1);
	packet_close_fds(packet);
}

TEST(good, what_nobody_takes_is_closed)
{
	struct wire_message sent = ping(1);
	int fds[3] = {theirs, theirs, ours};

	ck_assert_int_eq(message_send(theirs, &sent, fds, 3), 0);
	ck_assert_int_eq(packet_receive(ours, packet), 0);
	int middle = packet_take_fd(packet, 1);
	packet_close_fds(packet);
	ck_assert_int_ge(fcntl(middle, F_GETFD), 0);
	close(middle);
	ck_assert_int_eq(packet_take_fd(packet, 0), -1);
	packet_close_fds(packet);
}

TEST(bad, too_many_descriptors_to_send)
{
	struct wire_message sent = ping(1);
	int fds[WIRE_FDS_MAX + 1] = {0};

	set_nonblocking(ours);
	ck_assert_int_eq(message_send(theirs, &sent, fds, WIRE_FDS_MAX + 1), PACKET_E_INVALID);
	ck_assert_int_eq(packet_receive(ours, packet), PACKET_E_AGAIN);
}

/* _i descriptors, all of them too many. */
TEST_LOOP(bad, too_many_descriptors_to_receive, WIRE_FDS_MAX + 1, 12)
{
	send_raw(64, (unsigned)_i);
	ck_assert_int_eq(packet_receive(ours, packet), PACKET_E_INVALID);
	ck_assert_uint_eq(packet->fd_count, 0);
}

/* The frame has two descriptors to receive, and this process room for one. */
TEST(bad, descriptors_without_room_are_no_nonsense)
{
	struct wire_message sent = ping(7), received;
	int fds[2] = {ours, theirs}, first = dup(ours);
	struct rlimit before, few;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	few = (struct rlimit){.rlim_cur = (rlim_t)first + 1, .rlim_max = before.rlim_max};
	close(first);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	ck_assert_int_eq(message_send(theirs, &sent, fds, 2), 0);
	ck_assert_int_eq(packet_peek(ours, packet), PACKET_E_NO_FDS);
	ck_assert_uint_eq(packet->fd_count, 0);
	ck_assert_int_eq(packet_peek_bare(ours, packet), PACKET_E_INVALID);
	ck_assert_int_eq(packet_receive(ours, packet), PACKET_E_NO_FDS);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
	ck_assert_uint_eq(packet->fd_count, 0);
	ck_assert_int_eq(wire_decode(packet->bytes, packet->length, &received), 0);
	ck_assert_uint_eq(received.id, 7);
}

TEST(bad, long_packets_are_refused)
{
	int big = 1 << 20;

	ck_assert_int_eq(setsockopt(theirs, SOL_SOCKET, SO_SNDBUF, &big, sizeof(big)), 0);
	send_raw(WIRE_PACKET_MAX, 0);
	ck_assert_int_eq(packet_receive(ours, packet), 0);
	ck_assert_uint_eq(packet->length, WIRE_PACKET_MAX);
	send_raw(WIRE_PACKET_MAX + 1, 2);
	ck_assert_int_eq(packet_receive(ours, packet), PACKET_E_INVALID);
	ck_assert_uint_eq(packet->fd_count, 0);
}

TEST(bad, hang_up_is_seen)
{
	struct wire_message sent = ping(1);

	ck_assert_int_eq(message_send(theirs, &sent, NULL, 0), 0);
	hang_up();
	ck_assert_int_eq(packet_receive(ours, packet), 0);
	ck_assert_int_eq(packet_receive(ours, packet), PACKET_E_CLOSED);
	signal(SIGPIPE, SIG_DFL);
	ck_assert_int_eq(message_send(ours, &sent, NULL, 0), PACKET_E_CLOSED);
}

/* The peer closes with our packet unread. */
TEST(bad, reset_is_a_hang_up)
{
	struct wire_message sent = ping(1);

	ck_assert_int_eq(message_send(ours, &sent, NULL, 0), 0);
	hang_up();
	ck_assert_int_eq(packet_receive(ours, packet), PACKET_E_CLOSED);
}

TEST(bad, a_reset_does_not_hide_what_was_sent_before)
{
	struct wire_message ping = {.type = WIRE_PING, .id = 3}, received;

	/* The other one dies with this unread. */
	ck_assert_int_eq(message_send(ours, &ping, NULL, 0), 0);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(message_send(theirs, &ping, NULL, 0), 0);
	hang_up();
	ck_assert_int_eq(packet_peek(ours, packet), 0);
	packet_discard(ours);
	ck_assert_int_eq(message_receive(ours, packet, &received), 0);
	ck_assert_uint_eq(received.id, 3);
	ck_assert_int_eq(packet_receive(ours, packet), PACKET_E_CLOSED);
}

/* Between the look at a packet and its end. */
TEST(bad, a_reset_does_not_keep_a_packet)
{
	struct wire_message ping = {.type = WIRE_PING, .id = 3};

	ck_assert_int_eq(message_send(ours, &ping, NULL, 0), 0);
	ck_assert_int_eq(message_send(theirs, &ping, NULL, 0), 0);
	ck_assert_int_eq(packet_peek(ours, packet), 0);
	hang_up();
	packet_discard(ours);
	ck_assert_int_eq(packet_receive(ours, packet), PACKET_E_CLOSED);
}

TEST(bad, empty_packet_counts_as_hang_up)
{
	send_raw(0, 0);
	ck_assert_int_eq(packet_receive(ours, packet), PACKET_E_CLOSED);
}

TEST(good, nothing_there)
{
	set_nonblocking(ours);
	ck_assert_int_eq(packet_receive(ours, packet), PACKET_E_AGAIN);
}

TEST(good, nobody_reads)
{
	struct wire_message sent = ping(1);
	int r, count = 0;

	set_nonblocking(ours);
	while (!(r = message_send(ours, &sent, NULL, 0)))
		ck_assert_int_lt(++count, 1000000);
	ck_assert_int_eq(r, PACKET_E_AGAIN);
	ck_assert_int_gt(count, 0);
}

TEST(bad, own_mistakes_are_negative)
{
	struct wire_message sent = ping(1);
	int no_socket[2];

	ck_assert_int_eq(pipe2(no_socket, O_CLOEXEC), 0);
	ck_assert_int_eq(packet_receive(no_socket[0], packet), -ENOTSOCK);
	ck_assert_int_eq(message_send(no_socket[1], &sent, NULL, 0), -ENOTSOCK);
	close(no_socket[0]);
	close(no_socket[1]);
	ck_assert_int_eq(packet_receive(-1, packet), -EBADF);
}

TEST(bad, unencodable_messages_stay_here)
{
	struct wire_message sent = {.type = WIRE_NONE};

	set_nonblocking(ours);
	ck_assert_int_eq(message_send(theirs, &sent, NULL, 0), PACKET_E_INVALID);
	ck_assert_int_eq(packet_receive(ours, packet), PACKET_E_AGAIN);
}

int main(void)
{
	Suite *suite = suite_create("socket");
	TCase *good = suite_case(suite, "well-behaved");
	TCase *bad = suite_case(suite, "ill-behaved");

	tcase_add_checked_fixture(good, open_pair, close_pair);
	suite_add(good, "good");

	tcase_add_checked_fixture(bad, open_pair, close_pair);
	suite_add(bad, "bad");
	return suite_run(suite);
}
