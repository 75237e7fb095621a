// The listening socket: made, removed, replaced when it is nobody's any more; what it does without
// descriptors.

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/log.h"
#include "server/door/listener.h"
#include "server/door/visitor.h"
#include "tests/unit/server/session/fixture.h"

static char folder[] = "/tmp/frmps-listen-XXXXXX";

static void make_path(char *path, size_t size)
{
	strcpy(folder + strlen(folder) - 6, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(path, size, "%s/sub/frmps.sock", folder);
}

static void remove_path(void)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/sub", folder);
	ck_assert_int_eq(rmdir(path), 0);
	ck_assert_int_eq(rmdir(folder), 0);
}

TEST(listener, socket_is_made_and_removed)
{
	struct listener *listener, *second;
	struct stat status;
	char path[96], text[256];

	boot();
	make_path(path, sizeof(path));
	ck_assert_int_eq(listener_new(&fake->daemon, path, &listener, text, sizeof(text)), 0);
	ck_assert_int_eq(stat(path, &status), 0);
	ck_assert_int_eq(status.st_mode & 0777, geteuid() == 0 ? 0666 : 0600);
	ck_assert_int_eq(listener_new(&fake->daemon, path, &second, text, sizeof(text)), LISTENER_E_PATH);
	ck_assert_ptr_nonnull(strstr(text, "in use"));
	listener_free(listener);
	ck_assert_int_ne(stat(path, &status), 0);
	remove_path();
	end();
}

/* Somebody has removed both, and another service has begun. */
TEST(listener, what_is_another_services_is_not_removed)
{
	struct listener *listener, *second;
	char path[96], lock[128], text[256];
	struct stat status;

	boot();
	make_path(path, sizeof(path));
	snprintf(lock, sizeof(lock), "%s.lock", path);
	ck_assert_int_eq(listener_new(&fake->daemon, path, &listener, text, sizeof(text)), 0);
	ck_assert_int_eq(unlink(path) + unlink(lock), 0);
	ck_assert_int_eq(listener_new(&fake->daemon, path, &second, text, sizeof(text)), 0);
	listener_free(listener);
	ck_assert_int_eq(stat(path, &status), 0);
	ck_assert_int_eq(stat(lock, &status), 0);
	listener_free(second);
	ck_assert_int_ne(stat(path, &status), 0);
	ck_assert_int_ne(stat(lock, &status), 0);
	remove_path();
	end();
}

TEST(listener, stale_socket_is_replaced_and_a_live_one_is_not)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct listener *listener;
	char text[256];
	int stale = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	boot();
	make_path(address.sun_path, sizeof(address.sun_path));
	*strrchr(address.sun_path, '/') = '\0';
	ck_assert_int_eq(mkdir(address.sun_path, 0755), 0);
	strcat(address.sun_path, "/frmps.sock");
	ck_assert_int_eq(bind(stale, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(stale, 1), 0);
	ck_assert_int_eq(listener_new(&fake->daemon, address.sun_path, &listener, text, sizeof(text)),
		LISTENER_E_PATH);
	ck_assert_ptr_nonnull(strstr(text, "socket path in use"));
	close(stale);
	ck_assert_int_eq(listener_new(&fake->daemon, address.sun_path, &listener, text, sizeof(text)), 0);
	listener_free(listener);
	remove_path();
	end();
}

TEST(listener, socket_path_errors_have_a_text)
{
	struct listener *listener;
	char text[256], path[300];

	boot();
	ck_assert_int_eq(listener_new(&fake->daemon, "/nonexistent/a/b.sock", &listener, text, sizeof(text)),
		LISTENER_E_PATH);
	ck_assert_ptr_nonnull(strstr(text, "/nonexistent/a/b.sock"));
	memset(path, 'x', sizeof(path));
	path[0] = '/';
	path[sizeof(path) - 1] = '\0';
	ck_assert_int_eq(listener_new(&fake->daemon, path, &listener, text, sizeof(text)), LISTENER_E_PATH);
	end();
}

/* A service that listens, and a client of it. */
static struct listener *the_listener;
static int log_ends[2];

