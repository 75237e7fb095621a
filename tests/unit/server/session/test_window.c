// Windows of the address space: which are given, and that they come back.

#include <string.h>

#include "server/session/window.h"
#include "tests/lib/suite.h"

#define GRID_END (WINDOW_GRID_BASE + WINDOW_COUNT * WINDOW_BYTES)
#define GIB	 (UINT64_C(1) << 30)
#define TIB	 (UINT64_C(1) << 40)

static struct window_set set;
static uint64_t words[7];
static const struct wire_u64s all_free = {words, 7};

static void setup(void)
{
	memset(words, 0xff, sizeof(words));
	window_set_init(&set, 0, 1);
}

static void teardown(void)
{
	window_set_deinit(&set);
}

static uint64_t field(uint32_t number)
{
	return WINDOW_GRID_BASE + number * WINDOW_BYTES;
}

static uint64_t take(uint64_t bytes, uint64_t alignment)
{
	const struct wire_window wish = {.bytes = bytes, .alignment = alignment, .free_windows = all_free};

	return window_take_further(&set, &wish);
}

static uint64_t take_there(uint64_t address, uint64_t bytes)
{
	const struct wire_window wish = {.address = address, .bytes = bytes, .free_windows = all_free};

	return window_take_further(&set, &wish);
}

/* What the set promises of all its windows. */
static void check_set(void)
{
	for (uint32_t i = 0; i < set.count; i++) {
		uint64_t start = set.at[i].start, end = set.at[i].end;

		ck_assert(start >= WINDOW_GRID_BASE && start < end && end <= GRID_END);
		/* Not where position-independent executables, libraries and stacks lie. */
		ck_assert(end <= UINT64_C(0x7c0000000000));
		ck_assert(end <= UINT64_C(0x540000000000) || start >= UINT64_C(0x580000000000));
		ck_assert(i == 0 || set.at[i - 1].end <= start);
	}
}

TEST(window, windows_are_free_on_both_sides)
{
	const uint64_t some[2] = {UINT64_C(0x8), UINT64_C(0x3)};
	const struct wire_u64s free_windows = {some, 2};

	ck_assert_uint_eq(window_take(&set, &free_windows), field(3));
	ck_assert_uint_eq(window_take(&set, &free_windows), field(64));
	ck_assert_uint_eq(window_take(&set, &free_windows), field(65));
	ck_assert_uint_eq(window_take(&set, &free_windows), WINDOW_NONE);
	window_give(&set, field(64));
	window_give(&set, WINDOW_NONE);
	ck_assert_uint_eq(window_take(&set, &free_windows), field(64));
}

TEST(window, a_freed_window_is_not_reused_at_once)
{
	uint64_t first = window_take(&set, &all_free);

	window_give(&set, first);
	ck_assert_uint_ne(window_take(&set, &all_free), first);
}

/* So that another device can have the same memory at the same addresses. */
TEST(window, each_device_takes_from_its_own_part_first)
{
	const uint32_t part = WINDOW_COUNT / 4;

	window_set_init(&set, 2, 4);
	for (uint32_t i = 0; i < 2 * part; i++) {
		uint64_t at = window_take(&set, &all_free);

		ck_assert(at >= field(2 * part) && at < field(3 * part));
		window_give(&set, at);
	}
	ck_assert_uint_eq(take(64 * GIB, 0), field(3 * part - 1));
	ck_assert_uint_ne(take(64 * TIB, 0), WINDOW_NONE);
	check_set();
	/* When the part is full the others follow. */
	window_set_deinit(&set);
	window_set_init(&set, 2, 4);
	for (uint32_t i = 0; i < WINDOW_USABLE; i++)
		ck_assert_uint_ne(window_take(&set, &all_free), WINDOW_NONE);
	check_set();
	ck_assert_uint_eq(window_take(&set, &all_free), WINDOW_NONE);
}

TEST(window, all_windows_can_be_in_use)
{
	for (uint32_t i = 0; i < WINDOW_USABLE; i++)
		ck_assert_uint_ne(window_take(&set, &all_free), WINDOW_NONE);
	check_set();
	ck_assert_uint_eq(window_take(&set, &all_free), WINDOW_NONE);
	ck_assert_uint_eq(GRID_END, UINT64_C(1) << 47);
}

TEST(window, further_windows_come_until_a_hundred_tebibytes_are_gone)
{
	uint64_t count = 0;

	ck_assert_uint_ne(window_take(&set, &all_free), WINDOW_NONE);
	while (take(160 * GIB, 0) != WINDOW_NONE)
		count++;
	check_set();
	ck_assert_uint_ge(count, 390);
	/* What is left is room for sessions to come. */
	for (uint32_t i = 0; i < 16; i++)
		ck_assert_uint_ne(window_take(&set, &all_free), WINDOW_NONE);
	check_set();
}

TEST(window, further_windows_are_as_large_as_one_likes)
{
	uint64_t at = take(50 * TIB, 0), next;

	ck_assert_uint_ne(at, WINDOW_NONE);
	ck_assert_uint_eq(take(50 * TIB, 0), WINDOW_NONE);
	ck_assert_uint_eq(take(UINT64_MAX & ~(WINDOW_GRAIN - 1), 0), WINDOW_NONE);
	next = take(20 * TIB, 0);
	ck_assert_uint_ne(next, WINDOW_NONE);
	check_set();
	window_give(&set, at);
	ck_assert_uint_eq(take(50 * TIB, 0), at);
	check_set();
}

