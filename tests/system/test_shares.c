// How far one user's programs reach into what other users have of a service: sessions. Programs of
// several users are children that change their user, so only root runs this (77 otherwise).

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "protocol/command.h"
#include "protocol/socket.h"
#include "protocol/wire.h"
#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define ANSWER_MS 60000
/* More than a service has. */
#define SESSIONS 500u
/* Of all sessions, those that are kept for root. */
#define KEPT 14u

static struct service service;

static void stop(void)
{
	if (service.pid)
		ck_assert_int_eq(service_stop(&service), 0);
}

/* Other users reach the socket. */
static void start(const char *configuration)
{
	ck_assert(service_start_configured(&service, configuration));
	ck_assert_int_eq(chmod(service.folder, 0711), 0);
}

static int dial(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	strncpy(address.sun_path, service.socket, sizeof(address.sun_path) - 1);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

/* Return: type of the answer */
static enum wire_type say_hello(int fd)
{
	/* All but the first, where an address sanitizer has things of its own. */
	static const uint64_t windows[7] = {~UINT64_C(1), ~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0),
		~UINT64_C(0), ~UINT64_C(0), ~UINT64_C(0)};
	static struct packet packet;
	struct wire_message answer, hello = {.type = WIRE_HELLO,
					    .hello = {.major = FRMPS_PROTOCOL_MAJOR,
						    .program = "greedy",
						    .free_windows = {windows, 7},
						    .window_base = UINT64_C(0x100000000000),
						    .window_bytes = UINT64_C(0x4000000000)}};
	struct pollfd wait = {.fd = fd, .events = POLLIN};

	ck_assert_int_eq(message_send(fd, &hello, NULL, 0), 0);
	ck_assert_int_eq(poll(&wait, 1, ANSWER_MS), 1);
	ck_assert_int_eq(message_receive(fd, &packet, &answer), 0);
	packet_close_fds(&packet);
	return answer.type;
}

struct user {
	pid_t pid;
	int ends[2]; /* the user's count comes out of the first; the user ends when something is written there */
};

/* Opens sessions until one is refused, says how many there are, and keeps them until the parent
 * writes. */
static _Noreturn void be_greedy(uid_t uid, int socket)
{
	unsigned count = 0;
	char byte;

	if (setresuid(uid, uid, uid) < 0)
		_exit(2);
	while (count < SESSIONS && say_hello(dial()) == WIRE_WELCOME)
		count++;
	if (write(socket, &count, sizeof(count)) != sizeof(count))
		_exit(3);
	_exit(read(socket, &byte, 1) == 1 ? 0 : 4);
}

static struct user start_user(uid_t uid)
{
	struct user user;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, user.ends), 0);
	user.pid = fork();
	ck_assert_int_ge(user.pid, 0);
	if (!user.pid) {
		close(user.ends[0]);
		be_greedy(uid, user.ends[1]);
	}
	close(user.ends[1]);
	return user;
}

static unsigned count_of(const struct user *user)
{
	unsigned count;

	ck_assert_int_eq(read(user->ends[0], &count, sizeof(count)), sizeof(count));
	return count;
}

static void end_user(const struct user *user)
{
	ck_assert_int_eq(write(user->ends[0], "x", 1), 1);
	ck_assert_int_eq(exit_status(user->pid), 0);
	close(user->ends[0]);
}

TEST(users, a_user_who_takes_all_it_can_get_leaves_half)
{
	struct user first, second, root;

	start("standbys = 0\nguard = off\n");
	first = start_user(1001);
	ck_assert_uint_eq(count_of(&first), (448 - KEPT) / 2);
	second = start_user(1002);
	ck_assert_uint_eq(count_of(&second), 109);
	root = start_user(0);
	ck_assert_uint_eq(count_of(&root), 448 - (448 - KEPT) / 2 - 109);
	ck_assert_int_eq(status_counter(&service, "sessions_refused"), 3);
	end_user(&first);
	end_user(&second);
	end_user(&root);
}

TEST(users, an_operator_may_let_a_user_have_256)
{
	struct user first, second;
	int root;

	start("standbys = 0\nguard = off\nclients_per_user_max = 256\n");
	first = start_user(1001);
	ck_assert_uint_eq(count_of(&first), 256);
	second = start_user(1002);
	ck_assert_uint_eq(count_of(&second), 448 - KEPT - 256);
	root = dial();
	ck_assert_int_eq(say_hello(root), WIRE_WELCOME);
	close(root);
	end_user(&first);
	end_user(&second);
}

int main(void)
{
	Suite *suite;
	TCase *tests;

	if (geteuid() != 0) {
		puts("skipped: only root has programs of several users");
		return 77;
	}
	suite = suite_create("users");
	tests = tcase_create("users");
	tcase_set_timeout(tests, 300);
	tcase_add_checked_fixture(tests, NULL, stop);
	suite_add(tests, "users");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
