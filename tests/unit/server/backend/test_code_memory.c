// Memory for code, on a driver of the test's own: addresses get no other code until the caches have
// had a turn, those of a session follow from its window, and memory is there while something lies
// there.

#include "server/backend/backend.h"
#include "server/backend/cuda/code_memory.h"
#include "server/backend/cuda/driver.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/backend/fake_calls.h"

#define WINDOW	(UINT64_C(0x100000000000) + (UINT64_C(3) << 38))
#define OTHER	(WINDOW + (UINT64_C(1) << 38))
#define GRANULE BACKEND_CHUNK_GRANULE

static uint64_t reserved_at; /* 0: where it is asked for */
static int created, released, mapped, maps_left;

static CUresult address_reserve(CUdeviceptr *ret_address, size_t bytes, size_t alignment, CUdeviceptr address,
	unsigned long long flags)
{
	(void)bytes;
	(void)alignment;
	(void)flags;
	*ret_address = reserved_at ? reserved_at : address;
	return CUDA_SUCCESS;
}

static CUresult address_free(CUdeviceptr address, size_t bytes)
{
	(void)address;
	(void)bytes;
	return CUDA_SUCCESS;
}

static CUresult memory_create(CUmemGenericAllocationHandle *ret_handle, size_t bytes,
	const CUmemAllocationProp *properties, unsigned long long flags)
{
	(void)properties;
	(void)flags;
	ck_assert_uint_eq(bytes, GRANULE);
	*ret_handle = (CUmemGenericAllocationHandle)++created;
	return CUDA_SUCCESS;
}

static CUresult memory_release(CUmemGenericAllocationHandle handle)
{
	(void)handle;
	released++;
	return CUDA_SUCCESS;
}

static CUresult memory_map(CUdeviceptr address, size_t bytes, size_t offset,
	CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	(void)offset;
	(void)handle;
	(void)flags;
	ck_assert(address % GRANULE == 0 && bytes == GRANULE);
	if (!maps_left)
		return CUDA_ERROR_OUT_OF_MEMORY;
	maps_left--;
	mapped++;
	return CUDA_SUCCESS;
}

static CUresult memory_unmap(CUdeviceptr address, size_t bytes)
{
	ck_assert(address % GRANULE == 0 && bytes == GRANULE);
	mapped--;
	return CUDA_SUCCESS;
}

static void open_memory(void)
{
	driver.address_reserve = address_reserve;
	driver.address_free = address_free;
	driver.memory_create = memory_create;
	driver.memory_release = memory_release;
	driver.memory_map = memory_map;
	driver.memory_access = fake_memory_access;
	driver.memory_unmap = memory_unmap;
	driver.context_priorities = fake_priorities;
	driver.stream_create = fake_stream_create;
	created = released = mapped = 0;
	maps_left = 1000000;
	reserved_at = 0;
	ck_assert_int_eq(code_memory_open(0), CUDA_SUCCESS);
}

static struct code_memory take(uint64_t bytes)
{
	struct code_memory place;

	ck_assert_int_eq(code_memory_take(bytes, &place), CUDA_SUCCESS);
	return place;
}

static struct code_memory take_at(uint64_t window, uint64_t at, uint64_t bytes)
{
	struct code_memory place;

	ck_assert_int_eq(code_memory_take_at(window, at, bytes, &place), CUDA_SUCCESS);
	return place;
}

static void enter(const struct code_memory *place, uint64_t code_hash)
{
	ck_assert_int_eq(code_memory_settle(place, code_hash), CUDA_SUCCESS);
}

/* Whatever is given back meanwhile. */
TEST(memory, addresses_of_code_rest)
{
	struct code_memory held[40] = {{0}};
	uint64_t end = 0;

	for (unsigned i = 0; i < 4000; i++) {
		struct code_memory *one = &held[i * 7919 % 40];

		code_memory_give(one);
		*one = take(1 + i * 104729 % 700000);
		enter(one, 0);
		ck_assert_uint_ge(one->at, end);
		end = one->at + one->bytes;
	}
	/* Not much more than what is held is there: 40 places of 350 KB. */
	ck_assert_int_lt(mapped, 60);
	for (unsigned i = 0; i < 40; i++)
		code_memory_give(&held[i]);
	ck_assert_int_eq(mapped, 1);
	ck_assert_int_eq(released, created);
	code_memory_close();
}

/* Who loads and unloads again and again maps nothing each time. */
TEST(memory, the_next_place_is_mapped_already)
{
	for (unsigned i = 0; i < 100; i++) {
		struct code_memory place = take(1000);

		enter(&place, 0);
		code_memory_give(&place);
	}
	ck_assert_int_eq(created, 1);
	code_memory_close();
}

