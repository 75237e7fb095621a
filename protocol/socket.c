// Packets with descriptors over SOCK_SEQPACKET. Runs in every process of the project, in the thread
// of the caller. Invariant: on every path, a descriptor that the kernel delivered is in packet->fds
// or closed.

#include "protocol/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

/* Room for a descriptor more than a packet may carry hides nothing: the kernel closes descriptors
 * that do not fit and sets MSG_CTRUNC. */
union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(WIRE_FDS_MAX * sizeof(int))];
};

/* Moves the descriptors of a control message into the packet. Closes and counts descriptors beyond
 * its room. */
static unsigned take_rights(struct packet *packet, const struct cmsghdr *c)
{
	size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	unsigned surplus = 0;

	for (size_t i = 0; i < count; ++i) {
		int fd;
		memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
		if (packet->fd_count < WIRE_FDS_MAX) {
			packet->fds[packet->fd_count++] = fd;
		} else {
			close(fd);
			++surplus;
		}
	}
	return surplus;
}

static unsigned take_all(struct packet *packet, struct msghdr *m)
{
	unsigned surplus = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			surplus += take_rights(packet, c);
	return surplus;
}

static void clear(struct packet *packet)
{
	packet->length = 0;
	packet->fd_count = 0;
	for (unsigned i = 0; i < WIRE_FDS_MAX; ++i)
		packet->fds[i] = -1;
}

static int receive_error(int error)
{
	if (error == EAGAIN || error == EWOULDBLOCK)
		return PACKET_E_AGAIN;
	if (error == EPIPE)
		return PACKET_E_CLOSED;
	return -error;
}

/* If the peer ends with unread packets from this side, the kernel reports a reset, once, before it
 * delivers the peer's packets. */
static bool is_to_be_repeated(int error)
{
	return error == EINTR || error == ECONNRESET;
}

/* @room: for descriptors; 0: the kernel does not even install any */
static int receive(int socket, struct packet *packet, int flags, size_t room)
{
	union control control;
	struct iovec bytes = {.iov_base = packet->bytes, .iov_len = sizeof(packet->bytes)};
	struct msghdr m = {.msg_iov = &bytes,
		.msg_iovlen = 1,
		.msg_control = room ? &control : NULL,
		.msg_controllen = room};
	ssize_t n;

	clear(packet);
	do {
		n = recvmsg(socket, &m, MSG_CMSG_CLOEXEC | flags);
	} while (n < 0 && is_to_be_repeated(errno));
	if (n < 0)
		return receive_error(errno);

	bool cut = m.msg_flags & MSG_CTRUNC;
	unsigned surplus = take_all(packet, &m);
	if (surplus || (m.msg_flags & MSG_TRUNC) || (n == 0 && (cut || packet->fd_count)) ||
		(cut && (!room || packet->fd_count == WIRE_FDS_MAX))) {
		packet_close_fds(packet);
		return PACKET_E_INVALID;
	}
	packet->length = (size_t)n;
	if (cut) {
		packet_close_fds(packet);
		return PACKET_E_NO_FDS;
	}
	/* No packet of the protocol is empty, so 0 bytes mean the end. A peer that does send an
	 * empty packet counts as gone. */
	return n == 0 ? PACKET_E_CLOSED : 0;
}

int packet_receive(int socket, struct packet *packet)
{
	return receive(socket, packet, 0, sizeof(union control));
}

int packet_peek(int socket, struct packet *packet)
{
	return receive(socket, packet, MSG_PEEK, sizeof(union control));
}

int packet_peek_bare(int socket, struct packet *packet)
{
	return receive(socket, packet, MSG_PEEK, 0);
}

void packet_discard(int socket)
{
	uint8_t byte;

	/* Without room for descriptors the kernel drops the rest of the packet and its
	 * descriptors. */
	while (recv(socket, &byte, sizeof(byte), MSG_DONTWAIT) < 0 && is_to_be_repeated(errno))
		continue;
}

void packet_close_fds(struct packet *packet)
{
	for (unsigned i = 0; i < packet->fd_count; ++i)
		if (packet->fds[i] >= 0)
			close(packet->fds[i]);
	for (unsigned i = 0; i < WIRE_FDS_MAX; ++i)
		packet->fds[i] = -1;
	packet->fd_count = 0;
}

int packet_take_fd(struct packet *packet, unsigned index)
{
	if (index >= packet->fd_count)
		return -1;
	int fd = packet->fds[index];
	packet->fds[index] = -1;
	return fd;
}

/* Puts the descriptors into the message's control area. */
static void attach(struct msghdr *m, union control *control, const int *fds, unsigned fd_count)
{
	if (!fd_count)
		return;
	memset(control, 0, sizeof(*control));
	m->msg_control = control;
	m->msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
	struct cmsghdr *c = CMSG_FIRSTHDR(m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
	memcpy(CMSG_DATA(c), fds, fd_count * sizeof(int));
}

static int send_error(int error)
{
	if (error == EAGAIN || error == EWOULDBLOCK)
		return PACKET_E_AGAIN;
	if (error == EPIPE || error == ECONNRESET || error == ENOTCONN)
		return PACKET_E_CLOSED;
	return -error;
}

int packet_send(int socket, const uint8_t *bytes, size_t length, const int *fds, unsigned fd_count)
{
	union control control;
	struct iovec v = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
	ssize_t n;

	attach(&m, &control, fds, fd_count);
	do {
		n = sendmsg(socket, &m, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? send_error(errno) : 0;
}

int message_receive(int socket, struct packet *packet, struct wire_message *message)
{
	int r = packet_receive(socket, packet);

	if (r || !wire_decode(packet->bytes, packet->length, message))
		return r;
	packet_close_fds(packet);
	return PACKET_E_INVALID;
}

int message_send(int socket, const struct wire_message *message, const int *fds, unsigned fd_count)
{
	size_t length;
	int r;

	if (fd_count > WIRE_FDS_MAX)
		return PACKET_E_INVALID;
	uint8_t *bytes = malloc(WIRE_PACKET_MAX);
	if (!bytes)
		return -ENOMEM;
	r = wire_encode(message, bytes, WIRE_PACKET_MAX, &length);
	if (r > 0)
		r = PACKET_E_INVALID;
	if (!r)
		r = packet_send(socket, bytes, length, fds, fd_count);
	free(bytes);
	return r;
}

bool socket_directory_is_trusted(const char *directory)
{
	struct statx status; /* the symbols of other calls differ between old and new C libraries */
	char path[PATH_MAX];
	size_t length = strlen(directory);

	if (length >= sizeof(path))
		return false;
	memcpy(path, directory, length + 1);
	/* With a slash at the end the call would follow a link, and the link's owner could redirect
	 * it later. */
	while (length > 1 && path[length - 1] == '/')
		path[--length] = '\0';
	return !statx(AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, STATX_TYPE | STATX_MODE | STATX_UID, &status) &&
	       S_ISDIR(status.stx_mode) && (!status.stx_uid || status.stx_uid == geteuid()) &&
	       !(status.stx_mode & (S_IWGRP | S_IWOTH));
}

int socket_connect(const char *path, unsigned seconds, int *ret_fd)
{
	const struct timeval patience = {.tv_sec = seconds};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		int error = errno;

		close(fd);
		return -error;
	}
	*ret_fd = fd;
	return 0;
}
