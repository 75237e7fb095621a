// Calls from many threads at once, and threads that block or are cancelled in one.
// The tests run against NVIDIA's library as well and must pass there.

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"

static void *count_in_thread(void *data)
{
	CUdeviceptr word = *(CUdeviceptr *)data;
	uint32_t one = 1;
	void *arguments[] = {&word, &one};
	CUdevice device = 0;
	CUcontext context;
	CUstream stream;

	ck_cuda(cuDevicePrimaryCtxRetain(&context, device));
	ck_cuda(cuCtxSetCurrent(context));
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (int i = 0; i < 1000; i++)
		ck_cuda(launch("count_up", 2, 32, stream, arguments));
	ck_cuda(cuStreamSynchronize(stream));
	ck_cuda(cuStreamDestroy_v2(stream));
	return NULL;
}

TEST(threads, many_threads_launch)
{
	pthread_t threads[8];
	CUdeviceptr word;
	uint32_t total;

	driver_open();
	word = device_words(1, 0);
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, count_in_thread, &word), 0);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	ck_cuda(cuMemcpyDtoH_v2(&total, word, 4));
	ck_assert_uint_eq(total, 8 * 1000 * 2);
}

#define LARGE_BYTES ((size_t)16 << 20)

static CUdeviceptr large;

static void *copy_out(void *ret_right)
{
	uint32_t *words = malloc(LARGE_BYTES);
	CUcontext context;

	ck_cuda(cuDevicePrimaryCtxRetain(&context, 0));
	ck_cuda(cuCtxSetCurrent(context));
	for (int i = 0; i < 3; i++)
		ck_cuda(cuMemcpyDtoH_v2(words, large, LARGE_BYTES));
	*(bool *)ret_right = words[0] == 7 && words[LARGE_BYTES / 4 - 1] == 7;
	free(words);
	return NULL;
}

/* More of them than staging memory has room for. */
TEST(threads, many_threads_copy_to_ordinary_memory)
{
	pthread_t threads[12];
	bool right[12] = {0};

	driver_open();
	ck_cuda(cuMemAlloc_v2(&large, LARGE_BYTES));
	ck_cuda(cuMemsetD32_v2(large, 7, LARGE_BYTES / 4));
	for (int i = 0; i < 12; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, copy_out, &right[i]), 0);
	for (int i = 0; i < 12; i++) {
		pthread_join(threads[i], NULL);
		ck_assert(right[i]);
	}
}

static void *synchronize(void *stream)
{
	CUcontext context;

	ck_cuda(cuDevicePrimaryCtxRetain(&context, 0));
	ck_cuda(cuCtxSetCurrent(context));
	ck_cuda(cuStreamSynchronize(stream));
	return NULL;
}