#define LARGE (UINT64_C(1) << 20)
/* More than the addresses of a session are enough for. */
#define MANY 20000u

/* As a server that compiles and loads for months. */
TEST(memory, code_comes_and_goes_for_ever)
{
	for (unsigned i = 0; i < MANY; i++) {
		struct code_memory place = take_at(WINDOW, 0, LARGE);

		enter(&place, i);
		code_memory_give(&place);
		if (i % 100 == 0 && code_memory_is_worn()) {
			code_memory_turn();
			code_memory_renew();
		}
	}
	code_memory_close();
}

/* Nobody has run them. */
TEST(memory, variables_come_and_go_for_ever)
{
	for (unsigned i = 0; i < MANY; i++) {
		struct code_memory place = take_at(WINDOW, 0, LARGE);

		code_memory_give(&place);
	}
	ck_assert(!code_memory_is_worn());
	code_memory_close();
}

static void refused(uint64_t window, uint64_t at, uint64_t bytes)
{
	struct code_memory place;

	ck_assert_int_eq(code_memory_take_at(window, at, bytes, &place), CUDA_ERROR_NOT_SUPPORTED);
}

/* Return: how many a session gets */
static unsigned use_up(void)
{
	struct code_memory place;
	unsigned count = 0;

	for (; code_memory_take_at(WINDOW, 0, LARGE, &place) == CUDA_SUCCESS; count++) {
		enter(&place, count);
		code_memory_give(&place);
	}
	return count;
}

/* It may never end, where kernels fill multiprocessors for ever. */
TEST(memory, without_a_turn_of_the_caches_addresses_are_given_once)
{
	unsigned count = use_up();

	ck_assert_uint_gt(count, 8000);
	ck_assert(code_memory_is_worn());
	code_memory_turn();
	ck_assert(!code_memory_is_worn());
	refused(WINDOW, 0, LARGE);
	code_memory_renew();
	ck_assert_uint_eq(use_up(), count);
	code_memory_close();
}

/* More than the executor remembers one by one: who comes back does not get the last of them. */
TEST(memory, many_that_rest_are_remembered_as_one)
{
	struct code_memory first = take_at(WINDOW, 0, 1000), last, again;

	enter(&first, 1);
	code_memory_give(&first);
	for (unsigned i = 0; i < 70000; i++) {
		last = take_at(WINDOW, 0, 1000);
		enter(&last, i + 2);
		code_memory_give(&last);
	}
	again = take_at(WINDOW, first.at, 1000);
	enter(&again, 1);
	code_memory_give(&again);
	refused(WINDOW, last.at, 1000);
	code_memory_turn();
	code_memory_renew();
	again = take_at(WINDOW, last.at, 1000);
	enter(&again, 1);
	code_memory_close();
}

/* Its code may have come into the caches again, behind the kernel that told them. */
TEST(memory, what_goes_during_a_turn_rests_until_the_next)
{
	struct code_memory before = take_at(WINDOW, 0, 1000), during = take_at(WINDOW, 0, 1000), again;

	enter(&before, 1);
	enter(&during, 2);
	code_memory_give(&before);
	code_memory_turn();
	code_memory_give(&during);
	code_memory_renew();
	again = take_at(WINDOW, before.at, 1000);
	enter(&again, 3);
	again = take_at(WINDOW, during.at, 1000);
	ck_assert_int_eq(code_memory_settle(&again, 3), CUDA_ERROR_NOT_SUPPORTED);
	code_memory_give(&again);
	/* Whoever was refused may ask again soon. */
	ck_assert(code_memory_is_worn());
	code_memory_turn();
	code_memory_renew();
	again = take_at(WINDOW, during.at, 1000);
	enter(&again, 3);
	code_memory_close();
}

/* Places are given around what stays, and never lie on one another. */
TEST(memory, what_stays_is_left_alone)
{
	struct code_memory held[200], place;

	for (unsigned i = 0; i < 200; i++) {
		held[i] = take_at(WINDOW, 0, 30 * LARGE);
		enter(&held[i], i);
		place = take_at(WINDOW, 0, LARGE + i);
		enter(&place, i);
		code_memory_give(&place);
	}
	for (unsigned i = 0; i < MANY / 5; i++) {
		place = take_at(WINDOW, 0, 1 + i * 7919 % (5 * LARGE));
		enter(&place, i);
		for (unsigned j = 0; j < 200; j++)
			ck_assert(place.at + place.bytes <= held[j].at ||
				  held[j].at + held[j].bytes <= place.at);
		code_memory_give(&place);
		code_memory_turn();
		code_memory_renew();
	}
	code_memory_close();
}

