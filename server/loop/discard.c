// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// See discard.h. Unread packets hold descriptors, too: a socket that the holder has as well is emptied before it is
// closed, because the holder's copy may be the last one. Another is not: what is never taken is not closed by anybody,
// and no file system is asked about it.
//
// A socket that is sent may hold such packets itself, and what is in them lingers for as long as its maker said: a
// thread that closed it would stay, and a program can do that as often as it likes. But nothing lingers for a thread
// that ends with a table of descriptors of its own. So the last one to have garbage is a thread that ends:
//
//	close_in_thread		garbage ──────── waits ───────► closes, does not linger ────► frees
//	end_in_thread		own table ► takes a copy, empties the socket ────► ends, does not linger either

#include "server/loop/discard.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "protocol/socket.h"
#include "server/detached.h"
#include "server/log.h"

/* Most that the kernel lets a packet have (SCM_MAX_FD). */
#define RIGHTS_MAX 253

struct garbage {
	int socket;	 /* -1: none */
	bool is_emptied; /* before it is closed */
	bool is_taken;	 /* another thread has a copy of it */
	int fds[WIRE_FDS_MAX];
	sem_t taken, closed;
};

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

/* As well as it can be done where no other thread has it. */
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

/* @keeps: what is taken goes with the thread. Return: whether there was something */
static bool take_any(int socket, bool keeps)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(RIGHTS_MAX * sizeof(int))];
	} control;
	struct msghdr message = {.msg_control = &control, .msg_controllen = sizeof(control)};

	if (!receive(socket, &message, 0))
		return false;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c && !keeps; c = CMSG_NXTHDR(&message, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			close_rights(c);
	return true;
}

/* All threads share a table of descriptors; from here on this one has its own, with the garbage alone. */
static void take_over(struct garbage *garbage)
{
	int process, socket = -1;

	if (close_range(0, ~0u, CLOSE_RANGE_UNSHARE) < 0)
		return;
	process = (int)syscall(SYS_pidfd_open, getpid(), 0);
	for (unsigned i = 0; i < WIRE_FDS_MAX; i++)
		if (garbage->fds[i] >= 0)
			syscall(SYS_pidfd_getfd, process, garbage->fds[i], 0);
	if (garbage->socket >= 0)
		socket = (int)syscall(SYS_pidfd_getfd, process, garbage->socket, 0);
	garbage->is_taken = socket >= 0;
	while (socket >= 0 && garbage->is_emptied && take_any(socket, true))
		continue;
}

/* Closes by ending. */
static void *end_in_thread(void *context)
{
	struct garbage *garbage = context;

	take_over(garbage);
	sem_post(&garbage->taken);
	sem_wait(&garbage->closed);
	return NULL;
}

static void close_all(const struct garbage *garbage)
{
	while (garbage->socket >= 0 && !garbage->is_taken && take_any(garbage->socket, false))
		continue;
	if (garbage->socket >= 0)
		close(garbage->socket);
	for (unsigned i = 0; i < WIRE_FDS_MAX; i++)
		close_one(garbage->fds[i]);
}

/* What another thread has as well does not linger here. */
static void *close_in_thread(void *context)
{
	struct garbage *garbage = context;
	pthread_t last;
	bool is_shared;

	sem_init(&garbage->taken, 0, 0);
	sem_init(&garbage->closed, 0, 0);
	is_shared = !pthread_create(&last, NULL, end_in_thread, garbage);
	if (is_shared)
		sem_wait(&garbage->taken);
	close_all(garbage);
	sem_post(&garbage->closed);
	if (is_shared)
		pthread_join(last, NULL);
	free(garbage);
	return NULL;
}

static void close_later(int socket, bool is_emptied, const int *fds)
{
	struct garbage *garbage = malloc(sizeof(*garbage));

	if (garbage) {
		garbage->socket = socket;
		garbage->is_emptied = is_emptied;
		garbage->is_taken = false;
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
	close_later(-1, false, packet->fds);
	for (unsigned i = 0; i < packet->fd_count; i++)
		packet_take_fd(packet, i);
}

void discard_socket(int socket, bool is_deposited)
{
	const int on = 1;

	shutdown(socket, SHUT_RDWR);
	setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
	if (take_plain(socket))
		close_later(socket, is_deposited, NULL);
	else
		close(socket);
}
