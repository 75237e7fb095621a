// One datagram to the service manager. See notify.h. The manager checks the sender's process, and
// root may name another: the daemon names its parent, the holder, which is the service's main
// process.

#include "server/loop/notify.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* While there is no memory or descriptor for the datagram. A manager that hears nothing ends the
 * service. */
#define TRIES	 10
#define PAUSE_NS 10000000

static int through = -1; /* notify_through() */

/* @as: 0: as whoever the kernel finds. Return: 0 or -errno */
static int send_as(int fd, const struct msghdr *to, pid_t as)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(struct ucred))];
	} control = {0};
	struct msghdr message = *to;
	struct cmsghdr *c;

	if (as) {
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		c = CMSG_FIRSTHDR(&message);
		*c = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
			.cmsg_type = SCM_CREDENTIALS,
			.cmsg_len = CMSG_LEN(sizeof(struct ucred))};
		*(struct ucred *)(void *)CMSG_DATA(c) =
			(struct ucred){.pid = as, .uid = getuid(), .gid = getgid()};
	}
	return sendmsg(fd, &message, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* Return: 0 or -errno */
static int send_to(const struct msghdr *message, pid_t as)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), r;

	if (fd < 0)
		return -errno;
	r = send_as(fd, message, as);
	if (r == -EPERM)
		r = send_as(fd, message, 0);
	close(fd);
	return r;
}

static bool may_pass(int r)
{
	return r == -ENOBUFS || r == -ENOMEM || r == -EMFILE || r == -ENFILE;
}

/* @as: as of send_as() */
static int notify_as(const char *state, pid_t as)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct iovec text = {.iov_base = (void *)(uintptr_t)state, .iov_len = strlen(state)};
	struct msghdr message = {.msg_name = &address, .msg_iov = &text, .msg_iovlen = 1};
	const struct timespec pause = {.tv_nsec = PAUSE_NS};
	const char *path = getenv("NOTIFY_SOCKET");
	size_t length;
	int r;

	if (!path || (path[0] != '/' && path[0] != '@'))
		return 0;
	length = strlen(path);
	if (length >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, length);
	if (path[0] == '@')
		address.sun_path[0] = '\0';
	message.msg_namelen = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
	r = send_to(&message, as);
	for (int i = 1; i < TRIES && may_pass(r); i++) {
		nanosleep(&pause, NULL);
		r = send_to(&message, as);
	}
	return r;
}

void notify_through(int fd)
{
	through = fd;
}

int notify_manager_directly(const char *state)
{
	return notify_as(state, 0);
}

int notify_manager(const char *state)
{
	if (through < 0)
		return notify_as(state, getppid());
	return send(through, state, strlen(state), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}
