// Green contexts as a program sees them, without kernels: how a device of 15 units of 8
// multiprocessors, and 12 beside, is split, what the service is told of streams, and how green
// contexts begin and end.

#include <pthread.h>
#include <string.h>

#include "client/state/stream.h"
#include "shm/layout.h"
#include "tests/unit/client/shim.h"

#define UNITS(first, count) ((UINT64_MAX >> (64 - (count))) << (first))
#define BESIDE		    (UINT64_C(1) << 15)

static CUdevResource whole(void)
{
	CUdevResource all;

	OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	return all;
}

static CUgreenCtx make(CUdevResource *resources, unsigned int count)
{
	CUdevResourceDesc description;
	CUgreenCtx green;

	OK(cuDevResourceGenerateDesc(&description, resources, count));
	OK(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	return green;
}

/* Of the latest command of that op. */
static const struct loopback_note *latest(uint16_t op)
{
	const struct loopback_note *found = NULL;

	for (uint32_t i = 0; i < word_acquire(&loopback->count); i++)
		if (loopback->notes[i].op == op)
			found = &loopback->notes[i];
	ck_assert_ptr_nonnull(found);
	return found;
}

static uint64_t part_of(CUdevResource *resources, unsigned int count)
{
	CUgreenCtx green = make(resources, count);
	uint64_t part = latest(FRMPS_OP_STREAM_OPEN)->part;

	OK(cuGreenCtxDestroy(green));
	return part;
}

static const struct {
	unsigned int least, groups, size, rest, rest_of_all;
} splits[] = {
	{0, 15, 8, 124, 12},
	{1, 15, 8, 124, 12},
	{8, 15, 8, 124, 12},
	{9, 7, 16, 116, 20},
	{24, 5, 24, 108, 12},
	{32, 3, 32, 100, 36},
	{60, 1, 64, 68, 68},
	{66, 1, 72, 60, 60},
	{100, 1, 104, 28, 28},
	{120, 1, 120, 12, 12},
	{121, 1, 132, 0, 0},
	{132, 1, 132, 0, 0},
};

TEST_LOOP(green, groups_are_of_whole_units, 0, sizeof(splits) / sizeof(splits[0]))
{
	CUdevResource all = whole(), groups[16], rest;
	unsigned int count = 0;

	ck_assert_uint_eq(all.sm.smCount, 132);
	ck_assert_uint_eq(all.sm.minSmPartitionSize, 8);
	ck_assert_uint_eq(all.sm.smCoscheduledAlignment, 8);
	OK(cuDevSmResourceSplitByCount(NULL, &count, &all, NULL, 0, splits[_i].least));
	ck_assert_uint_eq(count, splits[_i].groups);
	count = 1;
	OK(cuDevSmResourceSplitByCount(groups, &count, &all, &rest, 0, splits[_i].least));
	ck_assert_uint_eq(count, 1);
	ck_assert_uint_eq(groups[0].sm.smCount, splits[_i].size);
	ck_assert_uint_eq(rest.sm.smCount, splits[_i].rest);
	ck_assert_int_eq(rest.type, splits[_i].rest ? CU_DEV_RESOURCE_TYPE_SM : CU_DEV_RESOURCE_TYPE_INVALID);
	count = 16;
	OK(cuDevSmResourceSplitByCount(groups, &count, &all, &rest, 2, splits[_i].least));
	ck_assert_uint_eq(count, splits[_i].groups);
	for (unsigned int i = 0; i < count; i++)
		ck_assert_uint_eq(groups[i].sm.smCount, splits[_i].size);
	ck_assert_uint_eq(rest.sm.smCount, splits[_i].rest_of_all);
}

TEST(green, the_service_is_told_the_units)
{
	CUdevResource all = whole(), groups[2], rest, left, again[2];
	unsigned int count = 2;
	CUgreenCtx green;

	OK(cuDevSmResourceSplitByCount(groups, &count, &all, &rest, 0, 32));
	ck_assert_uint_eq(part_of(&groups[0], 1), UNITS(0, 4));
	ck_assert_uint_eq(part_of(&groups[1], 1), UNITS(4, 4));
	ck_assert_uint_eq(part_of(groups, 2), UNITS(0, 8));
	ck_assert_uint_eq(part_of(&rest, 1), UNITS(8, 7) | BESIDE);
	ck_assert_uint_eq(part_of(&all, 1), UNITS(0, 15) | BESIDE);
	/* Twice the same is once that. */
	ck_assert_uint_eq(part_of((CUdevResource[]){groups[0], groups[0]}, 2), UNITS(0, 4));
	/* What a green context has can be split, however the program has copied it. */
	green = make(&rest, 1);
	OK(cuGreenCtxGetDevResource(green, &left, CU_DEV_RESOURCE_TYPE_SM));
	ck_assert_uint_eq(left.sm.smCount, 68);
	memcpy(&all, &left, sizeof(all));
	OK(cuDevSmResourceSplitByCount(again, &count, &all, &rest, 0, 16));
	ck_assert_uint_eq(part_of(&again[1], 1), UNITS(10, 2));
	ck_assert_uint_eq(part_of(&rest, 1), UNITS(12, 3) | BESIDE);
	/* No descriptor is all. */
	OK(cuGreenCtxCreate(&green, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	ck_assert_uint_eq(latest(FRMPS_OP_STREAM_OPEN)->part, UNITS(0, 15) | BESIDE);
	FAILS(cuGreenCtxCreate(&green, (CUdevResourceDesc)&all, 0, 1), INVALID_VALUE);
}

TEST(green_later, a_share_is_the_device)
{
	CUdevResource all, rest, piece;
	unsigned int count = 1;

	word_set(&loopback->share, 40 << SHM_SHARE_SMS_SHIFT);
	shim_attach();
	all = whole();
	ck_assert_uint_eq(all.sm.smCount, 40);
	OK(cuDevSmResourceSplitByCount(&piece, &count, &all, &rest, 0, 8));
	ck_assert_uint_eq(rest.sm.smCount, 32);
	ck_assert_uint_eq(part_of(&rest, 1), UNITS(1, 4));
}

TEST(green_later, a_device_without_units_has_none)
{
	CUdevResource all;
	CUgreenCtx green;

	word_set(&loopback->no_units, 1);
	shim_attach();
	FAILS(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM), NOT_SUPPORTED);
	FAILS(cuGreenCtxCreate(&green, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM), NOT_SUPPORTED);
}

/* Of the stream in which the latest fill was. */
static uint64_t fill(CUdeviceptr at, CUstream stream)
{
	OK(cuMemsetD8Async(at, 1, 64, stream));
	OK(cuStreamSynchronize(stream));
	return latest(FRMPS_OP_SET)->part;
}

TEST(green, streams_have_the_part_of_their_context)
{
	CUdevResource all = whole(), piece;
	unsigned int count = 1;
	CUstream stream, inner, outer;
	CUcontext context;
	CUgreenCtx green;
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, 64));
	OK(cuDevSmResourceSplitByCount(&piece, &count, &all, NULL, 0, 16));
	green = make(&piece, 1);
	OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, -2));
	ck_assert_uint_eq(fill(p, stream), UNITS(0, 2));
	ck_assert_uint_eq(fill(p, NULL), 0);
	OK(cuCtxFromGreenCtx(&context, green));
	OK(cuCtxPushCurrent_v2(context));
	ck_assert_uint_eq(fill(p, NULL), UNITS(0, 2));
	OK(cuStreamCreate(&inner, CU_STREAM_DEFAULT));
	ck_assert_uint_eq(fill(p, inner), UNITS(0, 2));
	OK(cuCtxPopCurrent_v2(NULL));
	ck_assert_uint_eq(fill(p, NULL), 0);
	OK(cuStreamDestroy_v2(inner));
	OK(cuStreamDestroy_v2(stream));
	/* Their slots are used again. */
	for (int i = 0; i < 3; i++) {
		OK(cuStreamCreate(&outer, CU_STREAM_NON_BLOCKING));
		ck_assert_uint_eq(fill(p, outer), 0);
	}
}

