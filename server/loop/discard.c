// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// See discard.h. Unread packets hold descriptors, too: a socket is emptied before it is closed, because the holder's
// copy of it may be the last one.

#include "server/loop/discard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "protocol/socket.h"
#include "server/detached.h"
#include "server/log.h"

/* Most that the kernel lets a packet have (SCM_MAX_FD). */
#define RIGHTS_MAX 253

struct garbage {
	int socket; /* -1: none */
	int fds[WIRE_FDS_MAX];
};

static void close_one(int fd)
{
	const struct linger none = {0};

	if (fd < 0)
		return;
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
	close(fd);
}

static void close_rights(const struct cmsghdr *control)
{
	size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	int fd;

	for (size_t i = 0; i < count; i++) {
		memcpy(&fd, CMSG_DATA(control) + i * sizeof(int), sizeof(fd));
		close_one(fd);
	}
}

/* The sender's credentials, which were asked for, tell a packet that is empty from the end. Return: whether there was
 * one */
static bool receive(int socket, struct msghdr *message, int flags)
{
	ssize_t n;

	do
		n = recvmsg(socket, message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | flags);
	while (n < 0 && (errno == EINTR || errno == ECONNRESET));
	return n >= 0 && message->msg_controllen;
}

/* Takes off what comes without descriptors. Return: whether something is left */
static bool take_plain(int socket)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(struct ucred))];
	} control;

	for (;;) {
		struct msghdr message = {.msg_control = &control, .msg_controllen = sizeof(control)};

		if (!receive(socket, &message, MSG_PEEK))
			return false;
		/* There is no room for them. */
		if (message.msg_flags & MSG_CTRUNC)
			return true;
		packet_discard(socket);
	}
}

static bool take_any(int socket)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(RIGHTS_MAX * sizeof(int))];
	} control;
	struct msghdr message = {.msg_control = &control, .msg_controllen = sizeof(control)};

	if (!receive(socket, &message, 0))
		return false;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			close_rights(c);
	return true;
}

static void *close_in_thread(void *context)
{
	struct garbage *garbage = context;

	for (unsigned i = 0; i < WIRE_FDS_MAX; i++)
		close_one(garbage->fds[i]);
	while (garbage->socket >= 0 && take_any(garbage->socket))
		continue;
	if (garbage->socket >= 0)
		close(garbage->socket);
	free(garbage);
	return NULL;
}

static void close_later(int socket, const int *fds)
{
	struct garbage *garbage = malloc(sizeof(*garbage));

	if (garbage) {
		garbage->socket = socket;
		for (unsigned i = 0; i < WIRE_FDS_MAX; i++)
			garbage->fds[i] = fds ? fds[i] : -1;
	}
	if (!garbage || detached_start(close_in_thread, garbage, NULL)) {
		/* Rather than to wait for it. */
		log_error("what a program has sent stays open: no memory or no thread to close it");
		free(garbage);
	}
}

bool discard_is_harmless(const struct packet *packet)
{
	for (unsigned i = 0; i < packet->fd_count; i++)
		if (fcntl(packet->fds[i], F_GET_SEALS) < 0)
			return false;
	return true;
}

void discard_fds(struct packet *packet)
{
	close_later(-1, packet->fds);
	for (unsigned i = 0; i < packet->fd_count; i++)
		packet_take_fd(packet, i);
}

void discard_socket(int socket)
{
	const int on = 1;

	shutdown(socket, SHUT_RDWR);
	setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
	if (take_plain(socket))
		close_later(socket, NULL);
	else
		close(socket);
}
