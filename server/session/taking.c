// See taking.h.

#include "server/session/taking.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "protocol/socket.h"
#include "server/loop/aside.h"
#include "server/loop/connection.h"
#include "server/loop/shared_fd.h"

struct taking {
	struct connection *connection; /* with the process */
	uint64_t number;
	taking_fn *taken;
	void *context;
};

/* A program that is stopped meanwhile asks once more. */
static struct asides processes = {.name = "frmps-take", .seconds = 10, .most = 128, .most_of_user = 32};

/*
 * The process
 */

/* Return: what is wrong with a file (static text), NULL if the service can map it. Seals are asked
 * for first: only the kernel's own file systems in memory know them, and none of these ever waits
 * for a program. */
static const char *flaw_of(int fd, struct stat *ret_status)
{
	struct statfs system;

	if (fd < 0)
		return "no descriptor came";
	if (fcntl(fd, F_GET_SEALS) < 0 || fstat(fd, ret_status) < 0 || !S_ISREG(ret_status->st_mode))
		return "it is no file in memory";
	if (fstatfs(fd, &system) < 0 || system.f_type != TMPFS_MAGIC)
		return "its pages are huge ones";
	return (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR ? NULL : "it is not open for writing";
}

/* The first descriptor of the program's packet; further ones are not even installed. -1: none */
static int receive(int program)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	int fd = -1;
	char byte;
	struct iovec part = {&byte, sizeof(byte)};
	struct msghdr message = {.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = CMSG_LEN(sizeof(fd))};
	const struct cmsghdr *header;

	while (recvmsg(program, &message, MSG_CMSG_CLOEXEC) < 0)
		if (errno != EINTR)
			return -1;
	header = CMSG_FIRSTHDR(&message);
	if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
		header->cmsg_len == CMSG_LEN(sizeof(fd)))
		memcpy(&fd, CMSG_DATA(header), sizeof(fd));
	return fd;
}

/* @status: of the file, whose name the program hears; @fd: -1: none */
static void say(int socket, const char *flaw, const struct stat *status, int fd)
{
	static struct wire_room room;
	static uint8_t bytes[WIRE_PACKET_MAX];
	const uint64_t name[] = {status->st_dev, status->st_ino};
	const struct wire_message message = {.type = WIRE_REPLY,
		.id = 1,
		.reply = {.code = flaw ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS,
			.values = {name, 2},
			.text = flaw}};
	size_t length;

	if (!wire_encode_in(&room, &message, bytes, sizeof(bytes), &length))
		packet_send(socket, bytes, length, &fd, fd >= 0);
}

static bool hangs_up(int socket)
{
	char byte;
	ssize_t n;

	do {
		n = read(socket, &byte, sizeof(byte));
	} while (n < 0 && errno == EINTR);
	return n <= 0;
}

/* @fds: the daemon's and the program's socket */
static void take(const int *fds)
{
	int file = receive(fds[1]);
	struct stat status = {0};
	const char *flaw = flaw_of(file, &status);

	if (!flaw)
		say(fds[0], NULL, &status, file);
	if (flaw || hangs_up(fds[0]))
		say(fds[1], flaw, &status, -1);
}

/*
 * The daemon
 */

/* The process sends a file or nothing. */
static void on_message(void *context, const struct wire_message *message, struct packet *packet)
{
	struct taking *taking = context;
	struct shared_fd *file = shared_fd_new(packet_take_fd(packet, 0));

	(void)message;
	if (file)
		file->is_programs = true;
	taking->taken(taking->context, taking->number, file);
}

/* The program hears why from the process. */
static void on_closed(void *context, const char *reason)
{
	struct taking *taking = context;

	(void)reason;
	taking->taken(taking->context, taking->number, NULL);
}

/* @own, @programs: made in this order; the process gets the second of each. Return: true if it
 * runs */
static bool start(uid_t user, const int own[2], const int programs[2])
{
	/* These ascend: the kernel gives out the lowest free number. */
	const int fds[] = {own[1], programs[1]};

	return aside_start(&processes, user, fds, 2, take);
}

static void close_pair(const int pair[2])
{
	close(pair[0]);
	close(pair[1]);
}

struct taking *taking_new(
	struct uv_loop_s *loop, uid_t user, uint64_t number, taking_fn *taken, void *context, int *ret_socket)
{
	struct taking *taking = malloc(sizeof(*taking));
	int own[2], programs[2];

	if (!taking || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, own) < 0) {
		free(taking);
		return NULL;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, programs) < 0) {
		close_pair(own);
		free(taking);
		return NULL;
	}
	*taking = (struct taking){.number = number, .taken = taken, .context = context};
	if (start(user, own, programs))
		taking->connection =
			connection_new(loop, CONNECTION_OURS, own[0], 1, on_message, on_closed, taking);
	else
		close(own[0]);
	close(own[1]);
	close(programs[1]);
	if (taking->connection) {
		*ret_socket = programs[0];
		return taking;
	}
	close(programs[0]);
	free(taking);
	return NULL;
}

struct taking *taking_free(struct taking *taking)
{
	if (!taking)
		return NULL;
	connection_shutdown(taking->connection);
	free(taking);
	return NULL;
}
