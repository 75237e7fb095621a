// What the service manager hears, and from whom.

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/loop/notify.h"
#include "tests/lib/suite.h"

#define CAPABILITY_ADMIN 21

/* Whether this process may speak in another one's name. */
static bool is_privileged(void)
{
	unsigned long long capabilities = 0;
	FILE *file = fopen("/proc/self/status", "re");
	char line[128];

	while (file && fgets(line, sizeof(line), file))
		sscanf(line, "CapEff: %llx", &capabilities);
	if (file)
		fclose(file);
	return capabilities >> CAPABILITY_ADMIN & 1;
}

/* A manager whose socket has an abstract name. */
static int listen_as_manager(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), on = 1;
	char name[64];
	int length = snprintf(name, sizeof(name), "@frmps-test-%d", (int)getpid());

	memcpy(address.sun_path + 1, name + 1, (size_t)length - 1);
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address,
				 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)length)),
		0);
	setenv("NOTIFY_SOCKET", name, 1);
	return fd;
}

/* Return: who sent it, as the kernel says */
static pid_t hear(int fd, char text[64])
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(struct ucred))];
	} control;
	struct iovec bytes = {.iov_base = text, .iov_len = 63};
	struct msghdr message = {.msg_iov = &bytes,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control)};
	ssize_t length = recvmsg(fd, &message, 0);
	const struct cmsghdr *c = CMSG_FIRSTHDR(&message);
	struct ucred sender;

	ck_assert_int_gt(length, 0);
	ck_assert(c && c->cmsg_type == SCM_CREDENTIALS);
	memcpy(&sender, CMSG_DATA(c), sizeof(sender));
	text[length] = '\0';
	return sender.pid;
}

/* The unit lets nobody but the main process speak. */
TEST(notify, daemon_speaks_in_the_name_of_its_parent)
{
	int fd = listen_as_manager(), status;
	char text[64];
	pid_t child = fork(), sender;

	if (!child)
		_exit(notify_manager("READY=1") != 0);
	sender = hear(fd, text);
	ck_assert_str_eq(text, "READY=1");
	ck_assert_int_eq(sender, is_privileged() ? getpid() : child);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	close(fd);
}

TEST(notify, without_a_manager_nobody_is_told)
{
	unsetenv("NOTIFY_SOCKET");
	ck_assert_int_eq(notify_manager("READY=1"), 0);
}

int main(void)
{
	Suite *suite = suite_create("notify");
	TCase *notify = suite_case(suite, "notify");

	suite_add(notify, "notify");
	return suite_run(suite);
}
