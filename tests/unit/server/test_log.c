// Lines of the log, as they arrive on standard error.

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/log.h"
#include "tests/lib/suite.h"

static int ends[2], kept;

static void setup(void)
{
	kept = dup(STDERR_FILENO);
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
	ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
	unsetenv("JOURNAL_STREAM");
}

static void teardown(void)
{
	dup2(kept, STDERR_FILENO);
	close(kept);
	close(ends[0]);
	close(ends[1]);
}

static const char *written(void)
{
	static char text[8192];
	ssize_t length = read(ends[0], text, sizeof(text) - 1);

	text[length < 0 ? 0 : length] = '\0';
	return text;
}

static unsigned count_lines(const char *text)
{
	unsigned count = 0;

	for (; *text; text++)
		count += *text == '\n';
	return count;
}

START_TEST(what_is_logged_cannot_forge_a_line)
{
	const char *text;

	log_init(LOG_LEVEL_INFO, "frmps");
	log_warning("fault in kernel %s", "k\n<3>frmps: all is lost\r\x1b[2J\x7f, \xc3\xa4");
	text = written();
	ck_assert_ptr_nonnull(strstr(text, "kernel k?<3>frmps: all is lost??[2J?, \xc3\xa4\n"));
	ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1);
}
END_TEST

/* Those of ISO 6429 that are a byte or, in UTF-8, two: \x9b is what ESC [ is. */
START_TEST(what_is_no_text_is_cleaned)
{
	static const char *const rows[][2] = {
		{"a\xc2\x9bm\xc2\x9d\xc2\x85", "a??m????"},
		{"\x9bm\x80\x9f\xa0\xff", "?m????"},
		{"\xc2\xa0\xc3\x9b\xe2\x82\xac\xf0\x9f\x98\x80",
			"\xc2\xa0\xc3\x9b\xe2\x82\xac\xf0\x9f\x98\x80"},
		{"\xc3\x9b\x9b", "\xc3\x9b?"},
		/* Longer than need be. */
		{"\xe0\x82\x9b\xf0\x80\x82\x9b\xc0\x9b", "?????????"},
		/* Cut short. */
		{"\xe2\x82\xf0\x9f\x98", "?????"},
		{"\xe2", "?"},
		{"\xe2"
		 "a",
			"?a"},
		/* Surrogates, and beyond the last character. */
		{"\xed\xa0\x80\xed\x9f\xbf\xf4\x90\x80\x80", "???\xed\x9f\xbf????"},
		/* The direction of writing, a separator of lines. */
		{"a\xe2\x80\xae"
		 "b\xe2\x81\xa6"
		 "c\xe2\x80\xa8",
			"a???b???c???"},
	};
	char text[32];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		json_t *json;

		strcpy(text, rows[i][0]);
		log_clean(text);
		ck_assert_msg(!strcmp(text, rows[i][1]), "row %zu: %s", i, text);
		json = json_string(text);
		ck_assert_msg(json != NULL, "row %zu is not fit for JSON", i);
		json_decref(json);
	}
}
END_TEST

START_TEST(a_long_line_is_cut)
{
	char long_text[4000];
	const char *text;

	memset(long_text, 'x', sizeof(long_text) - 1);
	long_text[sizeof(long_text) - 1] = '\0';
	log_init(LOG_LEVEL_INFO, "frmps");
	log_error("%s", long_text);
	text = written();
	ck_assert_uint_lt(strlen(text), sizeof(long_text));
	ck_assert_str_eq(text + strlen(text) - 2, "x\n");
	log_debug("not so urgent");
	ck_assert_str_eq(written(), "");
}
END_TEST

/* Programs of a desktop session inherit the variable of a service that they are not. */
START_TEST(the_journal_is_known_by_its_file)
{
	struct stat status;
	char stream[64];

	setenv("JOURNAL_STREAM", "1:2", 1);
	log_init(LOG_LEVEL_INFO, "frmps");
	log_info("for a terminal");
	ck_assert_ptr_null(strstr(written(), "<6>"));
	ck_assert_int_eq(fstat(STDERR_FILENO, &status), 0);
	snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)status.st_dev,
		(unsigned long long)status.st_ino);
	setenv("JOURNAL_STREAM", stream, 1);
	log_init(LOG_LEVEL_INFO, "frmps");
	log_info("for the journal");
	ck_assert_str_eq(written(), "<6>frmps: for the journal\n");
}
END_TEST

START_TEST(a_process_has_bounded_lines)
{
	log_init(LOG_LEVEL_DEBUG, "frmps");
	log_limit(5);
	/* A minute may end meanwhile. */
	for (int i = 0; i < 30; i++)
		log_error("flood");
	ck_assert_uint_le(count_lines(written()), 2 * 5 + 1);
	log_debug("for who looks for something");
	ck_assert_uint_eq(count_lines(written()), 1);
	log_limit(0);
	log_error("the end");
	ck_assert_uint_eq(count_lines(written()), 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("log");
	TCase *all = suite_case(suite, "log");

	tcase_add_checked_fixture(all, setup, teardown);
	tcase_add_test(all, what_is_logged_cannot_forge_a_line);
	tcase_add_test(all, what_is_no_text_is_cleaned);
	tcase_add_test(all, a_long_line_is_cut);
	tcase_add_test(all, a_process_has_bounded_lines);
	tcase_add_test(all, the_journal_is_known_by_its_file);
	return suite_run(suite);
}
