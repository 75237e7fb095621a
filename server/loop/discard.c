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
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "protocol/socket.h"
#include "server/log.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

/* Processes at a time. Each may wait for a program for ever; a program that often causes this harms
 * itself. */
#define PROCESSES_MAX 64u
#define END_S	      1u

static pid_t processes
	[PROCESSES_MAX]; /* 0: none. A process that has ended, and is reaped by the holder, may still be
			  * here */

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

static _Noreturn void empty(int socket)
{
	struct msghdr message;
	sigset_t alarms;

	prctl(PR_SET_NAME, "frmps-discard");
	sigemptyset(&alarms);
	sigaddset(&alarms, SIGALRM);
	sigprocmask(SIG_UNBLOCK, &alarms, NULL);
	signal(SIGALRM, SIG_DFL);
	alarm(END_S);
	/* Whoever waits for the daemon's end of something must not wait for this process. */
	if (socket > 0)
		close_range(0, (unsigned)socket - 1, 0);
	close_range((unsigned)socket + 1, ~0u, 0);
	while (receive(socket, &message, 0))
		continue;
	_exit(0);
}

/* If the number is another process's by now, this waits for that process. */
static bool has_ended(pid_t pid)
{
	struct pollfd process = {.fd = pid ? (int)syscall(SYS_pidfd_open, pid, 0) : -1, .events = POLLIN};
	bool has_ended = process.fd < 0 || poll(&process, 1, 0) > 0;

	if (process.fd >= 0)
		close(process.fd);
	return has_ended;
}

/* A child of the holder, as all of the service's. Return: true if the process runs */
static bool start(int socket)
{
	unsigned i = 0;
	long pid;

	while (i < PROCESSES_MAX && !has_ended(processes[i]))
		i++;
	if (i == PROCESSES_MAX)
		return false;
	pid = syscall(SYS_clone, CLONE_PARENT, NULL, NULL, NULL, 0);
	if (pid == 0)
		empty(socket);
	if (pid > 0)
		processes[i] = (pid_t)pid;
	return pid > 0;
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
	if (take_plain(socket) && !start(socket)) {
		/* Rather than to wait for the program. */
		log_error(
			"descriptors that a program sent stay open: too many such programs, or no process to "
			"close them");
		return;
	}
	close(socket);
}