/* A session's modules, in the order in which they came; where a program has gone through all its
 * addresses, later ones lie in front of earlier ones. */
TEST(memory, another_executor_has_the_same_in_any_order)
{
	struct code_memory first = take_at(WINDOW, 0, 1000), second = take_at(WINDOW, 0, 3000);

	code_memory_close();
	ck_assert_uint_eq(take_at(WINDOW, second.at, 3000).at, second.at);
	ck_assert_uint_eq(take_at(WINDOW, first.at, 1000).at, first.at);
	refused(WINDOW, first.at, 1000);
	code_memory_close();
}

/* What another executor was told, this one can have, whatever else it has done. */
TEST(memory, another_executor_has_the_same)
{
	struct code_memory first = take_at(WINDOW, 0, 1000), second = take_at(WINDOW, 0, 5 * GRANULE), again;

	ck_assert_uint_eq(first.at, code_memory_range(WINDOW));
	code_memory_close();
	take_at(OTHER, 0, 700);
	take(700);
	again = take_at(WINDOW, second.at, 5 * GRANULE);
	ck_assert_uint_eq(again.at, second.at);
	ck_assert_uint_eq(again.bytes, second.bytes);
	/* The next one is behind it. */
	again = take_at(WINDOW, 0, 10);
	ck_assert_uint_ge(again.at, second.at + second.bytes);
	code_memory_close();
}

/* As a session that comes back from another device; meanwhile others load and unload. */
TEST(memory, a_place_is_given_again_for_the_same_code)
{
	struct code_memory first = take_at(WINDOW, 0, 1000), second = take_at(WINDOW, 0, 5 * GRANULE), again;

	enter(&first, 1);
	enter(&second, 2);
	refused(WINDOW, second.at, 5 * GRANULE);
	code_memory_give(&second);
	code_memory_give(&first);
	take_at(WINDOW, 0, 1000);
	again = take_at(WINDOW, second.at, 5 * GRANULE);
	ck_assert_uint_eq(again.bytes, second.bytes);
	ck_assert_int_eq(code_memory_settle(&again, 2), CUDA_SUCCESS);
	again = take_at(WINDOW, first.at, 1000);
	ck_assert_int_eq(code_memory_settle(&again, 3), CUDA_ERROR_NOT_SUPPORTED);
	/* Whoever is told so gives the place back; it stays the first code's. */
	code_memory_give(&again);
	again = take_at(WINDOW, first.at, 1000);
	ck_assert_int_eq(code_memory_settle(&again, 1), CUDA_SUCCESS);
	code_memory_close();
}

/* A load that failed half way. */
TEST(memory, a_place_without_code_is_for_any)
{
	struct code_memory place = take_at(WINDOW, 0, 1000);

	code_memory_give(&place);
	place = take_at(WINDOW, place.at, 1000);
	ck_assert_int_eq(code_memory_settle(&place, 7), CUDA_SUCCESS);
	code_memory_close();
	place = take(1000);
	ck_assert_int_eq(code_memory_settle(&place, 7), CUDA_SUCCESS);
	code_memory_give(&place);
	code_memory_close();
}

TEST(memory, what_cannot_be_is_refused)
{
	struct code_memory first = take_at(WINDOW, 0, 1000), second = take_at(WINDOW, 0, 1000), place;

	refused(WINDOW, first.at, 10);
	refused(OTHER, first.at, 10);
	refused(OTHER, second.at, 10);
	refused(WINDOW, second.at + second.bytes + 1, 10);
	refused(WINDOW, 0, UINT64_MAX);
	enter(&second, 2);
	code_memory_give(&second);
	refused(WINDOW, second.at, 2 * GRANULE);
	refused(WINDOW, second.at + 256, 10);
	code_memory_close();
	reserved_at = 0x1000;
	refused(WINDOW, 0, 10);
	ck_assert_int_eq(code_memory_take(10, &place), CUDA_ERROR_NOT_SUPPORTED);
}

TEST(memory, memory_that_is_not_there_is_given_back)
{
	struct code_memory place;

	maps_left = 3;
	ck_assert_int_eq(code_memory_take(4 * GRANULE, &place), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_int_eq(mapped, 0);
	maps_left = 5;
	place = take(4 * GRANULE);
	ck_assert_int_eq(mapped, 5);
	code_memory_give(&place);
	ck_assert_int_eq(mapped, 1);
	ck_assert_int_eq(released, created);
	code_memory_close();
}

int main(void)
{
	Suite *suite = suite_create("code_memory");
	TCase *memory = suite_case(suite, "memory");

	tcase_add_checked_fixture(memory, open_memory, NULL);
	suite_add(memory, "memory");
	return suite_run(suite);
}
