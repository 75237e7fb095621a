// Tests of client/link/identity.c: which processes are the same program.

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/link/identity.h"
#include "tests/lib/suite.h"

static char folder[] = "/tmp/frmps-identity-XXXXXX", home[4096];

static void setup(void)
{
	ck_assert_ptr_nonnull(getcwd(home, sizeof(home)));
	strcpy(folder + strlen(folder) - 6, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	ck_assert_int_eq(chdir(folder), 0);
	close(open("train.py", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	close(open("data", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	ck_assert_int_eq(symlink("train.py", "link.py"), 0);
}

static void teardown(void)
{
	unlink("train.py");
	unlink("link.py");
	unlink("data");
	ck_assert_int_eq(chdir(home), 0);
	ck_assert_int_eq(rmdir(folder), 0);
}

static const struct {
	const char *executable, *arguments[6], *name, *wanted, *file; /* in the folder */
} rows[] = {
	{"/usr/bin/python3.11", {"python3", "train.py", "data"}, "python3 train.py", "/usr/bin/python3.11 ",
		"/train.py"},
	{"/usr/bin/python3.11", {"python3", "link.py", "--rate=2"}, "python3 link.py", "/usr/bin/python3.11 ",
		"/train.py"},
	{"/usr/bin/python3.11", {"/usr/bin/python3", "-u", "-W", "ignore", "./train.py"}, "python3 train.py",
		"/usr/bin/python3.11 ", "/train.py"},
	{"/usr/bin/python3.11", {"python3", "-m", "pack.train", "data"}, "python3 -m pack.train",
		"/usr/bin/python3.11 pack.train", NULL},
	{"/usr/bin/python3.11", {"python3", "-c", "import x", "data"}, "python3 -c",
		"/usr/bin/python3.11 import x", NULL},
	{"/usr/bin/python3.11", {"python3", "gone/gone.py"}, "python3 gone.py",
		"/usr/bin/python3.11 gone/gone.py", NULL},
	{"/usr/bin/python3.11", {"python3", "-"}, "python3", "/usr/bin/python3.11", NULL},
	{"/usr/bin/python3.11", {"python3", "-c"}, "python3 -c", "/usr/bin/python3.11", NULL},
	{"/usr/bin/python3.11", {"python3"}, "python3", "/usr/bin/python3.11", NULL},
	{"/opt/jdk/bin/java", {"java", "-jar", "data"}, "java -jar data", "/opt/jdk/bin/java ", "/data"},
	/* What others work on is not what they are. */
	{"/usr/bin/pythonic", {"pythonic", "train.py"}, "pythonic", "/usr/bin/pythonic", NULL},
	{"/tmp/a.out", {"./a.out", "data"}, "a.out", "/tmp/a.out", NULL},
};

TEST_LOOP(identity, a_program_is_its_executable_and_its_script, 0, sizeof(rows) / sizeof(rows[0]))
{
	char arguments[256], wanted[512];
	struct identity identity;
	size_t bytes = 0;

	for (int i = 0; rows[_i].arguments[i]; i++) {
		strcpy(arguments + bytes, rows[_i].arguments[i]);
		bytes += strlen(rows[_i].arguments[i]) + 1;
	}
	snprintf(wanted, sizeof(wanted), "%s%s%s", rows[_i].wanted, rows[_i].file ? folder : "",
		rows[_i].file ? rows[_i].file : "");
	identity_of(rows[_i].executable, arguments, bytes, &identity);
	ck_assert_str_eq(identity.text, wanted);
	ck_assert_str_eq(identity.name, rows[_i].name);
}

TEST(identity, long_paths_differ_by_their_ends)
{
	char path[1000], arguments[1200];
	struct identity one, other;

	memset(path, 'x', sizeof(path));
	snprintf(path + 900, 100, "/python3");
	memset(arguments, 'y', sizeof(arguments));
	memcpy(arguments, "python3", 8);
	strcpy(arguments + 1000, "/one.py");
	identity_of(path, arguments, 1008, &one);
	strcpy(arguments + 1000, "/two.py");
	identity_of(path, arguments, 1008, &other);
	ck_assert_uint_eq(strlen(one.text), 255 + 1 + 255);
	ck_assert_str_ne(one.text, other.text);
	ck_assert_str_eq(one.name, "python3 one.py");
}

TEST(identity, the_calling_process_is_described)
{
	struct identity identity;

	identity_describe(&identity);
	ck_assert_ptr_nonnull(strstr(identity.text, "/client-test_identity"));
	ck_assert_str_eq(identity.name, "client-test_identity");
}

int main(void)
{
	Suite *suite = suite_create("identity");
	TCase *tests = suite_case(suite, "identity");

	tcase_add_checked_fixture(tests, setup, teardown);
	suite_add(tests, "identity");
	return suite_run(suite);
}