TEST(window, further_windows_are_aligned_and_lie_apart)
{
	uint64_t a = take(64 * GIB, 0), b = take(64 * GIB, WINDOW_GRAIN), c = take(64 * GIB, TIB);

	ck_assert_uint_eq(c % TIB, 0);
	ck_assert_uint_ne(c, WINDOW_NONE);
	ck_assert_uint_eq(a % WINDOW_BYTES, 0);
	ck_assert_uint_eq(a - b, WINDOW_BYTES);
	ck_assert_uint_eq(take(64 * GIB, UINT64_C(1) << 63), WINDOW_NONE);
	check_set();
}

TEST(window, a_place_is_given_or_none)
{
	uint64_t own = window_take(&set, &all_free), at = field(20) + 6 * WINDOW_GRAIN;

	ck_assert_uint_eq(take_there(at, 64 * GIB), at);
	/* Side by side is its own choice. */
	ck_assert_uint_eq(take_there(at + 64 * GIB, 64 * GIB), at + 64 * GIB);
	ck_assert_uint_eq(take_there(at - 64 * GIB, 64 * GIB), at - 64 * GIB);
	ck_assert_uint_eq(take_there(at + WINDOW_GRAIN, 64 * GIB), WINDOW_NONE);
	ck_assert_uint_eq(take_there(at - 65 * GIB, 300 * GIB), WINDOW_NONE);
	ck_assert_uint_eq(take_there(own, 64 * GIB), WINDOW_NONE);
	ck_assert_uint_eq(take_there(own + WINDOW_BYTES, 64 * GIB), own + WINDOW_BYTES);
	/* Beyond the grid, and where processes have their own things. */
	ck_assert_uint_eq(take_there(WINDOW_GRAIN, 64 * GIB), WINDOW_NONE);
	ck_assert_uint_eq(take_there(WINDOW_GRID_BASE - 64 * GIB, 128 * GIB), WINDOW_NONE);
	ck_assert_uint_eq(take_there(GRID_END - 32 * GIB, 64 * GIB), WINDOW_NONE);
	ck_assert_uint_eq(take_there(UINT64_MAX & ~(WINDOW_GRAIN - 1), 64 * GIB), WINDOW_NONE);
	ck_assert_uint_eq(take_there(UINT64_C(0x550000000000), 64 * GIB), WINDOW_NONE);
	check_set();
	/* Not where the program has something. */
	words[0] &= ~(UINT64_C(1) << 30);
	ck_assert_uint_eq(take_there(field(30) - 32 * GIB, 64 * GIB), WINDOW_NONE);
	ck_assert_uint_eq(take_there(field(30) - 64 * GIB, 64 * GIB), field(30) - 64 * GIB);
}

/* So many lists must be kept, and searched for everybody's requests. */
TEST(window, there_are_not_more_than_can_be_kept)
{
	uint32_t count = 0;

	while (take_there(field(40) + count * 2 * WINDOW_GRAIN, WINDOW_GRAIN) != WINDOW_NONE)
		count++;
	ck_assert_uint_eq(count, WINDOW_MOST);
	/* Of a session's own there are always enough. */
	ck_assert_uint_ne(window_take(&set, &all_free), WINDOW_NONE);
	check_set();
}

TEST(window, a_window_goes_with_its_last_user)
{
	uint64_t at = take(64 * GIB, 0);

	window_hold(&set, at, 64 * GIB);
	window_hold(&set, WINDOW_NONE, 0);
	window_give(&set, at);
	ck_assert_uint_eq(window_users(&set, at), 1);
	ck_assert_uint_eq(take_there(at, 64 * GIB), WINDOW_NONE);
	window_give(&set, at);
	ck_assert_uint_eq(window_users(&set, at), 0);
	/* As an earlier life of the daemon gave it out. */
	window_hold(&set, at, 64 * GIB);
	ck_assert_uint_eq(window_users(&set, at), 1);
	ck_assert_uint_eq(take_there(at, 64 * GIB), WINDOW_NONE);
	check_set();
}

/* A record may be damaged: what cannot be is not held. */
TEST(window, what_an_earlier_daemon_has_recorded_may_be_no_window)
{
	const uint64_t at = field(10);

	window_hold(&set, at, 64 * GIB);
	ck_assert(window_is_possible(&set, WINDOW_NONE, 0));
	ck_assert(window_is_possible(&set, at, 64 * GIB));
	ck_assert(window_is_possible(&set, at + 64 * GIB, 64 * GIB));
	ck_assert(window_is_possible(&set, at - 64 * GIB, 64 * GIB));
	ck_assert(!window_is_possible(&set, at, 32 * GIB));
	ck_assert(!window_is_possible(&set, at + 32 * GIB, 32 * GIB));
	ck_assert(!window_is_possible(&set, at - 32 * GIB, 64 * GIB));
	ck_assert(!window_is_possible(&set, at - 32 * GIB, 256 * GIB));
	ck_assert(!window_is_possible(&set, field(20), 0));
	ck_assert(!window_is_possible(&set, field(20), 4096));
	ck_assert(!window_is_possible(&set, field(20) + 4096, WINDOW_GRAIN));
	ck_assert(!window_is_possible(&set, field(20), ~UINT64_C(0) - WINDOW_GRAIN + 1));
	ck_assert(!window_is_possible(&set, WINDOW_GRID_BASE - WINDOW_GRAIN, 2 * WINDOW_GRAIN));
	ck_assert(!window_is_possible(&set, GRID_END, WINDOW_GRAIN));
	ck_assert(!window_is_possible(&set, GRID_END - WINDOW_GRAIN, 2 * WINDOW_GRAIN));
	ck_assert(window_is_field(at) && window_is_field(WINDOW_NONE));
	ck_assert(!window_is_field(at + WINDOW_GRAIN) && !window_is_field(GRID_END));
}

int main(void)
{
	Suite *suite = suite_create("window");
	TCase *tests = suite_case(suite, "window");

	tcase_add_checked_fixture(tests, setup, teardown);
	suite_add(tests, "window");
	return suite_run(suite);
}
