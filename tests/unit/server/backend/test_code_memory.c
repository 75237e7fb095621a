// Memory for code, on a driver of the test's own: addresses never get other code, those of a
// session follow from its window, and memory is there while something lies there.

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

static CUresult priorities(int *ret_least, int *ret_greatest)
{
	*ret_least = *ret_greatest = 0;
	return CUDA_SUCCESS;
}

static CUresult stream_create(CUstream *ret_stream, unsigned flags, int priority)
{
	(void)flags;
	(void)priority;
	*ret_stream = NULL;
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
	driver.context_priorities = priorities;
	driver.stream_create = stream_create;
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

/* Whatever is given back meanwhile. */
TEST(memory, addresses_are_given_out_once)
{
	struct code_memory held[40] = {{0}};
	uint64_t end = 0;

	for (unsigned i = 0; i < 4000; i++) {
		struct code_memory *one = &held[i * 7919 % 40];

		code_memory_give(one);
		*one = take(1 + i * 104729 % 700000);
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

		code_memory_give(&place);
	}
	ck_assert_int_eq(created, 1);
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

static void refused(uint64_t window, uint64_t at, uint64_t bytes)
{
	struct code_memory place;

	ck_assert_int_eq(code_memory_take_at(window, at, bytes, &place), CUDA_ERROR_NOT_SUPPORTED);
}

/* As a session that comes back from another device; meanwhile others load and unload. */
TEST(memory, a_place_is_given_again_for_the_same_code)
{
	struct code_memory first = take_at(WINDOW, 0, 1000), second = take_at(WINDOW, 0, 5 * GRANULE), again;

	ck_assert_int_eq(code_memory_settle(&first, 1), CUDA_SUCCESS);
	ck_assert_int_eq(code_memory_settle(&second, 2), CUDA_SUCCESS);
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
