// Range sets against a bitmap that does the same slowly.

#include "server/executor/range.h"

#include <stdlib.h>
#include <string.h>

#include "tests/lib/suite.h"

static struct range_set set;
static struct range_cache cache;

static void init_merging(void)
{
	range_set_init(&set, true);
	memset(&cache, 0, sizeof(cache));
}

static void deinit(void)
{
	range_set_deinit(&set);
}

TEST(sets, neighbours_are_one)
{
	ck_assert_int_eq(range_set_add(&set, 100, 50), 0);
	ck_assert_int_eq(range_set_add(&set, 200, 50), 0);
	ck_assert(!range_set_covers(&set, &cache, 100, 150));
	ck_assert_int_eq(range_set_add(&set, 150, 50), 0);
	ck_assert(range_set_covers(&set, &cache, 100, 150));
	ck_assert_int_eq(set.count, 1);
}

TEST(sets, edges)
{
	range_set_add(&set, 100, 50);
	ck_assert(range_set_covers(&set, &cache, 149, 1));
	ck_assert(!range_set_covers(&set, &cache, 149, 2));
	ck_assert(!range_set_covers(&set, &cache, 150, 1));
	ck_assert(!range_set_covers(&set, &cache, 99, 1));
	ck_assert(!range_set_covers(&set, &cache, 120, UINT64_MAX - 60));
	ck_assert_int_eq(range_set_add(&set, 5, 0), RANGE_E_EMPTY);
	ck_assert_int_eq(range_set_add(&set, UINT64_MAX - 1, 10), RANGE_E_EMPTY);
	ck_assert_int_eq(range_set_remove(&set, 500, 10), RANGE_E_ABSENT);
}

TEST(sets, cache_forgets_what_is_removed)
{
	range_set_add(&set, 100, 300);
	ck_assert(range_set_covers(&set, &cache, 100, 300));
	ck_assert_int_eq(range_set_remove(&set, 200, 100), 0);
	ck_assert(!range_set_covers(&set, &cache, 100, 300));
	ck_assert(!range_set_covers(&set, &cache, 250, 1));
	ck_assert(range_set_covers(&set, &cache, 100, 100));
	ck_assert(range_set_covers(&set, &cache, 300, 100));
}

TEST(sets, exact_sets_keep_their_pieces)
{
	struct range_set exact;
	struct range range;

	range_set_init(&exact, false);
	ck_assert_int_eq(range_set_add(&exact, 0, 10), 0);
	ck_assert_int_eq(range_set_add(&exact, 10, 10), 0);
	ck_assert_int_eq(range_set_add(&exact, 5, 10), RANGE_E_TAKEN);
	ck_assert_int_eq(range_set_add(&exact, 0, 10), RANGE_E_TAKEN);
	ck_assert_int_eq(range_set_remove(&exact, 0, 20), RANGE_E_ABSENT);
	ck_assert_int_eq(range_set_remove(&exact, 0, 5), RANGE_E_ABSENT);
	ck_assert_int_eq(range_set_remove(&exact, 0, 10), 0);
	ck_assert_int_eq(range_set_pop(&exact, &range), 0);
	ck_assert_uint_eq(range.start, 10);
	ck_assert_int_eq(range_set_pop(&exact, &range), RANGE_E_ABSENT);
	range_set_deinit(&exact);
}

#define CELLS 200u

static bool all_set(const bool *cells, unsigned from, unsigned count)
{
	for (unsigned i = from; i < from + count; i++)
		if (!cells[i])
			return false;
	return true;
}

TEST(sets, agrees_with_a_bitmap)
{
	bool cells[CELLS] = {false};

	srand(4711);
	for (int step = 0; step < 20000; step++) {
		unsigned from = (unsigned)rand() % (CELLS - 1), count = 1 + (unsigned)rand() % 20;

		count = count > CELLS - from ? CELLS - from : count;
		switch (rand() % 3) {
		case 0:
			ck_assert_int_eq(range_set_add(&set, from, count), 0);
			memset(&cells[from], true, count);
			break;
		case 1:
			range_set_remove(&set, from, count);
			memset(&cells[from], false, count);
			break;
		default:
			ck_assert_int_eq(
				range_set_covers(&set, &cache, from, count), all_set(cells, from, count));
		}
		for (uint32_t i = 1; i < set.count; i++)
			ck_assert_uint_lt(set.at[i - 1].end, set.at[i].start);
	}
}

int main(void)
{
	Suite *suite = suite_create("range");
	TCase *merging = suite_case(suite, "sets");

	tcase_add_checked_fixture(merging, init_merging, deinit);
	suite_add(merging, "sets");
	return suite_run(suite);
}
