// What the capturing thread and others may do while a stream captures, by the modes of captures and
// threads. The tests run against NVIDIA's library as well and must pass there.

#include <pthread.h>
#include <stdlib.h>

#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/graphs.h"
#include "tests/system/program.h"

static CUevent outside_event; /* of no capture, as the stream */
static CUstream outside_stream;

static CUresult do_alloc(void)
{
	CUdeviceptr memory;

	return cuMemAlloc_v2(&memory, 4096);
}

static CUresult do_host_alloc(void)
{
	void *memory;

	return cuMemHostAlloc(&memory, 4096, 0);
}

static CUresult do_event_query(void)
{
	return cuEventQuery(outside_event);
}

static CUresult do_event_synchronize(void)
{
	return cuEventSynchronize(outside_event);
}

static CUresult do_stream_query(void)
{
	return cuStreamQuery(outside_stream);
}

static CUresult do_stream_synchronize(void)
{
	return cuStreamSynchronize(outside_stream);
}

static CUdeviceptr device_word;

static CUresult do_free(void)
{
	CUdeviceptr freed = device_word;
	CUresult r = cuMemFree_v2(freed);

	if (r == CUDA_SUCCESS)
		device_word = device_words(1, 0);
	return r;
}

static CUresult do_copy(void)
{
	uint32_t word = 1;

	return cuMemcpyHtoD_v2(device_word, &word, 4);
}

static CUresult do_set(void)
{
	return cuMemsetD8_v2(device_word, 1, 4);
}

static CUresult do_create_stream(void)
{
	CUstream stream;

	return cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
}

static CUresult do_load(void)
{
	void *image = read_file(getenv("FRMPS_TEST_KERNELS"));
	CUmodule module;
	CUresult r = cuModuleLoadData(&module, image);

	free(image);
	return r;
}

static CUdeviceptr managed_word;

static CUresult do_alloc_managed(void)
{
	CUdeviceptr memory;

	return cuMemAllocManaged(&memory, 4096, CU_MEM_ATTACH_GLOBAL);
}

static CUresult do_advise(void)
{
	return cuMemAdvise(managed_word, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, 0);
}

static CUresult do_prefetch(void)
{
	return cuMemPrefetchAsync(managed_word, 4096, 0, outside_stream);
}

static CUmemoryPool pool;

static CUresult do_pool_get(void)
{
	uint64_t bytes;

	return cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes);
}

static CUresult do_pool_set(void)
{
	uint64_t bytes = 0;

	return cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes);
}

static CUdeviceptr pool_word; /* freed by one call, and then there again */

static CUresult do_alloc_async(void)
{
	CUdeviceptr memory;

	return cuMemAllocAsync(&memory, 64, outside_stream);
}

static CUresult do_free_async(void)
{
	CUresult r = cuMemFreeAsync(pool_word, outside_stream);

	if (r == CUDA_SUCCESS)
		ck_cuda(cuMemAllocAsync(&pool_word, 64, outside_stream));
	return r;
}

static CUresult do_alloc_from_pool(void)
{
	CUdeviceptr memory;

	return cuMemAllocFromPoolAsync(&memory, 64, pool, outside_stream);
}

static CUresult do_pool_create(void)
{
	const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemoryPool made;

	return cuMemPoolCreate(&made, &properties);
}

static CUresult do_pool_trim(void)
{
	return cuMemPoolTrimTo(pool, 0);
}

static CUresult do_pool_choose(void)
{
	return cuDeviceSetMemPool(0, pool);
}

static CUresult do_pool_access(void)
{
	const CUmemAccessDesc access = {
		{.type = CU_MEM_LOCATION_TYPE_DEVICE}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	return cuMemPoolSetAccess(pool, &access, 1);
}

static CUmodule module;

static CUresult do_unload(void)
{
	void *image;
	CUresult r = cuModuleUnload(module);

	if (r == CUDA_SUCCESS) {
		image = read_file(getenv("FRMPS_TEST_KERNELS"));
		ck_cuda(cuModuleLoadData(&module, image));
		free(image);
	}
	return r;
}

static CUresult do_pointer_set(void)
{
	unsigned int on = 1;

	return cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, device_word);
}

static CUgraph empty_graph;
static CUgraphExec empty_exec;

static CUresult do_instantiate(void)
{
	CUgraphExec exec;

	return cuGraphInstantiateWithFlags(&exec, empty_graph, 0);
}

static CUresult do_destroy_exec(void)
{
	CUresult r = cuGraphExecDestroy(empty_exec);

	if (r == CUDA_SUCCESS)
		ck_cuda(cuGraphInstantiateWithFlags(&empty_exec, empty_graph, 0));
	return r;
}

static CUresult do_launch_graph(void)
{
	return cuGraphLaunch(empty_exec, outside_stream);
}

static CUresult do_limit(void)
{
	return cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20);
}

static CUresult do_cache_config(void)
{
	return cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_NONE);
}

static CUresult do_attach(void)
{
	return cuStreamAttachMemAsync(outside_stream, managed_word, 0, CU_MEM_ATTACH_GLOBAL);
}

/* What a capture forbids by its mode, and what it does not. The first ones are made by other
 * threads, too. */
static const struct {
	CUresult (*call)(void);
	bool unsafe;
} visits[] = {{do_alloc, true}, {do_event_query, true}, {do_stream_query, true},
	{do_stream_synchronize, true}, {do_event_synchronize, true}, {do_copy, false}, {do_host_alloc, true},
	{do_free, true}, {do_set, false}, {do_create_stream, false}, {do_load, false},
	{do_alloc_managed, true}, {do_advise, true}, {do_prefetch, false}, {do_pool_get, true},
	{do_pool_set, true}, {do_alloc_async, true}, {do_free_async, true}, {do_alloc_from_pool, true},
	{do_pool_create, true}, {do_pool_trim, true}, {do_pool_choose, true}, {do_pool_access, true},
	{do_unload, true}, {do_pointer_set, true}, {do_instantiate, true}, {do_destroy_exec, true},
	{do_launch_graph, false}, {do_limit, true}, {do_cache_config, true}, {do_attach, true}};

