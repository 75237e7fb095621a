// CRIU's command lines, what CRIU inherits, and what a failure says. A script stands in CRIU's
// place.

#include "server/tools/criu.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/criu/nvidia.h"
#include "tests/lib/folder.h"
#include "tests/lib/suite.h"

#define MANY 300

static char *folder, *usual, images[100], text[CRIU_TEXT], seen[40000];

/* @lines: of shell, behind what the script notes of itself */
static void make_criu(const char *lines)
{
	FILE *file = fopen("bin/criu", "we");

	ck_assert_ptr_nonnull(file);
	fprintf(file,
		"#!/bin/sh\n"
		"cd %s\n"
		"printf '%%s\\n' \"$@\" >arguments\n"
		"find /proc/self/fd -printf '%%f %%l\\n' >descriptors\n"
		"echo loud\n"
		"echo louder >&2\n"
		"%s\n",
		folder, lines);
	fclose(file);
	ck_assert_int_eq(chmod("bin/criu", 0700), 0);
}

static void set_up(void)
{
	char path[1000];

	folder = folder_enter();
	folder_shell("mkdir bin images");
	usual = strdup(getenv("PATH"));
	ck_assert_ptr_nonnull(usual);
	snprintf(path, sizeof(path), "%s/bin:%s", folder, usual);
	setenv("PATH", path, 1);
	snprintf(images, sizeof(images), "%s/images", folder);
}

static void tear_down(void)
{
	setenv("PATH", usual, 1);
	free(usual);
	folder_leave();
}

static const char *see(const char *name)
{
	FILE *file = fopen(name, "re");

	ck_assert_ptr_nonnull(file);
	seen[fread(seen, 1, sizeof(seen) - 1, file)] = '\0';
	fclose(file);
	return seen;
}

static bool has_line(const char *line)
{
	char whole[200];

	snprintf(whole, sizeof(whole), "\n%s\n", line);
	return strstr(seen, whole);
}

/*
 * Command lines
 */

TEST(criu, it_is_told_to_save)
{
	const struct criu_socket sockets[] = {{4711, -1}, {4712, -1}};
	char wanted[1000];

	make_criu("");
	ck_assert_int_eq(criu_dump(77, images, sockets, 2, text), 0);
	snprintf(wanted, sizeof(wanted),
		"dump\n--images-dir\n%s\n--log-file\ndump.log\n--leave-stopped\n--shell-job\n--file-locks\n"
		"--tree\n77\n--ext-unix-sk=4711\n--ext-unix-sk=4712\n",
		images);
	ck_assert_str_eq(see("arguments"), wanted);
}

TEST(criu, it_is_told_to_restore)
{
	const struct criu_socket sockets[] = {{4711, STDIN_FILENO}, {4712, STDIN_FILENO}};
	char wanted[1000];

	make_criu("");
	ck_assert_int_eq(criu_restore(images, sockets, 2, text), 0);
	snprintf(wanted, sizeof(wanted),
		"restore\n--images-dir\n%s\n--log-file\nrestore.log\n--leave-stopped\n--shell-job\n"
		"--file-locks\n--restore-detached\n--inherit-fd\nfd[0]:socket:[4711]\n"
		"--inherit-fd\nfd[0]:socket:[4712]\n",
		images);
	ck_assert_str_eq(see("arguments"), wanted);
}

static bool gets_plugin(void)
{
	const char *at = strstr(see("arguments"), "\n--libdir\n/");

	return at && !strncmp(at + strcspn(at + 11, "\n") + 11 - 5, "/criu", 5);
}

/* An older CRIU refuses the plugin, so none gets it for nothing. */
TEST(criu, it_gets_the_plugin_where_the_driver_is_open)
{
	char path[100];
	int fd;

	make_criu("");
	snprintf(path, sizeof(path), CRIU_NVIDIA_FILES "-frmps-test-%d", (int)getpid());
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_eq(criu_dump(getpid(), images, NULL, 0, text), 0);
	/* Where no file can be made in /dev, there is none. */
	ck_assert(gets_plugin() == (fd >= 0));
	if (fd >= 0)
		ck_assert_int_eq(close(fd) + unlink(path), 0);
	ck_assert_int_eq(criu_dump(getpid(), images, NULL, 0, text), 0);
	ck_assert(!gets_plugin());
	folder_shell(": >images/" CRIU_NVIDIA_LIST);
	ck_assert_int_eq(criu_restore(images, NULL, 0, text), 0);
	ck_assert(gets_plugin());
}

/* None is left out. */
TEST(criu, it_is_told_of_many_sockets)
{
	struct criu_socket sockets[MANY];
	char last[60];

	for (int i = 0; i < MANY; i++)
		sockets[i] = (struct criu_socket){.inode = 1000 + (uint64_t)i, .fd = STDIN_FILENO};
	make_criu("");
	ck_assert_int_eq(criu_dump(77, images, sockets, MANY, text), 0);
	see("arguments");
	snprintf(last, sizeof(last), "--ext-unix-sk=%d", 1000 + MANY - 1);
	ck_assert(has_line(last));
	ck_assert_int_eq(criu_restore(images, sockets, MANY, text), 0);
	see("arguments");
	snprintf(last, sizeof(last), "fd[0]:socket:[%d]", 1000 + MANY - 1);
	ck_assert(has_line(last));
}

