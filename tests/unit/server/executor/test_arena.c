// The arena of a session: the device reaches what copies name, and no more.

#include "server/executor/arena.h"
#include "server/executor/stream.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/executor/fixture.h"

#define MAPPED FIXTURE_WINDOW
#define PART   SHM_ARENA_PART_BYTES
#define LARGE  (UINT64_C(32) << 20) /* bytes; nothing here touches them */

static void open_tenant(void)
{
	fixture_open_default();
	ck_assert_int_eq(stream_reach_words(fixture.tenant, 0), CUDA_SUCCESS);
	fake.count = 0;
}

/* Turns the fixture's arena into one of this size. */
static void have_arena(uint64_t bytes)
{
	fixture.tenant->view.shape.arena_bytes = bytes;
}

static uint64_t at(uint64_t offset)
{
	return (uintptr_t)fixture.tenant->view.arena + offset;
}

TEST(arena, a_part_is_registered_before_the_first_copy)
{
	for (uint64_t i = 0; i < 3; i++)
		fixture_copy(1, MAPPED, i * 4096, 64, FRMPS_COPY_SRC_ARENA);
	fixture_copy(1, 8192, MAPPED, 64, FRMPS_COPY_DST_ARENA);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_COPY), 4);
	ck_assert_uint_eq(fake_count(FAKE_REGISTER), 1);
	ck_assert_ptr_eq(fake_call(FAKE_REGISTER, 0)->object, fixture.tenant->view.arena);
	ck_assert_int_lt(fake_position(FAKE_REGISTER, 0), fake_position(FAKE_COPY, 0));
	ck_assert_uint_eq(arena_bytes(fixture.tenant), fixture.tenant->view.shape.arena_bytes);
}

TEST(arena, other_copies_register_nothing)
{
	fixture_copy(1, MAPPED, MAPPED + 4096, 64, 0);
	fixture_copy(1, MAPPED, FIXTURE_WINDOW + FIXTURE_DEVICE, 64, FRMPS_COPY_SRC_HOST);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_COPY), 2);
	ck_assert_uint_eq(fake_count(FAKE_REGISTER), 0);
	ck_assert_uint_eq(arena_bytes(fixture.tenant), 0);
}

TEST(arena, each_part_is_registered_and_given_back_once)
{
	have_arena(LARGE);
	for (int twice = 0; twice < 2; twice++) {
		ck_assert_int_eq(arena_reach(fixture.tenant, at(LARGE - 1)), CUDA_SUCCESS);
		ck_assert_int_eq(arena_reach(fixture.tenant, at(3 * PART)), CUDA_SUCCESS);
		ck_assert_int_eq(arena_reach(fixture.tenant, at(LARGE)), CUDA_SUCCESS);
		ck_assert_int_eq(arena_reach(fixture.tenant, at(0) - 1), CUDA_SUCCESS);
	}
	ck_assert_uint_eq(fake_count(FAKE_REGISTER), 2);
	ck_assert_uint_eq((uintptr_t)fake_call(FAKE_REGISTER, 0)->object, at(LARGE - PART));
	ck_assert_uint_eq((uintptr_t)fake_call(FAKE_REGISTER, 1)->object, at(3 * PART));
	ck_assert_uint_eq(arena_bytes(fixture.tenant), 2 * PART);
	arena_leave(fixture.tenant);
	ck_assert_uint_eq(fake_count(FAKE_UNREGISTER), 2);
	ck_assert_uint_eq((uintptr_t)fake_call(FAKE_UNREGISTER, 0)->object, at(3 * PART));
	ck_assert_uint_eq((uintptr_t)fake_call(FAKE_UNREGISTER, 1)->object, at(LARGE - PART));
	ck_assert_uint_eq(arena_bytes(fixture.tenant), 0);
}

TEST(arena, what_lies_in_two_parts_or_beyond_is_not_admitted)
{
	have_arena(LARGE);
	ck_assert(arena_admits(fixture.tenant, PART - 64, 64));
	ck_assert(arena_admits(fixture.tenant, 0, PART));
	ck_assert(arena_admits(fixture.tenant, PART, 0));
	ck_assert(!arena_admits(fixture.tenant, PART - 64, 65));
	ck_assert(!arena_admits(fixture.tenant, 0, PART + 1));
	ck_assert(!arena_admits(fixture.tenant, LARGE - 64, 65));
	ck_assert(!arena_admits(fixture.tenant, UINT64_MAX, 64));
	ck_assert(!arena_admits(fixture.tenant, 64, UINT64_MAX));
}

TEST(arena, the_last_part_of_an_odd_size_is_shorter)
{
	have_arena(PART + 4096);
	ck_assert_int_eq(arena_reach(fixture.tenant, at(PART)), CUDA_SUCCESS);
	ck_assert_uint_eq(arena_bytes(fixture.tenant), 4096);
	arena_leave(fixture.tenant);
}

int main(void)
{
	Suite *suite = suite_create("arena");
	TCase *tests = tcase_create("arena");

	tcase_add_checked_fixture(tests, open_tenant, fixture_close);
	suite_add(tests, "arena");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
