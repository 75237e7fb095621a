// Tests of client/state/ranges.c: the ordered map by itself, against a plain array, and the
// process-wide one.

#include <stdlib.h>

#include "client/state/ranges.h"
#include "tests/lib/suite.h"

static struct range_map map;

static void setup(void)
{
	range_map_init(&map);
}

static void teardown(void)
{
	range_map_deinit(&map);
}

static int add(uint64_t address, uint64_t bytes)
{
	return range_map_add(&map, &(struct range){.address = address, .bytes = bytes, .room = bytes});
}

TEST(map, finds_what_holds_an_address)
{
	ck_assert_ptr_null(range_map_find(&map, 100));
	ck_assert_int_eq(add(100, 10), 0);
	ck_assert_int_eq(add(120, 10), 0);
	ck_assert_ptr_null(range_map_find(&map, 99));
	ck_assert_uint_eq(range_map_find(&map, 100)->address, 100);
	ck_assert_uint_eq(range_map_find(&map, 109)->address, 100);
	ck_assert_ptr_null(range_map_find(&map, 110));
	ck_assert_uint_eq(range_map_find(&map, 125)->address, 120);
	ck_assert_ptr_null(range_map_find(&map, 130));
	ck_assert_uint_eq(range_map_next(&map, 0)->address, 100);
	ck_assert_uint_eq(range_map_next(&map, 109)->address, 100);
	ck_assert_uint_eq(range_map_next(&map, 110)->address, 120);
	ck_assert_ptr_null(range_map_next(&map, 130));
}

TEST(map, refuses_overlaps)
{
	ck_assert_int_eq(add(100, 10), 0);
	ck_assert_int_eq(add(100, 1), RANGES_E_EXISTS);
	ck_assert_int_eq(add(109, 5), RANGES_E_EXISTS);
	ck_assert_int_eq(add(95, 6), RANGES_E_EXISTS);
	ck_assert_int_eq(add(90, 100), RANGES_E_EXISTS);
	ck_assert_int_eq(add(95, 5), 0);
	ck_assert_int_eq(add(110, 5), 0);
}

TEST(map, removes_only_beginnings)
{
	struct range range;

	ck_assert_int_eq(add(100, 10), 0);
	ck_assert_int_eq(range_map_remove(&map, 101, &range), RANGES_E_NONE);
	ck_assert_int_eq(range_map_remove(&map, 100, &range), 0);
	ck_assert_uint_eq(range.bytes, 10);
	ck_assert_int_eq(range_map_remove(&map, 100, &range), RANGES_E_NONE);
	ck_assert_uint_eq(map.count, 0);
}

#define PLACES 3000

TEST(map, agrees_with_an_array)
{
	static bool there[PLACES];
	struct range range;

	srandom(3);
	for (int round = 0; round < 60000; ++round) {
		uint64_t i = (uint64_t)random() % PLACES, address = (i + 1) * 100;

		if (there[i])
			ck_assert_int_eq(range_map_remove(&map, address, &range), 0);
		else
			ck_assert_int_eq(add(address, 1 + i % 100), 0);
		there[i] = !there[i];
	}
	for (uint64_t i = 0; i < PLACES; ++i) {
		struct range *found = range_map_find(&map, (i + 1) * 100 + i % 100);

		ck_assert_int_eq(found != NULL, there[i]);
		if (found)
			ck_assert_uint_eq(found->address, (i + 1) * 100);
	}
}

TEST(process, globals_go_with_their_module)
{
	int one, two;
	struct range range;

	ck_assert_int_eq(ranges_add(1000, 10, RANGE_GLOBAL, &one), 0);
	ck_assert_int_eq(ranges_add(2000, 10, RANGE_GLOBAL, &two), 0);
	ck_assert_int_eq(ranges_add(3000, 10, RANGE_GLOBAL, &one), 0);
	ck_assert_int_eq(ranges_add(3005, 10, RANGE_GLOBAL, &one), RANGES_E_EXISTS);
	ranges_remove_owner(&one);
	ck_assert_int_eq(ranges_lookup(1000, &range), RANGES_E_NONE);
	ck_assert_int_eq(ranges_lookup(3000, &range), RANGES_E_NONE);
	ck_assert_int_eq(ranges_lookup(2009, &range), 0);
	ck_assert_ptr_eq(range.owner, &two);
	ranges_remove_owner(&two);
}

TEST(process, taken_only_as_what_it_is)
{
	struct range range = {.address = 5000, .bytes = 10, .room = 512, .kind = RANGE_DEVICE}, taken;

	ck_assert_int_eq(ranges_insert(&range), 0);
	ck_assert_uint_ne(range.id, 0);
	ck_assert_int_eq(ranges_take(5000, RANGE_HOST, &taken), RANGES_E_NONE);
	ck_assert_int_eq(ranges_take(5001, RANGE_DEVICE, &taken), RANGES_E_NONE);
	ck_assert_int_eq(ranges_take(5000, RANGE_DEVICE, &taken), 0);
	ck_assert_uint_eq(taken.id, range.id);
	ck_assert_int_eq(ranges_take(5000, RANGE_DEVICE, &taken), RANGES_E_NONE);
}

int main(void)
{
	Suite *suite = suite_create("ranges");
	TCase *cases = suite_case(suite, "map");
	TCase *process = suite_case(suite, "process");

	tcase_add_checked_fixture(cases, setup, teardown);
	suite_add(cases, "map");
	suite_add(process, "process");
	return suite_run(suite);
}