/* In green contexts no stream waits for a default stream. */
TEST(green, default_streams_are_not_joined)
{
	CUdevResource all = whole(), piece;
	unsigned int count = 1;
	CUcontext context;
	CUstream inner;
	CUdeviceptr p;
	unsigned depends;

	OK(cuMemAlloc_v2(&p, 64));
	OK(cuDevSmResourceSplitByCount(&piece, &count, &all, NULL, 0, 16));
	OK(cuCtxFromGreenCtx(&context, make(&piece, 1)));
	depends = loopback_count(FRMPS_OP_DEPEND);
	shim_pause();
	OK(cuMemsetD8Async(p, 1, 64, NULL));
	OK(cuCtxSetCurrent(context));
	OK(cuStreamCreate(&inner, CU_STREAM_DEFAULT));
	OK(cuMemsetD8Async(p, 1, 64, inner));
	OK(cuMemsetD8Async(p, 1, 64, NULL));
	OK(cuCtxSetCurrent(shim_context));
	OK(cuMemsetD8Async(p, 1, 64, NULL));
	shim_resume();
	OK(cuCtxSynchronize());
	ck_assert_uint_eq(loopback_count(FRMPS_OP_DEPEND), depends);
}

/* The service has no place for it: nothing is left behind. */
TEST(green, a_part_that_the_service_refuses)
{
	CUdevResource all = whole();
	CUdevResourceDesc description;
	CUgreenCtx green;
	unsigned int flags;
	int active;

	OK(cuDevResourceGenerateDesc(&description, &all, 1));
	OK(cuDevicePrimaryCtxRelease_v2(0));
	word_set(&loopback->late, CUDA_ERROR_OUT_OF_MEMORY);
	FAILS(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM), OUT_OF_MEMORY);
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	ck_assert_int_eq(active, 0);
	OK(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	OK(cuGreenCtxDestroy(green));
}

