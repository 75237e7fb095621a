// See discard.h. The holder may have the socket, too: the process empties the socket, and has its
// copy until then, so neither daemon nor holder closes descriptors of a packet.
//
// 	daemon		shuts down ──► starts the process ──► closes its copy
// 	process		takes packet by packet without their descriptors, which the kernel closes meanwhile ──► ends
//
// Sockets with SO_LINGER are closed when the alarm kills the process: nothing lingers for a process
// that ends. Such a file is never in the table of a process that others wait for, so a file system
// is not asked to flush it.

#include "server/loop/discard.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#include "protocol/socket.h"
#include "server/log.h"
#include "server/loop/aside.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

/* Each may wait for a program for ever; a program that often causes this harms itself. */
static struct asides processes = {.name = "frmps-discard", .seconds = 1, .most = 64, .most_of_user = 64};

/* The sender's credentials, which the socket was set to report, distinguish an empty packet from
 * the end. For descriptors there is no room. Return: false without a packet */
static bool receive(int socket, struct msghdr *message, int flags)
{
	static union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(struct ucred))];
	} control;
	ssize_t n;

	do {
		*message = (struct msghdr){.msg_control = &control, .msg_controllen = sizeof(control)};
		n = recvmsg(socket, message, MSG_DONTWAIT | flags);
	} while (n < 0 && (errno == EINTR || errno == ECONNRESET));
	return n >= 0 && message->msg_controllen;
}

/* Takes packets without descriptors off. Return: true if packets are left */
static bool take_plain(int socket)
{
	struct msghdr message;

	while (receive(socket, &message, MSG_PEEK)) {
		if (message.msg_flags & MSG_CTRUNC)
			return true;
		packet_discard(socket);
	}
	return false;
}

static void empty(const int *socket)
{
	struct msghdr message;

	while (receive(*socket, &message, 0))
		continue;
}

void discard_refuse(int listener)
{
	const int off = 0;

	setsockopt(listener, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off));
}

void discard_allow(int socket)
{
	int on = 1;

	/* Fails where discard_refuse() does: all sockets take descriptors there. */
	(void)setsockopt(socket, SOL_SOCKET, SO_PASSRIGHTS, &on, sizeof(on));
}

void discard_socket(int socket)
{
	const int on = 1;

	shutdown(socket, SHUT_RDWR);
	setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
	if (take_plain(socket) && !aside_start(&processes, 0, &socket, 1, empty)) {
		/* Rather than to wait for the program. */
		log_error(
			"descriptors that a program sent stay open: too many such programs, or no process to "
			"close them");
		return;
	}
	close(socket);
}
