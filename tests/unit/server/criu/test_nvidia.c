// The plugin for CRIU, with this process in CRIU's place: files in /dev that are named as the
// driver's are noted, and opened again. Skipped without the right to make such files.

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/criu/nvidia.h"
#include "tests/lib/folder.h"
#include "tests/lib/suite.h"

/* The plugin as CRIU 4.2 sees it. */
extern struct {
	const char *name;
	int (*init)(int stage);
	void (*exit)(int stage, int result);
	unsigned version, hook_count;
	int (*unix_sockets[2])(int fd, int id);
	int (*dump)(int fd, int id);
	int (*restore)(int id, bool *ret_again);
	void *others[11];
} CR_PLUGIN_DESC;

int criu_get_image_dir(void);

static char path[100];
static int images;

int criu_get_image_dir(void)
{
	return images;
}

static void set_up(void)
{
	folder_enter();
	images = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(images, 0);
}

static void tear_down(void)
{
	close(images);
	folder_leave();
}

static int opened(const char *name, int flags)
{
	int fd = open(name, flags | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static int restored(int id)
{
	bool again = true;
	int fd = CR_PLUGIN_DESC.restore(id, &again);

	ck_assert(!again);
	return fd;
}

static void expect_same(int fd, int other)
{
	struct stat one, two;

	ck_assert_int_eq(fstat(fd, &one), 0);
	ck_assert_int_eq(fstat(other, &two), 0);
	ck_assert_uint_eq(one.st_ino, two.st_ino);
	ck_assert_int_eq(fcntl(fd, F_GETFL), fcntl(other, F_GETFL));
}

TEST(nvidia, criu_takes_the_plugin)
{
	ck_assert_ptr_nonnull(CR_PLUGIN_DESC.name);
	ck_assert_uint_eq(CR_PLUGIN_DESC.version, 0x200);
	ck_assert_uint_eq(CR_PLUGIN_DESC.hook_count, 15);
	ck_assert_ptr_null((void *)CR_PLUGIN_DESC.unix_sockets[0]);
	ck_assert_ptr_null(CR_PLUGIN_DESC.others[10]);
}

TEST(nvidia, files_come_back_as_they_were)
{
	const int flags[] = {O_RDWR, O_RDONLY, O_RDWR | O_NONBLOCK};
	int fds[3], fd;

	for (int i = 0; i < 3; i++) {
		fds[i] = opened(path, flags[i]);
		ck_assert_int_eq(CR_PLUGIN_DESC.dump(fds[i], 100 + i), 0);
	}
	for (int i = 2; i >= 0; i--) {
		fd = restored(100 + i);
		ck_assert_int_ge(fd, 0);
		expect_same(fd, fds[i]);
		close(fd);
		close(fds[i]);
	}
	ck_assert_int_eq(restored(99), -ENOTSUP);
}

TEST(nvidia, other_files_are_left_to_criu)
{
	int fd = opened("/dev/full", O_RDWR);

	ck_assert_int_eq(CR_PLUGIN_DESC.dump(fd, 1), -ENOTSUP);
	ck_assert_int_eq(CR_PLUGIN_DESC.dump(-1, 1), -ENOTSUP);
	ck_assert_int_eq(access(CRIU_NVIDIA_LIST, F_OK), -1);
	ck_assert_int_eq(restored(1), -ENOTSUP);
	close(fd);
}

TEST(nvidia, what_is_not_there_any_more_is_an_error)
{
	int fd = opened(path, O_RDWR);
	FILE *list;

	ck_assert_int_eq(CR_PLUGIN_DESC.dump(fd, 1), 0);
	close(fd);
	list = fopen(CRIU_NVIDIA_LIST, "ae");
	ck_assert_ptr_nonnull(list);
	fputs("2 2 /dev/nvidia/none\nnot a line", list);
	fclose(list);
	ck_assert_int_eq(restored(2), -ENOENT);
	ck_assert_int_eq(restored(3), -ENOTSUP);
}

int main(void)
{
	Suite *suite = suite_create("nvidia");
	TCase *tests = suite_case(suite, "nvidia");
	int r;

	snprintf(path, sizeof(path), CRIU_NVIDIA_FILES "-frmps-test-%d", (int)getpid());
	if (mknod(path, S_IFREG | 0600, 0)) {
		fputs("skipped: no file can be made in /dev\n", stderr);
		return 77;
	}
	tcase_add_checked_fixture(tests, set_up, tear_down);
	suite_add(tests, "nvidia");
	r = suite_run(suite);
	unlink(path);
	return r;
}