/* A reset of the primary context ends what is within, and frees memory as it does without. */
TEST(green, a_reset_leaves_a_green_context_useless)
{
	CUmemoryPool pool;
	CUdeviceptr p;
	uint64_t used;

	CUdevResource all = whole();
	CUgreenCtx green = make(&all, 1);
	CUcontext context;
	CUstream stream;
	unsigned int flags;
	int active;

	OK(cuCtxFromGreenCtx(&context, green));
	OK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
	OK(cuMemAllocAsync(&p, 64, NULL));
	OK(cuDevicePrimaryCtxReset_v2(0));
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &used));
	ck_assert_uint_eq(used, 0);
	FAILS(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0), CONTEXT_IS_DESTROYED);
	OK(cuCtxSetCurrent(context));
	FAILS(cuCtxSynchronize(), CONTEXT_IS_DESTROYED);
	OK(cuDevicePrimaryCtxRetain(&shim_context, 0));
	FAILS(cuCtxSynchronize(), CONTEXT_IS_DESTROYED);
	OK(cuGreenCtxDestroy(green));
	FAILS(cuGreenCtxDestroy(green), CONTEXT_IS_DESTROYED);
	OK(cuDevicePrimaryCtxRelease_v2(0));
	OK(cuDevicePrimaryCtxRelease_v2(0));
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	ck_assert_int_eq(active, 0);
}

/* Places in the table of contexts come back. */
TEST(green, green_contexts_in_a_loop)
{
	CUdevResource all = whole(), piece;
	unsigned int count = 1;
	CUgreenCtx green;

	OK(cuDevSmResourceSplitByCount(&piece, &count, &all, NULL, 0, 8));
	for (int i = 0; i < 600; i++) {
		green = make(&piece, 1);
		if (i % 2)
			OK(cuGreenCtxStreamCreate(&(CUstream){NULL}, green, CU_STREAM_NON_BLOCKING, 0));
		OK(cuGreenCtxDestroy(green));
	}
}

#define ROUNDS 50

/* Green contexts of its own, current in this thread, and work in them. */
static void *come_and_go(void *address)
{
	CUdeviceptr p = *(CUdeviceptr *)address;
	CUdevResource all = whole(), piece;
	unsigned int count = 1;

	OK(cuDevSmResourceSplitByCount(&piece, &count, &all, NULL, 0, 16));
	for (int i = 0; i < ROUNDS; i++) {
		CUgreenCtx green = make(&piece, 1);
		CUcontext context;
		CUstream stream;

		OK(cuCtxFromGreenCtx(&context, green));
		OK(cuCtxSetCurrent(context));
		OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
		OK(cuMemsetD8Async(p, 1, 64, stream));
		OK(cuMemsetD8Async(p, 1, 64, NULL));
		OK(cuCtxSynchronize());
		OK(cuStreamDestroy_v2(stream));
		OK(cuCtxSetCurrent(shim_context));
		OK(cuGreenCtxDestroy(green));
	}
	return NULL;
}

TEST(green, green_contexts_of_several_threads)
{
	pthread_t threads[4];
	CUdeviceptr p;
	CUevent event;

	OK(cuMemAlloc_v2(&p, 64));
	OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, come_and_go, &p), 0);
	for (int i = 0; i < ROUNDS; i++) {
		OK(cuCtxRecordEvent(shim_context, event));
		OK(cuCtxWaitEvent(shim_context, event));
		OK(cuMemsetD8Async(p, 1, 64, NULL));
		OK(cuCtxSynchronize());
	}
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
}

int main(void)
{
	Suite *suite = suite_create("green");
	TCase *tests = tcase_create("green"), *others = tcase_create("green_later");

	tcase_add_checked_fixture(tests, shim_setup, shim_teardown);
	suite_add(tests, "green");
	suite_add_tcase(suite, tests);
	tcase_add_checked_fixture(others, shim_setup_service, shim_teardown);
	suite_add(others, "green_later");
	suite_add_tcase(suite, others);
	return suite_run(suite);
}
