// What the shim keeps of its messages for the program: client/state/logbook.h through the calls.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/entry/api.h"
#include "client/state/log.h"
#include "client/state/logbook.h"
#include "tests/lib/suite.h"

static char heard[256];
static int calls;

static void listen(void *data, CUlogLevel level, char *message, size_t length)
{
	ck_assert_ptr_eq(data, heard);
	ck_assert_int_eq(level, CU_LOG_LEVEL_ERROR);
	ck_assert_uint_eq(length, strlen(message));
	snprintf(heard, sizeof(heard), "%s", message);
	calls++;
}

TEST(logbook, callbacks_hear_errors_and_nothing_else)
{
	CUlogsCallbackHandle handle;

	setenv("FRMPS_LOG", "off", 1); /* it speaks of standard error */
	ck_assert_int_eq(cuLogsRegisterCallback(NULL, heard, &handle), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuLogsRegisterCallback(listen, heard, &handle), CUDA_SUCCESS);
	client_log(CLIENT_LOG_ERROR, "number %d", 5);
	ck_assert_str_eq(heard, "number 5");
	client_log(CLIENT_LOG_INFO, "not this");
	ck_assert_int_eq(calls, 1);
	ck_assert_int_eq(cuLogsUnregisterCallback(handle), CUDA_SUCCESS);
	ck_assert_int_eq(cuLogsUnregisterCallback(handle), CUDA_ERROR_INVALID_VALUE);
	client_log(CLIENT_LOG_ERROR, "nobody hears");
	ck_assert_int_eq(calls, 1);
}

/* The text of each line, whatever stands before it. */
static void expect_lines(const char *text, int from, int to)
{
	char word[32];

	for (int i = from; i < to; i++) {
		const char *end = strchr(text, '\n');

		ck_assert_ptr_nonnull(end);
		snprintf(word, sizeof(word), "[CUDA][E] line %d\n", i);
		ck_assert_ptr_nonnull(strstr(text, word));
		ck_assert(strstr(text, word) < end);
		text = end + 1;
	}
	ck_assert_str_eq(text, "");
}

TEST(logbook, dumps_go_on_where_the_last_one_ended)
{
	static char text[LOGBOOK_BYTES];
	CUlogIterator at, behind;
	size_t size = sizeof(text);

	setenv("FRMPS_LOG", "off", 1);
	ck_assert_int_eq(cuLogsCurrent(&at, 0), CUDA_SUCCESS);
	ck_assert_int_eq(cuLogsDumpToMemory(&at, text, &size, 0), CUDA_SUCCESS);
	ck_assert_uint_eq(size, 0);
	for (int i = 0; i < 3; i++)
		client_log(CLIENT_LOG_ERROR, "line %d", i);
	size = 10; /* not even one */
	ck_assert_int_eq(cuLogsDumpToMemory(&at, text, &size, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(size, 0);
	size = sizeof(text);
	ck_assert_int_eq(cuLogsDumpToMemory(&at, text, &size, 0), CUDA_SUCCESS);
	ck_assert_uint_eq(size, strlen(text));
	expect_lines(text, 0, 3);
	ck_assert_int_eq(cuLogsCurrent(&behind, 0), CUDA_SUCCESS);
	ck_assert_uint_eq(at, behind);
	client_log(CLIENT_LOG_ERROR, "line 3");
	size = sizeof(text);
	ck_assert_int_eq(cuLogsDumpToMemory(&at, text, &size, 0), CUDA_SUCCESS);
	expect_lines(text, 3, 4);
}

/* More than is kept, and less room than for what is: the latest, and a line that says so. */
TEST(logbook, the_latest_are_kept)
{
	static char text[LOGBOOK_BYTES];
	char path[] = "/tmp/frmps-logbook-XXXXXX";
	size_t size = 200;
	FILE *file;

	setenv("FRMPS_LOG", "off", 1);
	for (int i = 0; i < 1000; i++)
		client_log(CLIENT_LOG_ERROR, "line %d", i);
	ck_assert_int_eq(cuLogsDumpToMemory(NULL, text, &size, 0), CUDA_SUCCESS);
	ck_assert_ptr_nonnull(strstr(text, "left out\n"));
	ck_assert_uint_lt(size, 200);
	ck_assert_ptr_nonnull(strstr(text, "line 999\n"));
	size = sizeof(text);
	ck_assert_int_eq(cuLogsDumpToMemory(NULL, text, &size, 0), CUDA_SUCCESS);
	expect_lines(strchr(text, '\n') + 1, 1000 - 48, 1000);
	close(mkstemp(path));
	ck_assert_int_eq(cuLogsDumpToFile(NULL, path, 0), CUDA_SUCCESS);
	file = fopen(path, "r");
	ck_assert_uint_eq(fread(text, 1, sizeof(text), file), size);
	fclose(file);
	unlink(path);
	ck_assert_int_eq(cuLogsDumpToFile(NULL, "/nonexistent/file", 0), CUDA_ERROR_INVALID_VALUE);
}

int main(void)
{
	Suite *suite = suite_create("logbook");
	TCase *tests = suite_case(suite, "logbook");

	suite_add(tests, "logbook");
	return suite_run(suite);
}
