// Proof that the frame of all other tests can fail: inner suites that must not pass are run, and
// main() succeeds only if none of them did.

#include "tests/lib/suite.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/fds.h"

START_TEST(passes)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(close(fd), 0);
}
END_TEST

START_TEST(leaks)
{
	ck_assert_int_ge(open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
}
END_TEST

#ifdef __SANITIZE_ADDRESS__
START_TEST(leaks_memory)
{
	ck_assert_ptr_nonnull(malloc(100));
}
END_TEST
#endif

START_TEST(closes_too_much)
{
	close(STDIN_FILENO);
}
END_TEST

START_TEST(fails)
{
	ck_assert_int_eq(1, 2);
}
END_TEST

START_TEST(crashes)
{
	abort();
}
END_TEST

/* Runs one test in a suite of its own. */
static int run(const TTest *test)
{
	Suite *suite = suite_create("inner");
	TCase *tcase = suite_case(suite, "inner");

	if (test)
		tcase_add_test(tcase, test);
	return suite_run(suite);
}

static int expect(const char *what, int wanted, int found)
{
	if (wanted == found)
		return 0;
	fprintf(stderr, "%s: exit status %d instead of %d\n", what, found, wanted);
	return 1;
}

/* Descriptors are counted and described. */
static int look(void)
{
	unsigned before = fds_count();
	char text[4096];
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	fds_describe(text, sizeof(text));
	int bad = fds_count() != before + 1 || !strstr(text, "/dev/null");
	fds_describe(text, 4);
	bad |= strlen(text) > 3;
	close(fd);
	return bad;
}

int main(void)
{
	int bad = 0;

	/* A closed descriptor 0 would hide closes_too_much. */
	if (open("/dev/null", O_RDONLY) < 0)
		return EXIT_FAILURE;
	setenv("CK_VERBOSITY", "silent", 1);
	setenv("CK_FORK", "yes", 1);
	bad += expect("a good test", EXIT_SUCCESS, run(passes));
	bad += expect("a leak", EXIT_FAILURE, run(leaks));
#ifdef __SANITIZE_ADDRESS__
	bad += expect("a leak of memory", EXIT_FAILURE, run(leaks_memory));
#endif
	bad += expect("a descriptor of somebody else", EXIT_FAILURE, run(closes_too_much));
	bad += expect("a failing test", EXIT_FAILURE, run(fails));
	bad += expect("a crash", EXIT_FAILURE, run(crashes));
	bad += expect("no test at all", EXIT_FAILURE, run(NULL));
	bad += expect("the descriptor count", 0, look());
	return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}
