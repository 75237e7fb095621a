// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// The listening socket: made, removed, replaced when it is nobody's any more.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/session/listener.h"
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

START_TEST(socket_is_made_and_removed)
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
END_TEST

START_TEST(stale_socket_is_replaced_and_a_live_one_is_not)
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
END_TEST

START_TEST(socket_path_errors_have_a_text)
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
END_TEST

int main(void)
{
	Suite *suite = suite_create("listener");
	TCase *tests = suite_case(suite, "listener");

	fake_prepare();
	tcase_add_test(tests, socket_is_made_and_removed);
	tcase_add_test(tests, stale_socket_is_replaced_and_a_live_one_is_not);
	tcase_add_test(tests, socket_path_errors_have_a_text);
	return suite_run(suite);
}
