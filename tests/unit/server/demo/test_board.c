// The lines of the demo's programs, the pause of the crash, and a line of the table.

#include <string.h>

#include "server/demo/board.h"
#include "tests/lib/suite.h"

#define MS UINT64_C(1000000)

static struct board_program program;

static void setup(void)
{
	program = (struct board_program){.name = "survivor", .pid = 4711, .exit_status = -1};
}

TEST(reading, lines_change_the_program)
{
	ck_assert(board_read(&program, "did 12 100 300"));
	ck_assert_int_eq(program.state, BOARD_RUNS);
	ck_assert_uint_eq(program.kernels, 12);
	ck_assert_uint_eq(program.gap_count, 1);
	ck_assert_uint_eq(program.gaps[0].from_ns, 100);
	ck_assert_uint_eq(program.gaps[0].until_ns, 300);
	ck_assert(board_read(&program, "fault 400"));
	ck_assert_int_eq(program.state, BOARD_FAULTS);
	ck_assert_uint_eq(program.fault_ns, 400);
	ck_assert(board_read(&program, "error 500 700 CUDA_ERROR_ILLEGAL_ADDRESS"));
	ck_assert_int_eq(program.state, BOARD_FAILED);
	ck_assert_uint_eq(program.error_ns, 500);
	ck_assert_int_eq(program.code, 700);
	ck_assert_str_eq(program.error, "CUDA_ERROR_ILLEGAL_ADDRESS");
}

TEST(reading, ends_are_exact_or_wrong)
{
	ck_assert(board_read(&program, "end exact"));
	ck_assert_int_eq(program.state, BOARD_EXACT);
	ck_assert(board_read(&program, "end wrong"));
	ck_assert_int_eq(program.state, BOARD_WRONG);
}

TEST(reading, other_lines_change_nothing)
{
	static const char *const lines[] = {"", "did", "did 1 2", "did 1 300 200", "error 1 2", "end",
		"end well", "fault", "a warning: did 1 2 3"};
	const struct board_program before = program;

	for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++)
		ck_assert_msg(!board_read(&program, lines[i]), "%s", lines[i]);
	ck_assert_mem_eq(&program, &before, sizeof(program));
}

static void did(uint64_t from_ms, uint64_t until_ms)
{
	program.gaps[program.gap_count++ % BOARD_GAPS] = (struct board_gap){from_ms * MS, until_ms * MS};
}

TEST(pauses, the_pause_of_the_crash_is_the_gap_that_contains_it)
{
	const struct board_gap crash = {1000 * MS, 1001 * MS};

	did(0, 400); /* of the start */
	did(998, 1015);
	did(1500, 1540); /* of something else */
	ck_assert_uint_eq(board_pause_of(&program, &crash), 17 * MS);
	ck_assert_uint_eq(board_longest_since(&program, crash.from_ns), 40 * MS);
}

/* Where the device needs some time to notice, kernels end between the launch that faults and the
 * pause. */
TEST(pauses, it_may_begin_after_the_launch_that_faults)
{
	const struct board_gap crash = {1000 * MS, 1020 * MS};

	did(998, 1002);
	did(1005, 1018);
	ck_assert_uint_eq(board_pause_of(&program, &crash), 13 * MS);
}

TEST(pauses, gaps_beside_the_crash_are_none_of_it)
{
	const struct board_gap crash = {1000 * MS, 1001 * MS};

	did(900, 1000);
	did(1001, 1100);
	ck_assert_uint_eq(board_pause_of(&program, &crash), 0);
}

TEST(pauses, the_oldest_gaps_are_forgotten)
{
	did(1, 500);
	for (uint64_t i = 0; i < BOARD_GAPS; i++)
		did(1000 + 2 * i, 1002 + 2 * i);
	ck_assert_uint_eq(board_longest_since(&program, 1), 2 * MS);
	did(100000, 100030);
	ck_assert_uint_eq(board_longest_since(&program, 1), 30 * MS);
}

static const char *line_at(uint64_t crash_ms)
{
	static char text[BOARD_COLUMNS];
	const struct board_gap crash = {crash_ms * MS, (crash_ms + 1) * MS};

	board_line(&program, &crash, text);
	return text;
}

TEST(lines, before_the_crash_there_is_no_pause)
{
	did(0, 400);
	program.state = BOARD_RUNS;
	program.kernels = 12345;
	program.rate = 678.4;
	ck_assert_str_eq(line_at(0), "survivor       4711     12345      678         -         -  runs");
}

TEST(lines, a_survivor_shows_pauses_and_its_end)
{
	did(999, 1012);
	did(1200, 1250);
	program.state = BOARD_EXACT;
	program.exit_status = 0;
	ck_assert_str_eq(
		line_at(1000), "survivor       4711         0        0   13.0 ms   50.0 ms  exact, exit 0");
}

TEST(lines, short_pauses_are_below_a_millisecond)
{
	program.state = BOARD_RUNS;
	ck_assert_str_eq(line_at(1000), "survivor       4711         0        0    < 1 ms    < 1 ms  runs");
}

TEST(lines, who_got_an_error_did_not_pause)
{
	did(999, 1012);
	program.state = BOARD_FAILED;
	program.code = 700;
	program.exit_status = 1;
	ck_assert_str_eq(line_at(1000),
		"survivor       4711         0        0         -         -  error 700, exit 1");
}

/* The head's lines as well. */
TEST(lines, no_line_is_too_long)
{
	const char *second = strchr(board_head, '\n') + 1;

	program = (struct board_program){.name = "a name that is too long",
		.pid = 4194304,
		.kernels = UINT64_MAX,
		.rate = 1e12,
		.state = BOARD_FAILED,
		.code = -2147483647,
		.exit_status = 255};
	did(999, 9999999);
	ck_assert_uint_lt(strlen(line_at(1000)), BOARD_COLUMNS);
	ck_assert_uint_lt(second - board_head, BOARD_COLUMNS);
	ck_assert_uint_lt(strlen(second), BOARD_COLUMNS);
}

int main(void)
{
	Suite *suite = suite_create("board");
	TCase *reading = suite_case(suite, "reading"), *pauses = suite_case(suite, "pauses"),
	      *lines = suite_case(suite, "lines");

	tcase_add_checked_fixture(reading, setup, NULL);
	suite_add(reading, "reading");
	tcase_add_checked_fixture(pauses, setup, NULL);
	suite_add(pauses, "pauses");
	tcase_add_checked_fixture(lines, setup, NULL);
	suite_add(lines, "lines");
	return suite_run(suite);
}
