// Memory for code, on a driver of the test's own whose pieces lie side by side: no code may lie
// across the end of one, for the driver refuses to copy it there.

#include "server/backend/cuda/code_memory.h"
#include "server/backend/cuda/driver.h"
#include "tests/lib/suite.h"

#define DEVICE UINT64_C(0x700000000000)
#define PIECES 512u

static struct {
	uint64_t start, end;
} given[PIECES];
static unsigned count;

static CUresult allocate(CUdeviceptr *ret_address, size_t bytes)
{
	ck_assert_uint_lt(count, PIECES);
	given[count].start = count ? given[count - 1].end : DEVICE;
	given[count].end = given[count].start + bytes;
	*ret_address = given[count++].start;
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
	driver.memory_allocate = allocate;
	driver.context_priorities = priorities;
	driver.stream_create = stream_create;
	count = 0;
	ck_assert_int_eq(code_memory_open(), CUDA_SUCCESS);
}

static void check_place(const struct code_memory *memory)
{
	unsigned i = 0;

	while (i < count && (memory->at < given[i].start || memory->at >= given[i].end))
		i++;
	ck_assert_uint_lt(i, count);
	ck_assert_uint_le(memory->at + memory->bytes, given[i].end);
}

START_TEST(no_code_lies_across_two_pieces)
{
	struct code_memory held[40] = {{0}};
	uint32_t state = 7;

	for (unsigned i = 0; i < 4000; i++) {
		struct code_memory *one;

		state = state * UINT32_C(1664525) + UINT32_C(1013904223);
		one = &held[(state >> 8) % 40];
		code_memory_give(one);
		ck_assert_int_eq(code_memory_take(1 + (state >> 9) % 700000, i % 3 == 0, one), CUDA_SUCCESS);
		check_place(one);
		for (unsigned k = 0; k < 40; k++)
			ck_assert(&held[k] == one || !held[k].bytes || held[k].at >= one->at + one->bytes ||
				  one->at >= held[k].at + held[k].bytes);
	}
	ck_assert_uint_gt(count, 2);
	code_memory_close();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("code_memory");
	TCase *memory = suite_case(suite, "memory");

	tcase_add_checked_fixture(memory, open_memory, NULL);
	tcase_add_test(memory, no_code_lies_across_two_pieces);
	return suite_run(suite);
}
