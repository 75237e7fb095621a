// Where programs, tools and a service that is started as stock MPS look for each other.

#include "protocol/place.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/folder.h"
#include "tests/lib/suite.h"

static char root[64], folders[2][96], path[PLACE_BYTES], wanted[PLACE_BYTES];
static const char *const places[2] = {folders[0], folders[1]};

static void touch(const char *folder)
{
	int fd;

	snprintf(wanted, sizeof(wanted), "%s/" PLACE_NAME, folder);
	fd = open(wanted, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	close(fd);
}

static void set_up(void)
{
	snprintf(root, sizeof(root), "%s", folder_enter());
	snprintf(folders[0], sizeof(folders[0]), "%s/run", root);
	snprintf(folders[1], sizeof(folders[1]), "%s/tmp", root);
	unsetenv("FRMPS_SOCKET");
	unsetenv("CUDA_MPS_PIPE_DIRECTORY");
	unsetenv("XDG_RUNTIME_DIR");
}

static void tear_down(void)
{
	ck_assert_int_eq(chmod(root, 0755), 0);
	folder_leave();
}

TEST(place, a_variable_names_the_only_place)
{
	touch(root);
	setenv("XDG_RUNTIME_DIR", root, 1);
	setenv("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent/mps", 1);
	ck_assert_int_eq(place_find_in(places, path), 0);
	ck_assert_str_eq(path, "/nonexistent/mps/frmps.sock");
	place_begin_in(places, path);
	ck_assert_str_eq(path, "/nonexistent/mps/frmps.sock");
	setenv("FRMPS_SOCKET", "/nonexistent/own.sock", 1);
	ck_assert_int_eq(place_find_in(places, path), 0);
	ck_assert_str_eq(path, "/nonexistent/own.sock");
	place_begin_in(places, path);
	ck_assert_str_eq(path, "/nonexistent/own.sock");
}

TEST(place, an_empty_variable_is_none)
{
	touch(root);
	setenv("FRMPS_SOCKET", "", 1);
	setenv("CUDA_MPS_PIPE_DIRECTORY", "", 1);
	setenv("XDG_RUNTIME_DIR", root, 1);
	ck_assert_int_eq(place_find_in(places, path), 0);
	ck_assert_str_eq(path, access(PLACE_SYSTEM, F_OK) ? wanted : PLACE_SYSTEM);
}

TEST(place, a_named_folder_is_nobody_elses)
{
	char link[128];

	touch(root);
	setenv("CUDA_MPS_PIPE_DIRECTORY", root, 1);
	ck_assert_int_eq(place_find_in(places, path), 0);
	ck_assert_str_eq(path, wanted);
	ck_assert_int_eq(chmod(root, 01777), 0);
	ck_assert_int_eq(place_find_in(places, path), PLACE_E_UNTRUSTED);
	ck_assert_str_eq(path, wanted);
	ck_assert_int_eq(chmod(root, 0755), 0);
	/* The owner of a link can lead it elsewhere as soon as it was looked at. */
	snprintf(link, sizeof(link), "%s/link", root);
	ck_assert_int_eq(symlink(root, link), 0);
	for (unsigned slashes = 0; slashes < 3; slashes++) {
		setenv("CUDA_MPS_PIPE_DIRECTORY", link, 1);
		ck_assert_int_eq(place_find_in(places, path), PLACE_E_UNTRUSTED);
		strcat(link, "/");
	}
	/* Who names the socket itself means it. */
	setenv("FRMPS_SOCKET", wanted, 1);
	ck_assert_int_eq(place_find_in(places, path), 0);
}

TEST(place, folders_of_stock_mps_come_last)
{
	if (!access(PLACE_SYSTEM, F_OK))
		return; /* a service of the machine comes before all of them */
	ck_assert_int_eq(place_find_in(places, path), 0);
	ck_assert_str_eq(path, PLACE_SYSTEM);
	ck_assert_int_eq(mkdir(folders[1], 0755), 0);
	touch(folders[1]);
	ck_assert_int_eq(place_find_in(places, path), 0);
	ck_assert_str_eq(path, wanted);
	ck_assert_int_eq(mkdir(folders[0], 0777), 0);
	touch(folders[0]);
	ck_assert_int_eq(place_find_in(places, path), 0);
	ck_assert_str_eq(path, wanted);
	/* What a stranger can have made does not hide what he cannot. */
	ck_assert_int_eq(chmod(folders[0], 0777), 0);
	touch(folders[1]);
	ck_assert_int_eq(place_find_in(places, path), 0);
	ck_assert_str_eq(path, wanted);
	touch(root);
	setenv("XDG_RUNTIME_DIR", root, 1);
	ck_assert_int_eq(place_find_in(places, path), 0);
	ck_assert_str_eq(path, wanted);
}

TEST(place, a_service_begins_where_stock_mps_would)
{
	snprintf(wanted, sizeof(wanted), "%s/" PLACE_NAME, folders[geteuid() ? 1 : 0]);
	place_begin_in(places, path);
	ck_assert_str_eq(path, wanted);
	ck_assert_int_eq(mkdir(folders[1], 0755), 0);
	touch(folders[1]);
	place_begin_in(places, path);
	ck_assert_str_eq(path, wanted);
	ck_assert_int_eq(mkdir(folders[0], 0755), 0);
	ck_assert_int_eq(chmod(folders[0], 0777), 0);
	place_begin_in(places, path);
	ck_assert_str_eq(path, wanted);
	ck_assert_int_eq(chmod(folders[0], 0755), 0);
	touch(folders[0]);
	place_begin_in(places, path);
	ck_assert_str_eq(path, wanted);
}

/* What does not fit is no shorter address of somebody else's. */
TEST(place, a_long_name_stays_too_long)
{
	char name[2 * PLACE_BYTES];

	memset(name, 'x', sizeof(name) - 1);
	name[0] = '/';
	name[sizeof(name) - 1] = '\0';
	setenv("FRMPS_SOCKET", name, 1);
	ck_assert_int_eq(place_find_in(places, path), 0);
	ck_assert_uint_eq(strlen(path), PLACE_BYTES - 1);
}

int main(void)
{
	Suite *suite = suite_create("place");
	TCase *cases = tcase_create("place");

	tcase_add_checked_fixture(cases, set_up, tear_down);
	suite_add(cases, "place");
	suite_add_tcase(suite, cases);
	return suite_run(suite);
}
