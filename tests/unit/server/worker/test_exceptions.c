// The environment that makes the driver of an executor handle exceptions as for a debugger.

#include <stdlib.h>
#include <string.h>

#include "server/worker/exceptions.h"
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
	(char *)"CUDA_COREDUMP_FILE=/tmp/core", (char *)"CUDA_DEVICE_MAX_CONNECTIONS=32",
	(char *)"HOME=/root", (char *)"A=1", (char *)"B=2", (char *)"C=3", (char *)"AWS_SECRET_ACCESS_KEY=s",
	NULL};

TEST(exceptions, the_driver_handles_exceptions_and_does_not_abort)
{
	char **environment = exceptions_environment(operators);

	ck_assert_str_eq(find(environment, "CUDA_ENABLE_COREDUMP_ON_EXCEPTION"), "1");
	ck_assert_str_eq(find(environment, "CUDA_COREDUMP_FILE"), "/proc/self/fd/5");
	ck_assert_ptr_nonnull(strstr(find(environment, "CUDA_COREDUMP_GENERATION_FLAGS"), "skip_abort"));
	ck_assert_str_eq(find(environment, "PATH"), "/bin");
	ck_assert_str_eq(find(environment, "CUDA_DEVICE_MAX_CONNECTIONS"), "32");
	exceptions_environment_free(environment);
}

/* Executors run what programs bring along, or read what they sent. */
TEST(exceptions, what_is_the_services_alone_stays_there)
{
	char **environment = exceptions_environment(operators);

	ck_assert_ptr_null(find(environment, "AWS_SECRET_ACCESS_KEY"));
	ck_assert_ptr_null(find(environment, "A"));
	ck_assert_str_eq(find(environment, "HOME"), "/root");
	exceptions_environment_free(environment);
}

int main(void)
{
	Suite *suite = suite_create("exceptions");
	TCase *tests = tcase_create("exceptions");

	suite_add(tests, "exceptions");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
