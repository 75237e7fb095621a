// Numbers in the environment.

#include "server/environment.h"

#include <stdlib.h>

#include "tests/lib/suite.h"

static const struct {
	const char *text;
	uint64_t value;
} rows[] = {
	{NULL, 7},
	{"", 7},
	{"1", 1},
	{"32", 32},
	{"0", 7},
	{"33", 7},
	{"-1", 7},
	{" 3", 7},
	{"3x", 7},
	{"99999999999999999999", 7},
};

START_TEST(what_is_no_number_of_the_range_is_ignored)
{
	if (rows[_i].text)
		setenv("FRMPS_TEST_NUMBER", rows[_i].text, 1);
	ck_assert_uint_eq(environment_number("FRMPS_TEST_NUMBER", 7, 1, 32), rows[_i].value);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("environment");
	TCase *tests = suite_case(suite, "environment");

	tcase_add_loop_test(
		tests, what_is_no_number_of_the_range_is_ignored, 0, sizeof(rows) / sizeof(rows[0]));
	return suite_run(suite);
}