#define VISITS	       (sizeof(visits) / sizeof(*visits))
#define VISITS_OUTSIDE 6

static void outside_open(void)
{
	void *image = read_file(getenv("FRMPS_TEST_KERNELS"));

	driver_open();
	outside_stream = new_stream();
	outside_event = new_event();
	device_word = device_words(1, 0);
	ck_cuda(cuMemAllocManaged(&managed_word, 4096, CU_MEM_ATTACH_GLOBAL));
	ck_cuda(cuDeviceGetDefaultMemPool(&pool, 0));
	ck_cuda(cuMemAllocAsync(&pool_word, 64, outside_stream));
	ck_cuda(cuModuleLoadData(&module, image));
	free(image);
	ck_cuda(cuGraphCreate(&empty_graph, 0));
	ck_cuda(cuGraphInstantiateWithFlags(&empty_exec, empty_graph, 0));
	ck_cuda(cuEventRecord(outside_event, outside_stream));
	ck_cuda(cuStreamSynchronize(outside_stream));
}

/* A thread beside one that captures. */
struct visitor {
	CUcontext context;
	CUstreamCaptureMode mode;
	CUresult (*call)(void);
	CUresult result;
};

static void *visit(void *argument)
{
	struct visitor *visitor = argument;

	ck_cuda(cuCtxSetCurrent(visitor->context));
	ck_cuda(cuThreadExchangeStreamCaptureMode(&visitor->mode));
	visitor->result = visitor->call();
	return NULL;
}

/* What a call in a thread of its own returns. */
static CUresult visited(CUresult (*call)(void), CUstreamCaptureMode mode)
{
	struct visitor visitor = {.mode = mode, .call = call};
	pthread_t thread;

	ck_cuda(cuCtxGetCurrent(&visitor.context));
	ck_assert_int_eq(pthread_create(&thread, NULL, visit, &visitor), 0);
	pthread_join(thread, NULL);
	return visitor.result;
}

/* Ends a capture in which such a call was made. */
static void end_after(CUstream stream, CUresult result, bool forbidden)
{
	CUgraph graph;

	ck_assert_int_eq(result, forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS);
	ck_assert_int_eq(capture_status(stream),
		forbidden ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE);
	if (forbidden)
		end_broken(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	else
		ck_cuda(cuStreamEndCapture(stream, &graph));
}

static const CUstreamCaptureMode capture_modes[] = {
	CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED};

TEST(capture_modes, modes_say_what_the_thread_may_do)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUstream stream;

	outside_open();
	stream = new_stream();
	ck_cuda(cuThreadExchangeStreamCaptureMode(&mode));
	ck_assert_int_eq(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
	ck_cuda(cuThreadExchangeStreamCaptureMode(&mode));
	ck_assert_int_eq(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
	for (int i = 0; i < 3; i++) {
		mode = capture_modes[i];
		for (size_t k = 0; k < VISITS; k++) {
			ck_cuda(cuStreamBeginCapture_v2(stream, mode));
			end_after(stream, visits[k].call(),
				visits[k].unsafe && mode != CU_STREAM_CAPTURE_MODE_RELAXED);
		}
		ck_cuda(cuStreamBeginCapture_v2(stream, mode));
		end_after(stream, cuCtxSynchronize(), true);
	}
}

TEST(capture_modes, modes_say_what_other_threads_may_do)
{
	CUstream stream;

	outside_open();
	stream = new_stream();
	for (int i = 0; i < 9; i++) {
		CUstreamCaptureMode mine = capture_modes[i / 3], theirs = capture_modes[i % 3];
		bool forbids =
			mine == CU_STREAM_CAPTURE_MODE_GLOBAL && theirs == CU_STREAM_CAPTURE_MODE_GLOBAL;

		for (size_t k = 0; k < VISITS_OUTSIDE; k++) {
			ck_cuda(cuStreamBeginCapture_v2(stream, mine));
			end_after(stream, visited(visits[k].call, theirs), forbids && visits[k].unsafe);
		}
	}
}

static CUstream captured_stream;

static CUresult do_end(void)
{
	CUgraph graph;

	return cuStreamEndCapture(captured_stream, &graph);
}

TEST(capture_modes, another_thread_ends_a_capture)
{
	CUgraph graph;

	outside_open();
	captured_stream = new_stream();
	for (int i = 0; i < 2; i++) {
		ck_cuda(cuStreamBeginCapture_v2(captured_stream, capture_modes[i]));
		ck_assert_int_eq(visited(do_end, CU_STREAM_CAPTURE_MODE_GLOBAL),
			CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
		ck_assert_int_eq(capture_status(captured_stream), CU_STREAM_CAPTURE_STATUS_NONE);
		ck_cuda(visited(do_alloc, CU_STREAM_CAPTURE_MODE_GLOBAL));
		ck_assert_int_eq(cuStreamEndCapture(captured_stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
	}
	ck_cuda(cuStreamBeginCapture_v2(captured_stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(visited(do_end, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ck_assert_int_eq(capture_status(captured_stream), CU_STREAM_CAPTURE_STATUS_NONE);
}

int main(void)
{
	Suite *suite = suite_create("capture_modes");
	TCase *tests = tcase_create("capture_modes");

	tcase_set_timeout(tests, 120);
	tcase_add_unchecked_fixture(tests, common_service_start, common_service_stop);
	suite_add(tests, "capture_modes");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
