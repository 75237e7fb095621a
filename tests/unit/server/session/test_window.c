// Windows of the address space: which are given, and that they come back.

#include <string.h>

#include "server/session/window.h"
#include "tests/lib/suite.h"

START_TEST(windows_are_free_on_both_sides)
{
	const uint64_t words[2] = {UINT64_C(0x8), UINT64_C(0x3)};
	const struct wire_u64s free_windows = {words, 2};
	struct window_set set = {0};

	ck_assert_uint_eq(window_take(&set, &free_windows), 3);
	ck_assert_uint_eq(window_take(&set, &free_windows), 64);
	ck_assert_uint_eq(window_take(&set, &free_windows), 65);
	ck_assert_uint_eq(window_take(&set, &free_windows), WINDOW_NONE);
	window_give(&set, 64);
	window_give(&set, WINDOW_NONE);
	ck_assert_uint_eq(window_take(&set, &free_windows), 64);
	ck_assert_uint_eq(window_base(64), WINDOW_GRID_BASE + 64 * WINDOW_BYTES);
}
END_TEST

START_TEST(a_freed_window_is_not_reused_at_once)
{
	const uint64_t words[1] = {~UINT64_C(0)};
	const struct wire_u64s free_windows = {words, 1};
	struct window_set set = {0};
	uint32_t first = window_take(&set, &free_windows);

	window_give(&set, first);
	ck_assert_uint_ne(window_take(&set, &free_windows), first);
}
END_TEST

START_TEST(all_windows_can_be_in_use)
{
	uint64_t words[7];
	const struct wire_u64s free_windows = {words, 7};
	struct window_set set = {0};

	memset(words, 0xff, sizeof(words));
	for (uint32_t i = 0; i < WINDOW_USABLE; i++) {
		uint64_t base = window_base(window_take(&set, &free_windows));

		/* Not where position-independent executables, libraries and stacks lie. */
		ck_assert(base >> 42 != 0x54 >> 2 && base < UINT64_C(0x7c0000000000));
	}
	ck_assert_uint_eq(window_take(&set, &free_windows), WINDOW_NONE);
	ck_assert_uint_eq(window_base(WINDOW_COUNT), UINT64_C(1) << 47);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("window");
	TCase *tests = suite_case(suite, "window");

	tcase_add_test(tests, windows_are_free_on_both_sides);
	tcase_add_test(tests, a_freed_window_is_not_reused_at_once);
	tcase_add_test(tests, all_windows_can_be_in_use);
	return suite_run(suite);
}