static int dial(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/sub/frmps.sock", folder);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

static int open_to_all(void)
{
	char path[96], text[256];

	boot();
	make_path(path, sizeof(path));
	ck_assert_int_eq(listener_new(&fake->daemon, path, &the_listener, text, sizeof(text)), 0);
	ck_assert_int_eq(pipe2(log_ends, O_CLOEXEC | O_NONBLOCK), 0);
	log_set_descriptor(log_ends[1]);
	return dial();
}

static void close_to_all(int client_socket)
{
	log_set_descriptor(STDERR_FILENO);
	close(log_ends[0]);
	close(log_ends[1]);
	close(client_socket);
	fake_turn(fake);
	ck_assert_uint_eq(visitor_count(&fake->daemon, geteuid()), 0);
	listener_free(the_listener);
	remove_path();
	end();
}

static unsigned count_lines(void)
{
	unsigned count = 0;
	char bytes[4096];
	ssize_t n;

	while ((n = read(log_ends[0], bytes, sizeof(bytes))) > 0)
		for (ssize_t i = 0; i < n; i++)
			count += bytes[i] == '\n';
	return count;
}

/* Return: how many there may be otherwise */
static rlim_t leave_descriptors(rlim_t count)
{
	struct rlimit files;
	rlim_t before;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
	before = files.rlim_cur;
	files.rlim_cur = count;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
	return before;
}

/* Whether the loop would go on at once. */
static bool has_work(void)
{
	struct pollfd p = {.fd = uv_backend_fd(&fake->loop), .events = POLLIN};

	fake_turn(fake);
	return poll(&p, 1, 0) > 0;
}

TEST(listener, without_descriptors_a_client_is_turned_away)
{
	int client_socket = open_to_all(), first = dup(log_ends[0]);
	rlim_t before;

	/* All that are open, the spare one included, are below. */
	close(first);
	before = leave_descriptors((rlim_t)first);
	fake_expect_hangup(fake, client_socket);
	ck_assert(!has_work());
	leave_descriptors(before);
	ck_assert_uint_eq(count_lines(), 1);
	close_to_all(client_socket);
}

TEST(listener, without_a_spare_descriptor_clients_wait)
{
	int client_socket = open_to_all();
	rlim_t before = leave_descriptors(3);

	ck_assert(!has_work());
	ck_assert_uint_eq(count_lines(), 1);
	fake_expect_nothing(fake, client_socket);
	leave_descriptors(before);
	FAKE_RUN_WHILE(fake, !visitor_count(&fake->daemon, geteuid()));
	close_to_all(client_socket);
}

/* _i: with its lock and its directory */
TEST_LOOP(listener, a_socket_that_is_removed_is_made_again, 0, 2)
{
	int before = open_to_all(), client_socket;
	char path[128], lock[160], directory[96];
	struct stat status;

	snprintf(directory, sizeof(directory), "%s/sub", folder);
	snprintf(path, sizeof(path), "%s/frmps.sock", directory);
	snprintf(lock, sizeof(lock), "%s.lock", path);
	fake_turn(fake);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(unlink(path), 0);
		if (_i) {
			ck_assert_int_eq(unlink(lock), 0);
			ck_assert_int_eq(rmdir(directory), 0);
		}
		FAKE_SKIP_WHILE(fake, lstat(path, &status) < 0);
	}
	client_socket = dial();
	fake_turn(fake);
	ck_assert_uint_eq(visitor_count(&fake->daemon, geteuid()), 2);
	ck_assert_int_eq(stat(lock, &status), 0);
	/* Nobody is asked to make way for it. */
	fake_expect_nothing(fake, before);
	close(before);
	close_to_all(client_socket);
}

/* Somebody has removed its directory, and the one that this was in. */
TEST(listener, a_socket_that_cannot_be_made_again_is_said_once)
{
	int client_socket = open_to_all();
	char path[128], lock[160], directory[96];
	struct stat status;
	uint64_t skipped;

	snprintf(directory, sizeof(directory), "%s/sub", folder);
	snprintf(path, sizeof(path), "%s/frmps.sock", directory);
	snprintf(lock, sizeof(lock), "%s.lock", path);
	fake_turn(fake);
	count_lines();
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(unlink(path) + unlink(lock), 0);
		remove_path();
		skipped = fake->skipped_ms;
		FAKE_SKIP_WHILE(fake, fake->skipped_ms < skipped + 5000);
		ck_assert_uint_eq(count_lines(), 1);
		ck_assert_int_eq(mkdir(folder, 0700), 0);
		FAKE_SKIP_WHILE(fake, lstat(path, &status) < 0);
		count_lines();
	}
	close_to_all(client_socket);
}

int main(void)
{
	Suite *suite = suite_create("listener");
	TCase *tests = suite_case(suite, "listener");

	fake_prepare();
	suite_add(tests, "listener");
	return suite_run(suite);
}