TEST(criu, a_word_may_have_blanks)
{
	folder_shell("mkdir 'a folder'");
	make_criu("");
	ck_assert_int_eq(criu_dump(77, "a folder; exit 1", NULL, 0, text), 0);
	see("arguments");
	ck_assert(has_line("a folder; exit 1"));
}

/*
 * Descriptors
 */

/* What CRIU has, restored processes have. */
TEST(criu, it_inherits_the_sockets_alone)
{
	int file = memfd_create("canary", 0), ends[2], others[2];
	struct criu_socket sockets[2];
	char line[60];
	struct stat status;

	make_criu("");
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, others), 0);
	for (int i = 0; i < 2; i++)
		sockets[i] = (struct criu_socket){.inode = 4711, .fd = ends[i]};
	ck_assert_int_eq(criu_restore(images, sockets, 2, text), 0);
	see("descriptors");
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(fstat(ends[i], &status), 0);
		snprintf(line, sizeof(line), "%d socket:[%lu]", ends[i], status.st_ino);
		ck_assert_msg(has_line(line), "%s: %s", line, seen);
		ck_assert_int_eq(fstat(others[i], &status), 0);
		snprintf(line, sizeof(line), "socket:[%lu]", status.st_ino);
		ck_assert_ptr_null(strstr(seen, line));
		/* As it was. */
		ck_assert_int_eq(fcntl(ends[i], F_GETFD), FD_CLOEXEC);
		ck_assert_int_eq(fcntl(others[i], F_GETFD), 0);
	}
	ck_assert_ptr_null(strstr(seen, "canary"));
	ck_assert(has_line("1 /dev/null") || has_line("2 /dev/null"));
	for (int i = 0; i < 2; i++) {
		close(ends[i]);
		close(others[i]);
	}
	close(file);
}

TEST(criu, it_inherits_nothing_to_save)
{
	int file = memfd_create("canary", 0), ends[2];
	struct criu_socket sockets[1];

	make_criu("");
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	sockets[0] = (struct criu_socket){.inode = 4711, .fd = ends[0]};
	ck_assert_int_eq(criu_dump(77, images, sockets, 1, text), 0);
	see("descriptors");
	ck_assert_ptr_null(strstr(seen, "socket:"));
	ck_assert_ptr_null(strstr(seen, "canary"));
	close(ends[0]);
	close(ends[1]);
	close(file);
}

/*
 * Failures
 */

static const struct {
	const char *lines, *why;
} failures[] = {
	{"exit 1", "criu dump fails"},
	{"kill -9 $$", "criu dump fails"},
	{": >images/dump.log; exit 1", "criu dump fails"},
	{"printf '(00.01) Error (criu/a.c:1): the only one' >images/dump.log; exit 2",
		"criu dump fails: (criu/a.c:1): the only one"},
	{"cat >images/dump.log <<'END'\n"
	 "(00.000001) Version: 3 (gitid 0)\n"
	 "(00.000100) Error (criu/a.c:1): the first one\n"
	 "(00.000200) Error (criu/b.c:22): the last: it's 100% of \"them\"\n"
	 "(00.000300) Warn  (criu/c.c:3): nothing\n"
	 "(00.000400) Error (criu/cr-dump.c:1): Dump files (pid: 77) failed with -1\n"
	 "(00.000500) Error (criu/cr-dump.c:2): Dumping FAILED.\n"
	 "END\n"
	 "exit 1",
		"criu dump fails: (criu/b.c:22): the last: it's 100% of \"them\""},
	{"printf 'Error (' >images/dump.log; exit 1", "criu dump fails: ("},
	/* Of another run. */
	{"echo '(00.01) Error (criu/a.c:1): another one' >images/restore.log; exit 1", "criu dump fails"},
};

TEST_LOOP(criu, a_failure_has_its_reason, 0, sizeof(failures) / sizeof(*failures))
{
	make_criu(failures[_i].lines);
	ck_assert_int_eq(criu_dump(77, images, NULL, 0, text), -1);
	ck_assert_str_eq(text, failures[_i].why);
}

TEST(criu, a_failure_to_restore_has_its_reason)
{
	make_criu("echo '(00.01) Error (criu/a.c:1): a number is taken' >images/restore.log; exit 1");
	ck_assert_int_eq(criu_restore(images, NULL, 0, text), -1);
	ck_assert_str_eq(text, "criu restore fails: (criu/a.c:1): a number is taken");
}

TEST(criu, a_long_reason_is_cut_off)
{
	make_criu("(printf '(00.01) Error (criu/a.c:1): '; head -c 100000 /dev/zero | tr '\\0' x) "
		  ">images/dump.log; exit 1");
	ck_assert_int_eq(criu_dump(77, images, NULL, 0, text), -1);
	ck_assert_ptr_nonnull(strstr(text, "(criu/a.c:1): xxxx"));
	ck_assert_uint_lt(strlen(text), CRIU_TEXT - 1);
}

TEST(criu, there_may_be_none)
{
	setenv("PATH", images, 1);
	ck_assert_int_eq(criu_dump(77, images, NULL, 0, text), -1);
	ck_assert_ptr_nonnull(strstr(text, "no criu in PATH"));
	ck_assert_int_eq(criu_restore(images, NULL, 0, text), -1);
	ck_assert_ptr_nonnull(strstr(text, "no criu in PATH"));
}

int main(void)
{
	Suite *suite = suite_create("criu");
	TCase *tests = suite_case(suite, "criu");

	tcase_add_checked_fixture(tests, set_up, tear_down);
	suite_add(tests, "criu");
	return suite_run(suite);
}
