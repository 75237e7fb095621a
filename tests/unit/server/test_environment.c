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

TEST_LOOP(environment, what_is_no_number_of_the_range_is_ignored, 0, sizeof(rows) / sizeof(rows[0]))
{
	if (rows[_i].text)
		setenv("FRMPS_TEST_NUMBER", rows[_i].text, 1);
	ck_assert_uint_eq(environment_number("FRMPS_TEST_NUMBER", 7, 1, 32), rows[_i].value);
}

int main(void)
{
	Suite *suite = suite_create("environment");
	TCase *tests = suite_case(suite, "environment");

	suite_add(tests, "environment");
	return suite_run(suite);
}
