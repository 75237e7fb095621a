// frmpsctl top: rates, order and what fits.

#include <stdlib.h>
#include <string.h>

#include "server/tools/top.h"
#include "tests/lib/suite.h"

#define SESSION(number, commands)                                                                            \
	"{\"session\":" number ",\"pid\":7,\"uid\":8,\"program\":\"p" number "\",\"state\":\"running\","     \
	"\"multiprocessors\":16,\"sm_percent\":14,\"class\":\"offline\",\"weight\":50,\"memory_limit\":"     \
	"8589934592,"                                                                                        \
	"\"memory_bytes\":1572864,\"host_bytes\":0,\"commands\":" commands "}"
#define STATUS(sessions)                                                                                     \
	"{\"device\":{\"name\":\"H\",\"total_bytes\":2147483648},\"counters\":{\"faults\":2,\"culprits\":1}" \
	","                                                                                                  \
	"\"domains\":[{\"clients\":[" sessions "]}]}"

static char *show(const char *before, const char *now, unsigned rows)
{
	json_t *first = before ? json_loads(before, 0, NULL) : NULL, *second = json_loads(now, 0, NULL);
	char *text = NULL;
	size_t length;
	FILE *out = open_memstream(&text, &length);

	ck_assert_ptr_nonnull(second);
	top_print(first, second, 500000000, rows, "\n", out);
	fclose(out);
	json_decref(first);
	json_decref(second);
	return text;
}

TEST(top, the_busiest_comes_first)
{
	char *text = show(STATUS(SESSION("1", "100") "," SESSION("2", "100")),
		STATUS(SESSION("1", "150") "," SESSION("2", "1100") "," SESSION("3", "9000")), 0);
	const char *second = strstr(text, "2000  p2\n"), *first = strstr(text, "100  p1\n"),
		   *third = strstr(text, " 0  p3\n");

	ck_assert_msg(second && first && third, "%s", text);
	ck_assert(second < first && first < third);
	ck_assert_ptr_eq(
		strstr(text, "H: 3 programs, 4608K of 2G, 0 pinned, 2100 commands/s, 2 faults\n"), text);
	free(text);
}

TEST(top, what_is_granted_stands_beside_what_is_asked)
{
	char *text = show(NULL, STATUS(SESSION("1", "1")), 0);

	ck_assert_msg(strstr(text, "STATE       CLASS WEIGHT  SMS ASKED  MEMORY   LIMIT") &&
			      strstr(text, "running   offline     50   16   14%   1536K      8G"),
		"%s", text);
	free(text);
}

TEST(top, the_same_is_a_document)
{
	json_t *first = json_loads(STATUS(SESSION("1", "100") "," SESSION("2", "100")), 0, NULL),
	       *second = json_loads(STATUS(SESSION("1", "150") "," SESSION("2", "1100")), 0, NULL),
	       *root = top_json(first, second, 500000000), *sessions = json_object_get(root, "sessions"),
	       *busiest = json_array_get(sessions, 0);

	ck_assert_uint_eq(json_array_size(sessions), 2);
	ck_assert_int_eq(json_integer_value(json_object_get(busiest, "session")), 2);
	ck_assert_double_eq(json_real_value(json_object_get(busiest, "commands_per_second")), 2000);
	ck_assert_double_eq(json_real_value(json_object_get(root, "commands_per_second")), 2100);
	ck_assert_int_eq(json_integer_value(json_object_get(root, "memory_bytes")), 2 * 1572864);
	ck_assert_str_eq(json_string_value(json_object_get(json_object_get(root, "device"), "name")), "H");
	json_decref(root);
	json_decref(first);
	json_decref(second);
}

TEST(top, what_does_not_fit_is_counted)
{
	char *text = show(NULL, STATUS(SESSION("1", "1") "," SESSION("2", "2") "," SESSION("3", "3")), 5);

	ck_assert_msg(strstr(text, "p1\n2 more\n") != NULL, "%s", text);
	ck_assert_ptr_null(strstr(text, "p2"));
	free(text);
}

TEST(top, a_letter_is_not_cut)
{
	char *text = show(NULL, STATUS("{\"session\":1,\"program\":\"aéééééééééééééééé\"}"), 0);

	ck_assert_msg(strstr(text, "  aééééééééééééééé\n") != NULL, "%s", text);
	free(text);
}

TEST(top, it_says_where_the_memory_of_users_is)
{
	const char *now = "{\"swap\":{\"users\":[{\"uid\":7,\"bytes\":1024,\"most_bytes\":4096,"
			  "\"directory_bytes\":2048},{\"uid\":8,\"bytes\":0,\"most_bytes\":4096,"
			  "\"directory_bytes\":1024}]},\"domains\":[{\"clients\":[" SESSION(
				  "1", "1") "," SESSION("2", "2") "," SESSION("3", "3") "]}]}";
	char *text = show(NULL, now, 7);
	json_t *status = json_loads(now, 0, NULL), *root = top_json(NULL, status, 500000000);

	ck_assert_msg(strstr(text, "faults\nuser 7: 1K of 4K in host memory, 2K in swap_directory\n"
				   "user 8: 0 of 4K in host memory, 1K in swap_directory\n\n SESSION"),
		"%s", text);
	ck_assert_msg(strstr(text, "p1\n2 more\n") != NULL, "%s", text);
	ck_assert(json_equal(json_object_get(root, "swap"), json_object_get(status, "swap")));
	json_decref(root);
	json_decref(status);
	free(text);
}

TEST(top, nobody_is_there)
{
	char *text = show(NULL, STATUS(""), 24);

	ck_assert_ptr_nonnull(strstr(text, "H: 0 programs, 0 of 2G"));
	free(text);
}

int main(void)
{
	Suite *suite = suite_create("top");
	TCase *top = suite_case(suite, "top");

	suite_add(top, "top");
	return suite_run(suite);
}
