// Places whose addresses count, on a driver of the test's own: they follow from the session's
// window, are given out once, and have memory while something lies there.

#include "server/backend/backend.h"
#include "server/backend/cuda/code_place.h"
#include "server/backend/cuda/driver.h"
#include "tests/lib/suite.h"

#define WINDOW	(UINT64_C(0x100000000000) + (UINT64_C(3) << 38))
#define OTHER	(WINDOW + (UINT64_C(1) << 38))
#define GRANULE BACKEND_CHUNK_GRANULE

static uint64_t reserved_at; /* 0: where it is asked for */
static int created, released, mapped;
static CUresult map_fails;

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
	mapped += !map_fails;
	return map_fails;
}

static CUresult memory_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
	(void)address;
	(void)bytes;
	(void)access;
	(void)count;
	return CUDA_SUCCESS;
}

static CUresult memory_unmap(CUdeviceptr address, size_t bytes)
{
	ck_assert(address % GRANULE == 0 && bytes == GRANULE);
	mapped--;
	return CUDA_SUCCESS;
}

static void open_driver(void)
{
	driver.address_reserve = address_reserve;
	driver.address_free = address_free;
	driver.memory_create = memory_create;
	driver.memory_release = memory_release;
	driver.memory_map = memory_map;
	driver.memory_access = memory_access;
	driver.memory_unmap = memory_unmap;
	created = released = mapped = 0;
	reserved_at = 0;
	map_fails = CUDA_SUCCESS;
}

static struct code_memory take(uint64_t window, uint64_t at, uint64_t bytes)
{
	struct code_memory memory;

	ck_assert_int_eq(code_place_take(window, at, bytes, false, &memory), CUDA_SUCCESS);
	return memory;
}

START_TEST(addresses_are_given_out_once)
{
	struct code_memory first = take(WINDOW, 0, 1000), second = take(WINDOW, 0, 1000), third;

	ck_assert_uint_eq(first.at, code_place_range(WINDOW));
	ck_assert_uint_ge(second.at, first.at + first.bytes);
	ck_assert(!first.was_code && !second.was_code);
	code_place_give(&second);
	third = take(WINDOW, 0, 1000);
	ck_assert_uint_ge(third.at, second.at + second.bytes);
	code_place_close();
}
END_TEST

/* What another executor was told, this one can have, whatever else it has done. */
START_TEST(another_executor_has_the_same)
{
	struct code_memory first = take(WINDOW, 0, 1000), second = take(WINDOW, 0, 5 * GRANULE), again;

	code_place_close();
	take(OTHER, 0, 700);
	again = take(WINDOW, second.at, 5 * GRANULE);
	ck_assert_uint_eq(again.at, second.at);
	ck_assert(!again.was_code);
	/* In front of it: addresses that it may have given out before. */
	again = take(WINDOW, first.at, 1000);
	ck_assert_uint_eq(again.at, first.at);
	ck_assert(again.was_code);
	code_place_close();
}
END_TEST

START_TEST(what_cannot_be_is_refused)
{
	struct code_memory memory = take(WINDOW, 0, 1000), none;

	ck_assert_int_eq(code_place_take(WINDOW, memory.at, 10, false, &none), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(code_place_take(OTHER, memory.at, 10, false, &none), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(code_place_take(WINDOW, memory.at + 1, 10, false, &none), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(code_place_take(WINDOW, 0, UINT64_MAX, false, &none), CUDA_ERROR_NOT_SUPPORTED);
	code_place_give(&memory);
	ck_assert_int_eq(code_place_take(WINDOW, memory.at, 10, true, &none), CUDA_ERROR_NOT_SUPPORTED);
	code_place_close();
	reserved_at = 0x1000;
	ck_assert_int_eq(code_place_take(WINDOW, 0, 10, false, &none), CUDA_ERROR_NOT_SUPPORTED);
}
END_TEST

START_TEST(memory_is_there_while_something_is)
{
	struct code_memory first = take(WINDOW, 0, GRANULE), second = take(WINDOW, 0, 100), none;

	/* The second lies behind the first, in its last granule. */
	ck_assert_int_eq(mapped, 2);
	ck_assert_int_eq(released, created);
	code_place_give(&first);
	ck_assert_int_eq(mapped, 1);
	map_fails = CUDA_ERROR_OUT_OF_MEMORY;
	ck_assert_int_eq(code_place_take(WINDOW, 0, 4 * GRANULE, false, &none), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_int_eq(mapped, 1);
	map_fails = CUDA_SUCCESS;
	code_place_give(&second);
	ck_assert_int_eq(mapped, 0);
	ck_assert_int_eq(released, created);
	code_place_close();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("code_place");
	TCase *places = suite_case(suite, "places");

	tcase_add_checked_fixture(places, open_driver, NULL);
	tcase_add_test(places, addresses_are_given_out_once);
	tcase_add_test(places, another_executor_has_the_same);
	tcase_add_test(places, what_cannot_be_is_refused);
	tcase_add_test(places, memory_is_there_while_something_is);
	return suite_run(suite);
}
