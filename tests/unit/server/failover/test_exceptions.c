// The environment that decides what an executor does after a fault.

#include <stdlib.h>
#include <string.h>

#include "server/failover/exceptions.h"
#include "tests/lib/suite.h"

static const char *find(char **environment, const char *name)
{
	const char *found = NULL;
	size_t length = strlen(name);

	for (; *environment; environment++) {
		if (strncmp(*environment, name, length) || (*environment)[length] != '=')
			continue;
		ck_assert_ptr_null(found); /* once */
		found = *environment + length + 1;
	}
	return found;
}

static char *operators[] = {(char *)"PATH=/bin", (char *)"CUDA_ENABLE_COREDUMP_ON_EXCEPTION=0",
	(char *)"CUDA_COREDUMP_FILE=/tmp/core", (char *)"FRMPS_ON_FAULT=nonsense",
	(char *)"CUDA_DEVICE_MAX_CONNECTIONS=32", NULL};

START_TEST(default_dumps_into_the_daemons_file_and_does_not_abort)
{
	char **environment = exceptions_environment(operators, true);

	ck_assert_str_eq(find(environment, "FRMPS_ON_FAULT"), "default");
	ck_assert_str_eq(find(environment, "CUDA_ENABLE_COREDUMP_ON_EXCEPTION"), "1");
	ck_assert_str_eq(find(environment, "CUDA_COREDUMP_FILE"), "/proc/self/fd/5");
	ck_assert_ptr_nonnull(strstr(find(environment, "CUDA_COREDUMP_GENERATION_FLAGS"), "skip_abort"));
	ck_assert_str_eq(find(environment, "PATH"), "/bin");
	ck_assert_str_eq(find(environment, "CUDA_DEVICE_MAX_CONNECTIONS"), "32");
	ck_assert_ptr_nonnull(strstr(find(environment, "GLIBC_TUNABLES"), "glibc.malloc.hugetlb=1"));
	exceptions_environment_free(environment);
}
END_TEST

START_TEST(what_the_operator_says_about_memory_counts)
{
	char *said[] = {(char *)"GLIBC_TUNABLES=glibc.malloc.check=3", NULL};
	char **environment = exceptions_environment(said, true);

	ck_assert_str_eq(find(environment, "GLIBC_TUNABLES"), "glibc.malloc.check=3");
	ck_assert_str_eq(find(environment, "FRMPS_ON_FAULT"), "default");
	exceptions_environment_free(environment);
}
END_TEST

START_TEST(fast_knows_of_faults_and_dumps_likewise)
{
	char **environment = exceptions_environment(operators, false);

	ck_assert_str_eq(find(environment, "FRMPS_ON_FAULT"), "fast");
	ck_assert_str_eq(find(environment, "CUDA_ENABLE_COREDUMP_ON_EXCEPTION"), "1");
	ck_assert_str_eq(find(environment, "CUDA_COREDUMP_FILE"), "/proc/self/fd/5");
	ck_assert_str_eq(find(environment, "PATH"), "/bin");
	exceptions_environment_free(environment);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("exceptions");
	TCase *tests = tcase_create("exceptions");

	tcase_add_test(tests, default_dumps_into_the_daemons_file_and_does_not_abort);
	tcase_add_test(tests, what_the_operator_says_about_memory_counts);
	tcase_add_test(tests, fast_knows_of_faults_and_dumps_likewise);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