TEST(threads, a_blocked_thread_is_released_by_another_ones_launch)
{
	CUstream blocked, other;
	uint32_t *word;
	pthread_t thread;

	driver_open();
	word = shared_word();
	ck_cuda(cuStreamCreate(&blocked, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	ck_cuda(launch_spin(word, 1, blocked));
	ck_assert_int_eq(pthread_create(&thread, NULL, synchronize, blocked), 0);
	for (int i = 0; i < 2000; i++)
		ck_cuda(cuMemsetD32Async((CUdeviceptr)(uintptr_t)(word + 1), 7, 1, other));
	ck_cuda(cuMemsetD32Async((CUdeviceptr)(uintptr_t)word, 1, 1, other));
	pthread_join(thread, NULL);
	ck_cuda(cuStreamSynchronize(other));
}

static void *allocate_cancelled(void *unused)
{
	CUcontext context = unused;
	CUdeviceptr memory;

	ck_cuda(cuCtxSetCurrent(context));
	pthread_cancel(pthread_self());
	cuMemAlloc_v2(&memory, 100 << 20);
	pthread_testcancel();
	return NULL;
}

/* It leaves nobody waiting for it. */
TEST(threads, a_thread_is_cancelled_in_a_call)
{
	CUcontext context;
	CUdeviceptr memory;
	pthread_t thread;
	void *result;

	driver_attach();
	ck_cuda(cuCtxGetCurrent(&context));
	ck_assert_int_eq(pthread_create(&thread, NULL, allocate_cancelled, context), 0);
	ck_assert_int_eq(pthread_join(thread, &result), 0);
	ck_assert_ptr_eq(result, PTHREAD_CANCELED);
	ck_cuda(cuMemAlloc_v2(&memory, 100 << 20));
}

/* ---- everything at once ---- */

#define WORKERS 8
#define ROUNDS	60

struct worker {
	pthread_t thread;
	CUcontext context;
	const void *image;
	uint32_t number;
	int rounds; /* that were as they should be */
};

static void expect_word(CUdeviceptr address, uint32_t value, CUstream stream)
{
	uint32_t word = ~value;

	ck_cuda(cuMemcpyDtoHAsync_v2(&word, address, 4, stream));
	ck_cuda(cuStreamSynchronize(stream));
	ck_assert_uint_eq(word, value);
}

static void use_module(const struct worker *worker, CUdeviceptr word, CUstream stream)
{
	uint32_t by = worker->number + 1;
	void *arguments[] = {&word, &by};
	CUfunction function;
	CUmodule module;

	ck_cuda(cuModuleLoadData(&module, worker->image));
	ck_cuda(cuModuleGetFunction(&function, module, "count_up"));
	ck_cuda(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
	ck_cuda(cuModuleUnload(module));
}

static void use_graph(CUdeviceptr words, uint32_t value, uint32_t *from, CUstream stream)
{
	CUgraphExec exec;
	CUgraph graph;

	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	ck_cuda(cuMemsetD32Async(words, value, 1, stream));
	ck_cuda(cuMemcpyHtoDAsync_v2(words + 4, from, 4, stream));
	ck_cuda(cuStreamEndCapture(stream, &graph));
	ck_cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
	ck_cuda(cuGraphDestroy(graph));
	ck_cuda(cuGraphLaunch(exec, stream));
	ck_cuda(cuStreamSynchronize(stream));
	*from = value + 1;
	ck_cuda(cuGraphLaunch(exec, stream));
	ck_cuda(cuStreamSynchronize(stream));
	ck_cuda(cuGraphExecDestroy(exec));
}

static void use_pool(uint32_t value, CUstream stream)
{
	CUdeviceptr memory;

	ck_cuda(cuMemAllocAsync(&memory, 4096, stream));
	ck_cuda(cuMemsetD32Async(memory, value, 1024, stream));
	expect_word(memory + 4092, value, stream);
	ck_cuda(cuMemFreeAsync(memory, stream));
}

static void work_a_round(const struct worker *worker, int round)
{
	uint32_t value = worker->number * 1000 + (uint32_t)round, staged = value, *pinned;
	CUdeviceptr words;
	CUstream stream, second;
	CUevent event;

	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuStreamCreateWithPriority(&second, CU_STREAM_NON_BLOCKING, -1));
	ck_cuda(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	ck_cuda(cuMemAlloc_v2(&words, 4096));
	ck_cuda(cuMemHostAlloc((void **)&pinned, 4096, 0));
	*pinned = value;
	ck_cuda(cuMemcpyHtoDAsync_v2(words, pinned, 4, stream));
	if (round % 8 == 0)
		use_module(worker, words, stream);
	ck_cuda(cuEventRecord(event, stream));
	ck_cuda(cuStreamWaitEvent(second, event, 0));
	expect_word(words, round % 8 == 0 ? value + worker->number + 1 : value, second);
	use_graph(words, value, &staged, stream);
	expect_word(words, value, stream);
	expect_word(words + 4, value + 1, stream);
	use_pool(value, second);
	ck_cuda(cuEventDestroy_v2(event));
	ck_cuda(cuMemFreeHost(pinned));
	ck_cuda(cuMemFree_v2(words));
	ck_cuda(cuStreamDestroy_v2(second));
	ck_cuda(cuStreamDestroy_v2(stream));
}

static void *work(void *data)
{
	struct worker *worker = data;

	ck_cuda(cuCtxSetCurrent(worker->context));
	for (; worker->rounds < ROUNDS; worker->rounds++)
		work_a_round(worker, worker->rounds);
	return NULL;
}

TEST(threads, everything_happens_at_once)
{
	struct worker workers[WORKERS] = {{0}};
	void *image = read_file(getenv("FRMPS_TEST_KERNELS"));
	CUcontext context;

	driver_attach();
	ck_cuda(cuCtxGetCurrent(&context));
	for (uint32_t i = 0; i < WORKERS; i++) {
		workers[i] = (struct worker){.context = context, .image = image, .number = i};
		ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
	}
	for (int i = 0; i < WORKERS; i++) {
		pthread_join(workers[i].thread, NULL);
		ck_assert_int_eq(workers[i].rounds, ROUNDS);
	}
	ck_cuda(cuCtxSynchronize());
	free(image);
}

#define ENDINGS 5000

static pthread_barrier_t both;
static CUmemoryPool ending;
static atomic_int ended;

static void *end_pools(void *unused)
{
	for (int i = 0; i < ENDINGS; i++) {
		pthread_barrier_wait(&both);
		ended += cuMemPoolDestroy(ending) == CUDA_SUCCESS;
		pthread_barrier_wait(&both);
	}
	return unused;
}

/* NVIDIA's library need not survive it. */
TEST(threads, of_two_threads_that_end_a_pool_one_does)
{
	const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	pthread_t other;

	if (is_native())
		return;
	driver_attach();
	pthread_barrier_init(&both, NULL, 2);
	ck_assert_int_eq(pthread_create(&other, NULL, end_pools, NULL), 0);
	for (int i = 0; i < ENDINGS; i++) {
		ck_cuda(cuMemPoolCreate(&ending, &properties));
		ended = 0;
		pthread_barrier_wait(&both);
		ended += cuMemPoolDestroy(ending) == CUDA_SUCCESS;
		pthread_barrier_wait(&both);
		ck_assert_int_eq(ended, 1);
	}
	pthread_join(other, NULL);
}

#define MIPMAPS 5000
#define LOOKERS 3 /* who waits for another one looks late */

static CUmipmappedArray mipmap;

static void *look_at_levels(void *context)
{
	CUarray level;

	ck_cuda(cuCtxSetCurrent(context));
	for (int i = 0; i < MIPMAPS; i++) {
		pthread_barrier_wait(&both);
		for (unsigned int k = 0; cuMipmappedArrayGetLevel(&level, mipmap, k % 3) == CUDA_SUCCESS;)
			k++;
		pthread_barrier_wait(&both);
	}
	return NULL;
}

/* NVIDIA's library need not survive it. */
TEST(threads, levels_are_asked_for_while_their_array_ends)
{
	const CUDA_ARRAY3D_DESCRIPTOR form = {
		.Width = 64, .Height = 64, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
	CUcontext context;
	pthread_t others[LOOKERS];

	if (is_native())
		return;
	driver_attach();
	ck_cuda(cuCtxGetCurrent(&context));
	pthread_barrier_init(&both, NULL, LOOKERS + 1);
	for (int i = 0; i < LOOKERS; i++)
		ck_assert_int_eq(pthread_create(&others[i], NULL, look_at_levels, context), 0);
	for (int i = 0; i < MIPMAPS; i++) {
		ck_cuda(cuMipmappedArrayCreate(&mipmap, &form, 3));
		pthread_barrier_wait(&both);
		ck_cuda(cuMipmappedArrayDestroy(mipmap));
		pthread_barrier_wait(&both);
	}
	for (int i = 0; i < LOOKERS; i++)
		pthread_join(others[i], NULL);
}

int main(void)
{
	Suite *suite = suite_create("threads");
	TCase *tests = tcase_create("threads");

	tcase_set_timeout(tests, 120);
	tcase_add_unchecked_fixture(tests, common_service_start, common_service_stop);
	suite_add(tests, "threads");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
