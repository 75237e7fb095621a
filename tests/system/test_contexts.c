// Contexts: retained, stacked, reset, ended while others want them; the modules, libraries and
// values of the runtime that belong to them.
// The tests run against NVIDIA's library as well and must pass there, but for those that say
// otherwise.

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"

static int is_active(void)
{
	unsigned flags;
	int active;

	ck_cuda(cuDevicePrimaryCtxGetState(0, &flags, &active));
	return active;
}

/* A reset ends the context and takes no retain back. */
TEST(contexts, retains_outlive_a_reset)
{
	driver_attach();
	driver_attach();
	ck_cuda(cuDevicePrimaryCtxReset_v2(0));
	ck_assert(!is_active());
	ck_assert_int_eq(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	driver_attach();
	for (int i = 0; i < 3; i++) {
		ck_assert(is_active());
		ck_cuda(cuDevicePrimaryCtxRelease_v2(0));
	}
	ck_assert(!is_active());
	ck_assert_int_eq(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
}

/* Nor does it leave memory: that of pools belongs to the device, and the reset is the device's.
 * What the driver's library says of the old address is not documented. */
TEST(contexts, a_reset_frees_what_pools_gave)
{
	uint64_t used = UINT64_MAX;
	CUmemoryPool pool;
	CUdeviceptr p;

	if (is_native())
		return;
	driver_attach();
	ck_cuda(cuMemAllocAsync(&p, 64 << 20, NULL));
	ck_cuda(cuDevicePrimaryCtxReset_v2(0));
	driver_attach();
	ck_assert_int_eq(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuDeviceGetDefaultMemPool(&pool, 0));
	ck_cuda(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
	ck_assert_uint_eq(used, 0);
	ck_cuda(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &used));
	ck_assert_uint_eq(used, 0);
	/* Another context goes on using them. */
	ck_cuda(cuMemAllocAsync(&p, 64 << 20, NULL));
	ck_cuda(cuCtxCreate_v2(&(CUcontext){0}, 0, 0));
	ck_cuda(cuDevicePrimaryCtxReset_v2(0));
	ck_cuda(cuMemsetD8_v2(p, 1, 64 << 20));
	ck_cuda(cuMemFree_v2(p));
}

TEST(contexts, contexts_are_stacked_and_destroyed)
{
	CUcontext primary, made, current;
	CUdeviceptr p;

	driver_open();
	ck_cuda(cuCtxGetCurrent(&primary));
	ck_cuda(cuCtxCreate_v2(&made, 0, 0));
	ck_cuda(cuCtxGetCurrent(&current));
	ck_assert_ptr_eq(current, made);
	ck_cuda(cuMemAlloc_v2(&p, 100));
	ck_cuda(cuCtxPopCurrent_v2(&current));
	ck_assert_ptr_eq(current, made);
	ck_cuda(cuCtxGetCurrent(&current));
	ck_assert_ptr_eq(current, primary);
	ck_cuda(cuCtxDestroy_v2(made));
	ck_assert_int_eq(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuCtxSetCurrent(NULL));
	ck_assert_int_eq(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
}

/* Of two contexts one is waited for, while the other's work goes on. */
TEST(contexts, a_context_is_waited_for_alone)
{
	CUcontext busy, other;
	CUstream stream, none;
	CUdeviceptr memory;
	uint32_t *word;

	driver_open();
	word = shared_word();
	ck_cuda(cuCtxGetCurrent(&busy));
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuCtxCreate_v2(&other, 0, 0));
	ck_cuda(cuStreamCreate(&none, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuMemAlloc_v2(&memory, 4));
	ck_cuda(cuCtxPushCurrent_v2(busy));
	ck_cuda(launch_spin(word, 1, stream));
	ck_cuda(cuCtxPopCurrent_v2(&busy));
	ck_cuda(cuMemsetD32Async(memory, 3, 1, none));
	ck_cuda(cuCtxSynchronize());
	ck_cuda(cuStreamQuery(none));
	ck_assert_int_eq(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	ck_cuda(cuCtxSetCurrent(busy));
	ck_cuda(cuCtxSynchronize());
	ck_cuda(cuStreamQuery(stream));
}

TEST(contexts, events_are_recorded_in_their_context)
{
	CUcontext first, second;
	CUstream ours, theirs;
	CUevent event;

	driver_open();
	ck_cuda(cuCtxGetCurrent(&first));
	ck_cuda(cuStreamCreate(&ours, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	ck_cuda(cuCtxCreate_v2(&second, 0, 0));
	ck_cuda(cuStreamCreate(&theirs, CU_STREAM_NON_BLOCKING));
	ck_assert_int_eq(cuEventRecord(event, theirs), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(cuEventRecord(event, NULL), CUDA_ERROR_INVALID_HANDLE);
	/* Who waits for it may be anybody, and so may the thread that records it. */
	ck_cuda(cuEventRecord(event, ours));
	ck_cuda(cuStreamWaitEvent(theirs, event, 0));
	ck_cuda(cuStreamSynchronize(theirs));
	ck_cuda(cuEventQuery(event));
	ck_cuda(cuCtxSetCurrent(first));
	ck_cuda(cuEventRecord(event, NULL));
	ck_cuda(cuEventRecord(event, CU_STREAM_PER_THREAD));
	ck_cuda(cuEventSynchronize(event));
}

static void *retain_and_release(void *image)
{
	int rounds = is_native() ? 5 : 50;

	for (int i = 0; i < rounds; i++) {
		CUcontext context;
		CUdeviceptr memory;
		CUmodule module;

		ck_cuda(cuDevicePrimaryCtxRetain(&context, 0));
		ck_cuda(cuCtxSetCurrent(context));
		ck_cuda(cuMemAlloc_v2(&memory, 1000));
		ck_cuda(cuMemsetD8_v2(memory, 1, 1000));
		ck_cuda(cuMemFree_v2(memory));
		/* To be unloaded with the context: that takes a while. */
		ck_cuda(cuModuleLoadData(&module, image));
		ck_cuda(cuCtxSetCurrent(NULL));
		ck_cuda(cuDevicePrimaryCtxRelease_v2(0));
	}
	return NULL;
}

/* Who has retained it can use it, whoever else has just released it. */
TEST(contexts, a_retained_context_stays)
{
	void *image = read_file(getenv("FRMPS_TEST_KERNELS"));
	pthread_t threads[4];

	ck_cuda(cuInit(0));
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, retain_and_release, image), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	free(image);
}

/* ---- modules and libraries in contexts ---- */

TEST(contexts, globals_belong_to_their_module)
{
	uint32_t words[8], changed[4] = {1, 2, 3, 4};
	void *image = read_file(getenv("FRMPS_TEST_KERNELS"));
	CUdeviceptr global, other, none, out;
	CUmodule second;
	size_t bytes;
	void *arguments[] = {&out};

	driver_open();
	ck_cuda(cuModuleLoadData(&second, image));
	ck_cuda(cuModuleGetGlobal_v2(&global, &bytes, kernels(), "global_words"));
	ck_assert_uint_eq(bytes, 16);
	ck_cuda(cuModuleGetGlobal_v2(&other, NULL, second, "global_words"));
	ck_assert_uint_ne(global, other);
	ck_assert_int_eq(cuModuleGetGlobal_v2(&none, NULL, second, "no_such_words"), CUDA_ERROR_NOT_FOUND);
	ck_cuda(cuMemAlloc_v2(&out, 32));
	ck_cuda(cuMemcpyHtoD_v2(global, changed, 16));
	ck_cuda(launch("read_words", 1, 1, NULL, arguments));
	ck_cuda(cuMemcpyDtoH_v2(words, out, 32));
	ck_assert_int_eq(memcmp(words, changed, 16), 0);
	ck_assert_uint_eq(words[4], 5);
	ck_cuda(cuMemcpyDtoH_v2(words, other, 16));
	ck_assert_uint_eq(words[0], 11);
	ck_cuda(cuModuleUnload(second));
	free(image);
}

/* A library and its kernels outlive the context; its globals do not. */
TEST(contexts, libraries_begin_anew_with_the_next_context)
{
	void *image = read_file(getenv("FRMPS_TEST_KERNELS"));
	uint32_t words[8], changed[4] = {1, 2, 3, 4};
	CUdeviceptr global, out;
	CUkernel read_words;
	CUlibrary library;
	int value = 0;
	void *arguments[] = {&out};

	driver_attach();
	ck_cuda(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
	free(image);
	ck_cuda(cuLibraryGetKernel(&read_words, library, "read_words"));
	ck_cuda(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50, read_words, 0));
	for (int round = 0; round < 3; round++) {
		ck_cuda(cuMemAlloc_v2(&out, 32));
		ck_cuda(cuLaunchKernel((CUfunction)read_words, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
		ck_cuda(cuMemcpyDtoH_v2(words, out, 32));
		ck_assert_uint_eq(words[0], 11);
		ck_cuda(cuLibraryGetGlobal(&global, NULL, library, "global_words"));
		ck_cuda(cuMemcpyHtoD_v2(global, changed, 16));
		ck_cuda(cuLaunchKernel((CUfunction)read_words, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
		ck_cuda(cuMemcpyDtoH_v2(words, out, 32));
		ck_assert_uint_eq(words[0], 1);
		if (round == 0)
			ck_cuda(cuDevicePrimaryCtxReset_v2(0));
		while (is_active())
			ck_cuda(cuDevicePrimaryCtxRelease_v2(0));
		driver_attach();
		ck_assert_int_eq(cuMemFree_v2(out), CUDA_ERROR_INVALID_VALUE);
	}
	ck_cuda(cuKernelGetAttribute(
		&value, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, read_words, 0));
	ck_assert_int_eq(value, 50);
	ck_cuda(cuDevicePrimaryCtxReset_v2(0));
	ck_cuda(cuLibraryUnload(library));
}

struct divided {
	CUlibrary library;
	CUkernel read_words;
};

static struct divided load_divided(void)
{
	void *image = read_file(getenv("FRMPS_TEST_KERNELS"));
	struct divided divided;

	ck_cuda(cuLibraryLoadData(&divided.library, image, NULL, NULL, 0, NULL, NULL, 0));
	ck_cuda(cuLibraryGetKernel(&divided.read_words, divided.library, "read_words"));
	free(image);
	return divided;
}

/* The first word that the kernel reads in the current context, or in that of a stream. */
static uint32_t read_first(CUfunction read_words, CUstream stream)
{
	uint32_t words[8];
	CUdeviceptr out;
	void *arguments[] = {&out};

	ck_cuda(cuMemAlloc_v2(&out, 32));
	ck_cuda(cuLaunchKernel(read_words, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
	ck_cuda(cuStreamSynchronize(stream));
	ck_cuda(cuMemcpyDtoH_v2(words, out, 32));
	ck_cuda(cuMemFree_v2(out));
	return words[0];
}

/* Changes the variable of the current context. Return: its address */
static CUdeviceptr write_first(CUlibrary library, uint32_t value)
{
	CUdeviceptr global;

	ck_cuda(cuLibraryGetGlobal(&global, NULL, library, "global_words"));
	ck_cuda(cuMemcpyHtoD_v2(global, &value, 4));
	return global;
}

TEST(contexts, contexts_have_variables_of_their_own)
{
	struct divided divided;
	CUdeviceptr first, second;
	CUcontext primary, other;
	CUfunction functions[2];
	CUmodule modules[2];
	CUstream stream;

	driver_attach();
	ck_cuda(cuCtxGetCurrent(&primary));
	divided = load_divided();
	first = write_first(divided.library, 1);
	ck_cuda(cuKernelGetFunction(&functions[0], divided.read_words));
	ck_cuda(cuLibraryGetModule(&modules[0], divided.library));
	ck_cuda(cuCtxCreate_v2(&other, 0, 0));
	ck_assert_uint_eq(read_first((CUfunction)divided.read_words, NULL), 11);
	second = write_first(divided.library, 2);
	ck_assert_uint_ne(first, second);
	ck_cuda(cuKernelGetFunction(&functions[1], divided.read_words));
	ck_cuda(cuLibraryGetModule(&modules[1], divided.library));
	ck_assert_ptr_ne(functions[0], functions[1]);
	ck_assert_ptr_ne(modules[0], modules[1]);
	ck_assert_uint_eq(read_first(functions[1], NULL), 2);
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ck_assert_uint_eq(read_first((CUfunction)divided.read_words, stream), 2);
	ck_cuda(cuStreamDestroy_v2(stream));
	ck_cuda(cuCtxSetCurrent(primary));
	ck_assert_uint_eq(read_first((CUfunction)divided.read_words, NULL), 1);
	ck_assert_uint_eq(read_first(functions[0], NULL), 1);
	ck_cuda(cuCtxDestroy_v2(other));
	ck_cuda(cuCtxSetCurrent(primary));
	ck_assert_uint_eq(read_first((CUfunction)divided.read_words, NULL), 1);
	/* The next one begins anew. */
	ck_cuda(cuCtxCreate_v2(&other, 0, 0));
	ck_assert_uint_eq(read_first((CUfunction)divided.read_words, NULL), 11);
	ck_cuda(cuCtxDestroy_v2(other));
	ck_cuda(cuCtxSetCurrent(primary));
	ck_cuda(cuLibraryUnload(divided.library));
}

/* The context ends in which the library was used first; the other one's variables stay what they
 * are. */
TEST(contexts, a_library_outlives_the_first_of_its_contexts)
{
	CUcontext primary, other;
	struct divided divided;
	int value = 0;

	driver_attach();
	ck_cuda(cuCtxGetCurrent(&primary));
	ck_cuda(cuCtxCreate_v2(&other, 0, 0));
	divided = load_divided();
	write_first(divided.library, 2);
	ck_cuda(cuKernelSetAttribute(
		CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50, divided.read_words, 0));
	ck_cuda(cuCtxSetCurrent(primary));
	write_first(divided.library, 1);
	ck_cuda(cuCtxSetCurrent(other));
	ck_assert_uint_eq(read_first((CUfunction)divided.read_words, NULL), 2);
	ck_cuda(cuCtxDestroy_v2(other));
	ck_cuda(cuCtxSetCurrent(primary));
	ck_assert_uint_eq(read_first((CUfunction)divided.read_words, NULL), 1);
	ck_cuda(cuKernelGetAttribute(
		&value, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, divided.read_words, 0));
	ck_assert_int_eq(value, 50);
	ck_cuda(cuCtxCreate_v2(&other, 0, 0));
	ck_assert_uint_eq(read_first((CUfunction)divided.read_words, NULL), 11);
	ck_cuda(cuLibraryUnload(divided.library));
	ck_cuda(cuCtxDestroy_v2(other));
}

/* As cuBLAS loads what it has unpacked. */
TEST(contexts, a_library_is_loaded_with_an_option_and_no_values)
{
	CUlibraryOption option = CU_LIBRARY_BINARY_IS_PRESERVED;
	void *image = read_file(getenv("FRMPS_TEST_KERNELS"));
	CUlibrary library;
	CUkernel kernel;

	driver_open();
	ck_cuda(cuLibraryLoadData(&library, image, NULL, NULL, 0, &option, NULL, 1));
	ck_cuda(cuLibraryGetKernel(&kernel, library, "fill"));
	ck_cuda(cuLibraryUnload(library));
	free(image);
}

/* ---- threads without a current context ---- */

struct handed {
	CUfunction fill;
	CUstream stream;
	CUevent event;
	CUdeviceptr words;
};

/* Other threads give the stream work meanwhile. */
static CUresult answer(CUresult query)
{
	return query == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : query;
}

/* An explicit stream and an event are used in the context that they belong to, whatever context the
 * thread has. */
static void *work_without_context(void *data)
{
	const struct handed *handed = data;
	uint32_t value = 7;
	uint64_t count = 64;
	CUdeviceptr words = handed->words, more;
	void *arguments[] = {&words, &value, &count};
	void *image = read_file(getenv("FRMPS_TEST_KERNELS"));
	CUcontext current = (CUcontext)-1;
	CUlibrary library;

	ck_cuda(cuCtxGetCurrent(&current));
	ck_assert_ptr_null(current);
	ck_cuda(cuLaunchKernel(handed->fill, 2, 1, 1, 32, 1, 1, 0, handed->stream, arguments, NULL));
	ck_cuda(cuEventRecord(handed->event, handed->stream));
	ck_cuda(cuStreamWaitEvent(handed->stream, handed->event, 0));
	ck_cuda(cuStreamSynchronize(handed->stream));
	ck_cuda(answer(cuStreamQuery(handed->stream)));
	ck_cuda(answer(cuEventQuery(handed->event)));
	ck_cuda(cuEventSynchronize(handed->event));
	ck_cuda(cuMemAllocAsync(&more, 4096, handed->stream));
	ck_cuda(cuMemFreeAsync(more, handed->stream));
	ck_cuda(cuStreamSynchronize(handed->stream));
	ck_cuda(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
	ck_cuda(cuLibraryUnload(library));
	free(image);
	/* What belongs to the current context has none. */
	ck_assert_int_eq(cuMemAlloc_v2(&more, 4096), CUDA_ERROR_INVALID_CONTEXT);
	ck_assert_int_eq(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
	ck_assert_int_eq(cuStreamCreate(&(CUstream){0}, 0), CUDA_ERROR_INVALID_CONTEXT);
	ck_assert_int_eq(cuLaunchKernel(handed->fill, 2, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL),
		CUDA_ERROR_INVALID_CONTEXT);
	ck_cuda(cuCtxGetCurrent(&current));
	ck_assert_ptr_null(current);
	return NULL;
}

TEST(contexts, a_thread_without_a_context_uses_streams_and_events)
{
	struct handed handed = {.words = 0};
	uint32_t words[64];
	pthread_t threads[8];

	driver_open();
	handed.fill = kernel("fill");
	handed.words = device_words(64, 0);
	ck_cuda(cuStreamCreate(&handed.stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuEventCreate(&handed.event, 0));
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, work_without_context, &handed), 0);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	ck_cuda(cuMemcpyDtoH_v2(words, handed.words, sizeof(words)));
	for (int i = 0; i < 64; i++)
		ck_assert_uint_eq(words[i], 7);
}

/* The context is one that was made, and nobody's current one. A library's kernel is the one of that
 * context. Copies and graphs are not asked of NVIDIA's library. */
TEST(contexts, a_thread_without_a_context_gives_memory_back)
{
	void *pinned, *own = malloc(4096);
	CUdeviceptr memory;

	driver_open();
	ck_cuda(cuMemAlloc_v2(&memory, 4096));
	ck_cuda(cuMemHostAlloc(&pinned, 4096, 0));
	ck_cuda(cuMemHostRegister_v2(own, 4096, 0));
	ck_cuda(cuCtxSetCurrent(NULL));
	ck_cuda(cuMemFree_v2(0));
	ck_cuda(cuMemFree_v2(memory));
	ck_assert_int_eq(cuMemFree_v2(memory), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuMemFreeHost(NULL));
	ck_cuda(cuMemFreeHost(pinned));
	ck_assert_int_eq(cuMemFreeHost(pinned), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuMemHostUnregister(own));
	ck_assert_int_eq(cuMemHostUnregister(own), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	ck_assert_int_eq(cuMemAlloc_v2(&memory, 4096), CUDA_ERROR_INVALID_CONTEXT);
	free(own);
}

/* What the driver adds to flags that programs give, and what it leaves out. */
TEST(contexts, flags_are_shown_as_the_driver_does)
{
	static const struct {
		unsigned int given, shown;
	} pinned[] = {{0, 2}, {1, 3}, {3, 3}, {4, 6}, {5, 7}},
	  registered[] = {{0, 2}, {1, 3}, {2, 2}, {3, 3}};
	void *memory, *own = malloc(4096);
	unsigned int flags;
	CUcontext made;

	driver_open();
	ck_cuda(cuCtxSetFlags(CU_CTX_SCHED_SPIN));
	ck_cuda(cuCtxGetFlags(&flags));
	ck_assert_uint_eq(flags, CU_CTX_SCHED_SPIN | CU_CTX_MAP_HOST);
	for (size_t i = 0; i < sizeof(pinned) / sizeof(*pinned); i++) {
		ck_cuda(cuMemHostAlloc(&memory, 4096, pinned[i].given));
		ck_cuda(cuMemHostGetFlags(&flags, memory));
		ck_assert_uint_eq(flags, pinned[i].shown);
		ck_cuda(cuMemFreeHost(memory));
	}
	for (size_t i = 0; i < sizeof(registered) / sizeof(*registered); i++) {
		ck_cuda(cuMemHostRegister_v2(own, 4096, registered[i].given));
		ck_cuda(cuMemHostGetFlags(&flags, own));
		ck_assert_uint_eq(flags, registered[i].shown);
		ck_cuda(cuMemHostUnregister(own));
	}
	ck_cuda(cuCtxCreate_v2(&made, CU_CTX_SCHED_YIELD, 0));
	ck_cuda(cuCtxGetFlags(&flags));
	ck_assert_uint_eq(flags, CU_CTX_SCHED_YIELD);
	ck_cuda(cuCtxDestroy_v2(made));
	free(own);
}

TEST(contexts, limits_are_rounded)
{
	static const struct {
		CUlimit limit;
		size_t wish, limited;
	} wishes[] = {{CU_LIMIT_STACK_SIZE, 1000, 1008}, {CU_LIMIT_STACK_SIZE, 1, 16},
		{CU_LIMIT_MALLOC_HEAP_SIZE, 1, 4 << 20}, {CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 128, 128}};
	size_t limited;

	driver_open();
	for (size_t i = 0; i < sizeof(wishes) / sizeof(*wishes); i++) {
		ck_cuda(cuCtxSetLimit(wishes[i].limit, wishes[i].wish));
		ck_cuda(cuCtxGetLimit(&limited, wishes[i].limit));
		ck_assert_uint_eq(limited, wishes[i].limited);
	}
	ck_assert_int_eq(cuCtxSetLimit(CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 129), CUDA_ERROR_INVALID_VALUE);
}

TEST(contexts, a_stream_brings_its_context)
{
	static uint32_t words[8], value = 9;
	CUcontext primary, other;
	struct divided divided;
	CUgraphExec exec;
	CUdeviceptr out;
	CUstream stream;
	CUgraph graph;
	CUevent begin, end;
	float ms;
	void *arguments[] = {&out};

	driver_attach();
	ck_cuda(cuCtxGetCurrent(&primary));
	divided = load_divided();
	write_first(divided.library, 1);
	ck_cuda(cuCtxCreate_v2(&other, 0, 0));
	write_first(divided.library, 2);
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuEventCreate(&begin, 0));
	ck_cuda(cuEventCreate(&end, 0));
	ck_cuda(cuMemAlloc_v2(&out, 32));
	ck_cuda(cuCtxSetCurrent(NULL));
	ck_cuda(cuCtxSetCurrent(NULL));
	ck_cuda(cuEventRecord(begin, stream));
	ck_cuda(cuLaunchKernel((CUfunction)divided.read_words, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
	ck_cuda(cuEventRecord(end, stream));
	ck_cuda(cuStreamSynchronize(stream));
	ck_cuda(cuEventElapsedTime(&ms, begin, end));
	if (!is_native()) {
		ck_cuda(cuMemcpyDtoHAsync_v2(words, out, 32, stream));
		ck_cuda(cuStreamSynchronize(stream));
		ck_assert_uint_eq(words[0], 2);
		ck_cuda(cuMemsetD32Async(out, value, 8, stream));
		ck_cuda(cuMemcpyDtoHAsync_v2(words, out, 32, stream));
		ck_cuda(cuStreamSynchronize(stream));
		ck_assert_uint_eq(words[7], value);
		ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
		ck_cuda(cuLaunchKernel(
			(CUfunction)divided.read_words, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
		ck_cuda(cuStreamEndCapture(stream, &graph));
		ck_cuda(cuCtxSetCurrent(primary));
		ck_cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
		ck_cuda(cuCtxSetCurrent(NULL));
		ck_cuda(cuGraphLaunch(exec, stream));
		ck_cuda(cuStreamSynchronize(stream));
	}
	ck_cuda(cuEventDestroy_v2(begin));
	ck_cuda(cuEventDestroy_v2(end));
	ck_cuda(cuStreamDestroy_v2(stream));
	ck_cuda(cuCtxSetCurrent(other));
	ck_cuda(cuMemcpyDtoH_v2(words, out, 32));
	ck_assert_uint_eq(words[0], 2);
	ck_cuda(cuCtxDestroy_v2(other));
	ck_cuda(cuCtxSetCurrent(primary));
	ck_cuda(cuLibraryUnload(divided.library));
}

static pthread_key_t late_key;
static CUresult late_result = CUDA_ERROR_UNKNOWN;

static void free_late(void *memory)
{
	late_result = cuMemFree_v2(*(CUdeviceptr *)memory);
}

static void *leave_memory(void *context)
{
	static CUdeviceptr memory;

	ck_cuda(cuCtxSetCurrent(context));
	ck_cuda(cuMemAlloc_v2(&memory, 4096));
	ck_cuda(cuMemsetD8Async_ptsz(memory, 1, 4096, NULL));
	ck_assert_int_eq(pthread_setspecific(late_key, &memory), 0);
	return NULL;
}

/* What a thread gives back when it ends, after the library has ended its default stream. The order
 * in which NVIDIA's library does it is not documented. */
TEST(contexts, a_thread_that_ends_has_its_context)
{
	CUdeviceptr memory;
	CUcontext context;
	pthread_t thread;

	if (is_native())
		return;
	driver_attach();
	ck_cuda(cuCtxGetCurrent(&context));
	/* The library's key comes first. */
	ck_cuda(cuMemAlloc_v2(&memory, 4096));
	ck_cuda(cuMemsetD8Async_ptsz(memory, 1, 4096, NULL));
	ck_assert_int_eq(pthread_key_create(&late_key, free_late), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, leave_memory, context), 0);
	pthread_join(thread, NULL);
	ck_assert_int_eq(late_result, CUDA_SUCCESS);
}

/* ---- values of the runtime ---- */

typedef CUresult storage_put(CUcontext context, void *key, void *value, void *destructor);
typedef CUresult storage_get(void **value, CUcontext context, void *key);

/* Values of the runtime and of its libraries, which take them for a sign that all is as it was. */
static void *const *storage(void)
{
	static const CUuuid id = {{(char)0xc6, (char)0x93, 0x33, 0x6e, 0x11, 0x21, (char)0xdf, 0x11,
		(char)0xa8, (char)0xc3, 0x68, (char)0xf3, 0x55, (char)0xd8, (char)0x95, (char)0x93}};
	const void *table;

	ck_cuda(cuGetExportTable(&table, &id));
	return table;
}

static int a_key;

static int look_in_child(int unused)
{
	CUcontext context = (CUcontext)-1;
	void *value;

	(void)unused;
	return ((storage_get *)storage()[2])(&value, context, &a_key) == CUDA_SUCCESS;
}

TEST(contexts, a_forked_child_does_not_find_its_parents_values)
{
	CUcontext context;
	void *value;

	if (is_native())
		return;
	driver_attach();
	ck_cuda(cuCtxGetCurrent(&context));
	ck_cuda(((storage_put *)storage()[0])(context, &a_key, &context, NULL));
	ck_cuda(((storage_get *)storage()[2])(&value, context, &a_key));
	ck_assert_ptr_eq(value, &context);
	ck_assert_int_eq(exit_status(spawn(look_in_child, 0)), 0);
}

static sem_t is_ending;

static void end_slowly(CUcontext context, void *key, void *value)
{
	(void)context;
	(void)key;
	(void)value;
	sem_post(&is_ending);
	pass_time(100);
}

static void *retain_at_the_end(void *unused)
{
	CUcontext context;
	CUdeviceptr memory;

	(void)unused;
	sem_wait(&is_ending);
	ck_cuda(cuDevicePrimaryCtxRetain(&context, 0));
	ck_cuda(cuCtxSetCurrent(context));
	ck_cuda(cuMemAlloc_v2(&memory, 1000));
	ck_cuda(cuMemsetD8_v2(memory, 1, 1000));
	return NULL;
}

/* The runtime's values of a context end with it, and while they do, another thread wants it
 * again. */
TEST(contexts, a_context_is_retained_while_it_ends)
{
	unsigned int flags;
	CUcontext context;
	pthread_t thread;
	int active;

	if (is_native())
		return;
	sem_init(&is_ending, 0, 0);
	driver_attach();
	ck_cuda(cuCtxGetCurrent(&context));
	ck_cuda(((storage_put *)storage()[0])(context, &a_key, &context, (void *)end_slowly));
	ck_assert_int_eq(pthread_create(&thread, NULL, retain_at_the_end, NULL), 0);
	ck_cuda(cuDevicePrimaryCtxRelease_v2(0));
	pthread_join(thread, NULL);
	ck_cuda(cuDevicePrimaryCtxGetState(0, &flags, &active));
	ck_assert(active);
	ck_cuda(cuCtxSynchronize());
}

int main(void)
{
	Suite *suite = suite_create("contexts");
	TCase *tests = tcase_create("contexts");

	tcase_set_timeout(tests, 120);
	tcase_add_unchecked_fixture(tests, common_service_start, common_service_stop);
	suite_add(tests, "contexts");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
