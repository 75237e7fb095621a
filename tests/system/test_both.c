// One process that works on two devices: memory, modules, streams, events, graphs, pinned memory
// and threads on each, copies and waits from one to the other, and what is left when one of them
// faults, is lost or is drained. Devices are those of the host backend.

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol/place.h"
#include "protocol/wire.h"
#include "server/tools/ask.h"
#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/both.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define FAILS(call, code) ck_assert_int_eq((int)(call), CUDA_ERROR_##code)

static uint8_t *pattern(size_t bytes, unsigned seed)
{
	uint8_t *p = malloc(bytes);

	for (size_t i = 0; i < bytes; i++)
		p[i] = (uint8_t)((i * 2654435761u >> 7) + seed);
	return p;
}

/*
 * Each on its own
 */

static int alternate(int unused)
{
	CUdeviceptr a;
	CUcontext owner;
	int ordinal;

	(void)unused;
	both_open();
	for (uint32_t round = 0; round < 20; round++)
		ck_assert(works((int)round % 2, round));
	for (int i = 0; i < 2; i++) {
		use(1 - i);
		ck_cuda(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, sides[i].in));
		ck_assert_int_eq(ordinal, i);
		ck_cuda(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, sides[i].in));
		ck_assert_ptr_eq(owner, sides[i].context);
		ck_cuda(cuStreamGetDevice(sides[i].stream, &ordinal));
		ck_assert_int_eq(ordinal, i);
	}
	/* Whatever is current. */
	use(0);
	ck_cuda(cuMemFree_v2(sides[1].in));
	FAILS(cuMemFree_v2(sides[1].in), INVALID_VALUE);
	ck_cuda(cuMemAlloc_v2(&a, MIB));
	ck_cuda(cuMemFree_v2(a));
	ck_assert_int_gt(status_session(both_device(0), getpid()), 0);
	ck_assert_int_gt(status_session(both_device(1), getpid()), 0);
	return 0;
}

TEST(each, a_process_works_on_both)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(alternate, 0)), 0);
	status_await_no_sessions(both_device(0));
	status_await_no_sessions(both_device(1));
}

static void *work_alone(void *argument)
{
	int ordinal = (int)(intptr_t)argument;
	CUstream stream = CU_STREAM_PER_THREAD;

	use(ordinal);
	for (uint32_t round = 0; round < 200; round++) {
		CUdeviceptr out = 0;

		ck_cuda(cuMemAllocAsync(&out, WORDS * 4, stream));
		ck_cuda(mix(ordinal, out, sides[ordinal].in, round, stream));
		ck_cuda(cuStreamSynchronize(stream));
		if (!are_mixed(out, 3 + (uint32_t)ordinal, round))
			return (void *)1;
		ck_cuda(cuMemFreeAsync(out, stream));
		/* Its default stream is another one on each device. */
		if (round % 50 == 49) {
			use(1 - ordinal);
			ck_cuda(cuStreamSynchronize(stream));
			use(ordinal);
		}
	}
	return NULL;
}

static int work_in_threads(int unused)
{
	pthread_t threads[4];
	void *result;

	(void)unused;
	both_open();
	for (intptr_t i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, work_alone, (void *)(i % 2)), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], &result);
		ck_assert_ptr_null(result);
	}
	return 0;
}

TEST(each, each_thread_has_its_device)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(work_in_threads, 0)), 0);
}

static int mix_up(int unused)
{
	CUdeviceptr pointer;
	CUmemoryPool pool;
	CUevent event;

	(void)unused;
	both_open();
	use(0);
	FAILS(mix(0, sides[0].out, sides[0].in, 1, sides[1].stream), INVALID_HANDLE);
	FAILS(mix(1, sides[1].out, sides[1].in, 1, NULL), INVALID_HANDLE);
	ck_cuda(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	FAILS(cuEventRecord(event, sides[1].stream), INVALID_HANDLE);
	FAILS(cuMemsetD8Async(sides[1].in, 1, 4, sides[0].stream), INVALID_VALUE);
	ck_cuda(cuMemsetD8_v2(sides[1].out, 1, 4));
	FAILS(cuStreamWriteValue32_v2(sides[0].stream, sides[1].in, 1, 0), INVALID_VALUE);
	ck_cuda(cuDeviceGetDefaultMemPool(&pool, 1));
	FAILS(cuMemAllocFromPoolAsync(&pointer, 64, pool, sides[0].stream), INVALID_VALUE);
	FAILS(cuDeviceSetMemPool(0, pool), INVALID_VALUE);
	/* Nothing of that has left anything. */
	ck_assert(works(0, 7) && works(1, 8));
	return 0;
}

TEST(each, what_belongs_to_the_other_is_refused)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(mix_up, 0)), 0);
}

static int share_library(int unused)
{
	void *image = read_file(getenv("FRMPS_TEST_KERNELS"));
	CUlibrary library;
	CUkernel kernel_;

	(void)unused;
	both_open();
	use(1);
	ck_cuda(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
	ck_cuda(cuLibraryGetKernel(&kernel_, library, "mix"));
	for (uint32_t round = 0; round < 6; round++) {
		int ordinal = (int)round % 2;
		uint64_t count = WORDS;
		void *arguments[] = {&sides[ordinal].out, &sides[ordinal].in, &round, &count};

		use(ordinal);
		ck_cuda(cuLaunchKernel((CUfunction)kernel_, 4, 1, 1, 64, 1, 1, 0,
			round < 4 ? sides[ordinal].stream : NULL, arguments, NULL));
		ck_cuda(cuCtxSynchronize());
		ck_assert(are_mixed(sides[ordinal].out, 3 + (uint32_t)ordinal, round));
	}
	ck_cuda(cuLibraryUnload(library));
	free(image);
	return 0;
}

TEST(each, a_library_is_there_on_both)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(share_library, 0)), 0);
}

/* Their drivers may give both the same address. */
static int write_variables(int unused)
{
	CUdeviceptr at[2];
	uint32_t word;
	size_t bytes;

	(void)unused;
	both_open();
	for (int i = 0; i < 2; i++) {
		use(i);
		ck_cuda(cuModuleGetGlobal_v2(&at[i], &bytes, sides[i].module, "global_words"));
		word = 100 + (uint32_t)i;
		ck_cuda(cuMemcpyHtoD_v2(at[i], &word, sizeof(word)));
	}
	for (int i = 0; i < 2; i++) {
		use(i);
		ck_cuda(cuMemcpyDtoH_v2(&word, at[i], sizeof(word)));
		ck_assert_uint_eq(word, 100 + (uint32_t)i);
	}
	use(0);
	ck_cuda(cuModuleUnload(sides[0].module));
	use(1);
	ck_cuda(cuMemcpyDtoH_v2(&word, at[1], sizeof(word)));
	ck_assert_uint_eq(word, 101);
	return 0;
}

TEST(each, variables_are_of_their_device)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(write_variables, 0)), 0);
}

static CUgraphExec capture_mix(int ordinal, int current)
{
	CUgraphExec exec;
	CUgraph graph;

	use(ordinal);
	ck_cuda(cuStreamBeginCapture_v2(sides[ordinal].stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(mix(ordinal, sides[ordinal].out, sides[ordinal].in, 5, sides[ordinal].stream));
	ck_cuda(cuStreamEndCapture(sides[ordinal].stream, &graph));
	use(current);
	ck_cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
	ck_cuda(cuGraphDestroy(graph));
	return exec;
}

static int run_graphs(int unused)
{
	CUgraphExec execs[2];
	CUevent event;
	CUgraph graph;

	(void)unused;
	both_open();
	for (int i = 0; i < 2; i++) {
		execs[i] = capture_mix(i, 1 - i);
		ck_cuda(cuGraphLaunch(execs[i], sides[i].stream));
		FAILS(cuGraphLaunch(execs[i], sides[1 - i].stream), NOT_SUPPORTED);
		ck_cuda(cuStreamSynchronize(sides[i].stream));
		ck_assert(are_mixed(sides[i].out, 3 + (uint32_t)i, 5));
	}
	/* One graph of both is refused by name. */
	use(0);
	ck_cuda(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	ck_cuda(cuStreamBeginCapture_v2(sides[0].stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(cuEventRecord(event, sides[0].stream));
	FAILS(cuStreamWaitEvent(sides[1].stream, event, 0), STREAM_CAPTURE_UNSUPPORTED);
	FAILS(cuStreamEndCapture(sides[0].stream, &graph), STREAM_CAPTURE_INVALIDATED);
	for (int i = 0; i < 2; i++)
		ck_cuda(cuGraphExecDestroy(execs[i]));
	ck_assert(works(0, 7) && works(1, 8));
	return 0;
}

TEST(each, graphs_run_on_their_device)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(run_graphs, 0)), 0);
}

static int reset_one(int unused)
{
	CUcontext again;
	CUdeviceptr p;

	(void)unused;
	both_open();
	ck_cuda(cuDevicePrimaryCtxReset_v2(1));
	ck_assert(works(0, 3));
	use(1);
	FAILS(cuMemAlloc_v2(&p, MIB), CONTEXT_IS_DESTROYED);
	ck_cuda(cuDevicePrimaryCtxRetain(&again, 1));
	ck_cuda(cuMemAlloc_v2(&p, MIB));
	ck_cuda(cuMemsetD8_v2(p, 7, MIB));
	ck_cuda(cuCtxSynchronize());
	ck_assert(works(0, 4));
	return 0;
}

TEST(each, a_reset_is_of_one)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(reset_one, 0)), 0);
}

/*
 * From one to the other
 */

/* Holds a side's stream until the word has the value. */
static void hold(int ordinal, uint32_t *word, uint32_t value)
{
	CUdeviceptr address = (CUdeviceptr)(uintptr_t)word;

	ck_cuda(cuStreamWaitValue32_v2(sides[ordinal].stream, address, value, CU_STREAM_WAIT_VALUE_GEQ));
}

static uint32_t *word_of(int ordinal)
{
	void *word;

	use(ordinal);
	ck_cuda(cuMemHostAlloc(&word, 4096, 0));
	memset(word, 0, 4096);
	return word;
}

static int wait_across(int first)
{
	int second = 1 - first;
	uint32_t *held, *seen;
	CUevent event;

	both_open();
	held = word_of(first);
	seen = word_of(second);
	use(first);
	ck_cuda(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	for (uint32_t round = 1; round <= 10; round++) {
		use(first);
		hold(first, held, round);
		ck_cuda(cuEventRecord(event, sides[first].stream));
		use(second);
		ck_cuda(cuStreamWaitEvent(sides[second].stream, event, 0));
		ck_cuda(cuStreamWriteValue32_v2(
			sides[second].stream, (CUdeviceptr)(uintptr_t)seen, round, 0));
		FAILS(cuStreamQuery(sides[second].stream), NOT_READY);
		FAILS(cuEventQuery(event), NOT_READY);
		ck_assert_uint_eq(__atomic_load_n(seen, __ATOMIC_ACQUIRE), round - 1);
		__atomic_store_n(held, round, __ATOMIC_RELEASE);
		ck_cuda(cuStreamSynchronize(sides[second].stream));
		ck_assert_uint_eq(__atomic_load_n(seen, __ATOMIC_ACQUIRE), round);
		ck_cuda(cuEventSynchronize(event));
	}
	/* What is done needs no wait. */
	ck_cuda(cuStreamWaitEvent(sides[second].stream, event, 0));
	ck_cuda(cuStreamSynchronize(sides[second].stream));
	return 0;
}

TEST_LOOP(across, a_stream_waits_for_the_other_devices_event, 0, 2)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(wait_across, _i)), 0);
}

/* Many waits in a row in both directions, none of them done at the call. */
static int ping_pong(int unused)
{
	CUevent events[2];
	uint32_t *held;

	(void)unused;
	both_open();
	held = word_of(0);
	for (int i = 0; i < 2; i++) {
		use(i);
		ck_cuda(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
	}
	hold(0, held, 1);
	for (uint32_t round = 0; round < 100; round++)
		for (int i = 0; i < 2; i++) {
			use(i);
			ck_cuda(mix(i, sides[i].out, sides[i].in, round, sides[i].stream));
			ck_cuda(cuEventRecord(events[i], sides[i].stream));
			ck_cuda(cuStreamWaitEvent(sides[1 - i].stream, events[i], 0));
		}
	__atomic_store_n(held, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < 2; i++) {
		ck_cuda(cuStreamSynchronize(sides[i].stream));
		use(i);
		ck_assert(are_mixed(sides[i].out, 3 + (uint32_t)i, 99));
	}
	return 0;
}

TEST(across, waits_go_to_and_fro)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(ping_pong, 0)), 0);
}

static const size_t sizes[] = {1, 4096, 65536, 65537, 5 * MIB + 3, 33 * MIB};

static int copy_now(int which)
{
	size_t bytes = sizes[which];
	uint8_t *from = pattern(bytes, 3), *to = malloc(bytes);
	CUdeviceptr p[2];

	both_open();
	for (int i = 0; i < 2; i++) {
		use(i);
		ck_cuda(cuMemAlloc_v2(&p[i], bytes));
		ck_cuda(cuMemsetD8_v2(p[i], 0xee, bytes));
	}
	/* Either way, whichever is current, by each call. */
	for (int way = 0; way < 8; way++) {
		int src = way % 2, dst = 1 - src;

		use(way / 2 % 2);
		from[bytes / 2] = (uint8_t)way;
		ck_cuda(cuMemcpyHtoD_v2(p[src], from, bytes));
		if (way < 4)
			ck_cuda(cuMemcpyPeer(p[dst], sides[dst].context, p[src], sides[src].context, bytes));
		else
			ck_cuda(way < 6 ? cuMemcpy(p[dst], p[src], bytes)
					: cuMemcpyDtoD_v2(p[dst], p[src], bytes));
		memset(to, 0, bytes);
		ck_cuda(cuMemcpyDtoH_v2(to, p[dst], bytes));
		ck_assert_int_eq(memcmp(from, to, bytes), 0);
	}
	return 0;
}

TEST_LOOP(across, a_copy_goes_from_one_to_the_other, 0, 6)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(copy_now, _i)), 0);
}

/* The stream is that of the source, of the destination, or of the third: both are on the other. */
static int copy_later(int which)
{
	int src = which & 1, in = which >> 1 & 1, dst = 1 - src;
	CUevent event;
	uint32_t *held;

	both_open();
	held = word_of(in);
	use(in);
	ck_cuda(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	for (uint32_t round = 1; round < 6; round++) {
		hold(in, held, round);
		/* Behind the kernel, which is behind the hold; the next kernel is behind the
		 * copy. */
		use(src);
		if (src == in) {
			ck_cuda(mix(src, sides[src].out, sides[src].in, round, sides[src].stream));
		} else {
			ck_cuda(mix(src, sides[src].out, sides[src].in, round, NULL));
			ck_cuda(cuCtxSynchronize());
		}
		ck_cuda(cuMemcpyPeerAsync(sides[dst].in, sides[dst].context, sides[src].out,
			sides[src].context, WORDS * 4, sides[in].stream));
		use(in);
		ck_cuda(cuEventRecord(event, sides[in].stream));
		FAILS(cuStreamQuery(sides[in].stream), NOT_READY);
		use(dst);
		ck_cuda(cuStreamWaitEvent(sides[dst].stream, event, 0));
		ck_cuda(cuMemcpyAsync(sides[dst].out, sides[dst].in, WORDS * 4, sides[dst].stream));
		__atomic_store_n(held, round, __ATOMIC_RELEASE);
		ck_cuda(cuStreamSynchronize(sides[dst].stream));
		ck_assert(are_mixed(sides[dst].out, 3 + (uint32_t)src, round));
	}
	return 0;
}

TEST_LOOP(across, a_copy_comes_in_the_order_of_its_stream, 0, 4)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(copy_later, _i)), 0);
}

/* Rows, planes and arrays. */
static int copy_boxes(int unused)
{
	enum { WIDTH = 300, HEIGHT = 70, DEPTH = 5, PITCH = 512 };
	uint8_t *from = pattern((size_t)PITCH * HEIGHT * DEPTH, 9),
		*to = malloc((size_t)PITCH * HEIGHT * DEPTH);
	CUDA_ARRAY_DESCRIPTOR form = {WIDTH, HEIGHT, CU_AD_FORMAT_UNSIGNED_INT8, 1};
	CUDA_MEMCPY3D_PEER copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcPitch = PITCH,
		.srcHeight = HEIGHT,
		.dstPitch = PITCH,
		.dstHeight = HEIGHT,
		.WidthInBytes = WIDTH,
		.Height = HEIGHT,
		.Depth = DEPTH};
	CUDA_MEMCPY2D back = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstPitch = PITCH,
		.WidthInBytes = WIDTH,
		.Height = HEIGHT};
	CUdeviceptr p[2];
	CUarray array;

	(void)unused;
	both_open();
	for (int i = 0; i < 2; i++) {
		use(i);
		ck_cuda(cuMemAlloc_v2(&p[i], (size_t)PITCH * HEIGHT * DEPTH));
		ck_cuda(cuMemsetD8_v2(p[i], 0, (size_t)PITCH * HEIGHT * DEPTH));
	}
	ck_cuda(cuMemcpyHtoD_v2(p[0], from, (size_t)PITCH * HEIGHT * DEPTH));
	copy.srcDevice = p[0];
	copy.srcContext = sides[0].context;
	copy.dstDevice = p[1];
	copy.dstContext = sides[1].context;
	ck_cuda(cuMemcpy3DPeerAsync(&copy, sides[1].stream));
	ck_cuda(cuStreamSynchronize(sides[1].stream));
	ck_cuda(cuMemcpyDtoH_v2(to, p[1], (size_t)PITCH * HEIGHT * DEPTH));
	for (int row = 0; row < HEIGHT * DEPTH; row++) {
		ck_assert_int_eq(memcmp(from + row * PITCH, to + row * PITCH, WIDTH), 0);
		ck_assert_int_eq(to[row * PITCH + WIDTH], 0);
	}
	use(0);
	ck_cuda(cuArrayCreate_v2(&array, &form));
	copy = (CUDA_MEMCPY3D_PEER){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstMemoryType = CU_MEMORYTYPE_ARRAY,
		.srcDevice = p[1],
		.srcContext = sides[1].context,
		.srcPitch = PITCH,
		.dstArray = array,
		.WidthInBytes = WIDTH,
		.Height = HEIGHT,
		.Depth = 1};
	ck_cuda(cuMemcpy3DPeer(&copy));
	back.srcArray = array;
	back.dstDevice = p[0];
	ck_cuda(cuMemsetD8_v2(p[0], 0, (size_t)PITCH * HEIGHT));
	ck_cuda(cuMemcpy2D_v2(&back));
	ck_cuda(cuMemcpyDtoH_v2(to, p[0], (size_t)PITCH * HEIGHT));
	for (int row = 0; row < HEIGHT; row++)
		ck_assert_int_eq(memcmp(from + row * PITCH, to + row * PITCH, WIDTH), 0);
	return 0;
}

TEST(across, boxes_and_arrays_go_across)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(copy_boxes, 0)), 0);
}

#define COPIED (3 * MIB + 4)

/* A graph of device 1: a copy from `far` on device 0 to `near`, a kernel there, a copy to `back` on
 * device 0. */
static CUgraph capture_copies(CUdeviceptr far, CUdeviceptr near, CUdeviceptr back)
{
	CUgraph graph;

	ck_cuda(cuStreamBeginCapture_v2(sides[1].stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ck_cuda(cuMemcpyDtoDAsync_v2(near, far, COPIED, sides[1].stream));
	ck_cuda(mix(1, near, near, 5, sides[1].stream));
	ck_cuda(cuMemcpyDtoDAsync_v2(back, near, COPIED, sides[1].stream));
	ck_cuda(cuStreamEndCapture(sides[1].stream, &graph));
	return graph;
}

/* The same, of nodes. */
static CUgraph make_copies(CUdeviceptr far, CUdeviceptr near, CUdeviceptr back)
{
	uint32_t round = 5;
	uint64_t count = WORDS;
	void *arguments[] = {&near, &near, &round, &count};
	const CUDA_KERNEL_NODE_PARAMS kernel = {.func = function_of(1, "mix"),
		.gridDimX = 4,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 64,
		.blockDimY = 1,
		.blockDimZ = 1,
		.kernelParams = arguments};
	CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcDevice = far,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = near,
		.WidthInBytes = COPIED,
		.Height = 1,
		.Depth = 1};
	CUgraphNode first, second, third;
	CUgraph graph;

	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphAddMemcpyNode(&first, graph, NULL, 0, &copy, sides[1].context));
	ck_cuda(cuGraphAddKernelNode_v2(&second, graph, &first, 1, &kernel));
	copy.srcDevice = near;
	copy.dstDevice = back;
	ck_cuda(cuGraphAddMemcpyNode(&third, graph, &second, 1, &copy, sides[1].context));
	return graph;
}

static void see_copies(CUgraphExec exec, CUdeviceptr far, CUdeviceptr back, uint32_t round)
{
	uint32_t *words = (uint32_t *)pattern(4 * MIB, round), *found = malloc(4 * MIB);

	use(0);
	ck_cuda(cuMemcpyHtoD_v2(far, words, 4 * MIB));
	ck_cuda(cuMemsetD8_v2(back, 0, 4 * MIB));
	ck_cuda(cuCtxSynchronize());
	for (int i = 0; i < 2; i++)
		ck_cuda(cuGraphLaunch(exec, sides[1].stream));
	ck_cuda(cuStreamSynchronize(sides[1].stream));
	ck_cuda(cuMemcpyDtoH_v2(found, back, 4 * MIB));
	for (uint32_t i = 0; i < WORDS; i++)
		ck_assert_uint_eq(found[i], mixed(words[i], 5, i));
	ck_assert_int_eq(memcmp(found + WORDS, words + WORDS, COPIED - WORDS * 4), 0);
	ck_assert_uint_eq(found[COPIED / 4], 0);
	free(words);
	free(found);
}

/* Copies between the devices in a graph, captured or as nodes, between its kernels. */
static int copy_in_graph(int captured)
{
	CUdeviceptr far, near, back;
	uint8_t pageable[64] = {0};
	CUgraphExec exec;
	CUgraph graph;

	both_open();
	use(0);
	ck_cuda(cuMemAlloc_v2(&far, 4 * MIB));
	ck_cuda(cuMemAlloc_v2(&back, 4 * MIB));
	use(1);
	ck_cuda(cuMemAlloc_v2(&near, 4 * MIB));
	graph = captured ? capture_copies(far, near, back) : make_copies(far, near, back);
	ck_cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (uint32_t round = 0; round < 10; round++)
		see_copies(exec, far, back, round);
	ck_cuda(cuGraphExecDestroy(exec));
	ck_cuda(cuGraphDestroy(graph));
	/* Pageable memory goes to the graph's own device only. */
	use(1);
	ck_cuda(cuStreamBeginCapture_v2(sides[1].stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ck_cuda(mix(1, near, near, 5, sides[1].stream));
	ck_cuda(cuMemcpyHtoDAsync_v2(far, pageable, sizeof(pageable), sides[1].stream));
	ck_cuda(cuStreamEndCapture(sides[1].stream, &graph));
	FAILS(cuGraphInstantiateWithFlags(&exec, graph, 0), NOT_SUPPORTED);
	return works(0, 1) && works(1, 2) ? 0 : 2;
}

TEST_LOOP(across, a_graph_copies_from_one_to_the_other, 0, 2)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(copy_in_graph, _i)), 0);
}

/* Memory that is pinned or registered in one context, with the other device. */
static int copy_pinned(int kind)
{
	size_t bytes = 3 * MIB + 5;
	uint8_t *expected = pattern(bytes, 4);
	void *memory = NULL;
	CUdeviceptr far;

	both_open();
	use(0);
	if (kind) {
		memory = malloc(bytes);
		ck_cuda(cuMemHostRegister_v2(memory, bytes, 0));
	} else {
		ck_cuda(cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE));
	}
	use(1);
	ck_cuda(cuMemAlloc_v2(&far, bytes));
	for (int way = 0; way < 4; way++) {
		CUstream stream = way < 2 ? sides[1].stream : sides[0].stream;

		use(way % 2);
		expected[way] = (uint8_t)(way + 100);
		memcpy(memory, expected, bytes);
		ck_cuda(cuMemcpyHtoDAsync_v2(far, memory, bytes, stream));
		ck_cuda(cuStreamSynchronize(stream));
		memset(memory, 0, bytes);
		ck_cuda(cuMemcpyDtoHAsync_v2(memory, far, bytes, stream));
		ck_cuda(cuStreamSynchronize(stream));
		ck_assert_int_eq(memcmp(memory, expected, bytes), 0);
		memset(memory, 0, bytes);
		ck_cuda(cuMemcpyDtoH_v2(memory, far, bytes));
		ck_assert_int_eq(memcmp(memory, expected, bytes), 0);
		ck_cuda(cuMemcpyHtoD_v2(far, memory, bytes));
	}
	ck_cuda(kind ? cuMemHostUnregister(memory) : cuMemFreeHost(memory));
	return 0;
}

TEST_LOOP(across, pinned_memory_is_copied_by_both, 0, 2)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(copy_pinned, _i)), 0);
}

/* Memory is freed behind the copies that use it. */
static int free_behind(int unused)
{
	uint8_t *from = pattern(8 * MIB, 1), *to = malloc(8 * MIB);
	CUdeviceptr p, q;

	(void)unused;
	both_open();
	for (int round = 0; round < 5; round++) {
		use(0);
		ck_cuda(cuMemAlloc_v2(&p, 8 * MIB));
		ck_cuda(cuMemcpyHtoD_v2(p, from, 8 * MIB));
		use(1);
		ck_cuda(cuMemAlloc_v2(&q, 8 * MIB));
		ck_cuda(cuMemcpyPeerAsync(
			q, sides[1].context, p, sides[0].context, 8 * MIB, sides[1].stream));
		ck_cuda(cuMemFree_v2(p));
		use(0);
		ck_cuda(cuMemAlloc_v2(&p, 8 * MIB));
		ck_cuda(cuMemsetD8_v2(p, 0xcc, 8 * MIB));
		ck_cuda(cuStreamSynchronize(sides[1].stream));
		ck_cuda(cuMemcpyDtoH_v2(to, q, 8 * MIB));
		ck_assert_int_eq(memcmp(from, to, 8 * MIB), 0);
		ck_cuda(cuMemFree_v2(p));
		ck_cuda(cuMemFree_v2(q));
	}
	return 0;
}

TEST(across, memory_outlives_the_copies_that_use_it)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(free_behind, 0)), 0);
}

/*
 * What goes wrong
 */

static int fault_on_one(int faulty)
{
	int other = 1 - faulty;
	CUdeviceptr p;
	CUcontext context;

	both_open();
	use(faulty);
	ck_cuda(cuLaunchKernel(
		function_of(faulty, "crash_trap"), 1, 1, 1, 1, 1, 1, 0, sides[faulty].stream, NULL, NULL));
	FAILS(cuCtxSynchronize(), LAUNCH_FAILED);
	FAILS(cuMemAlloc_v2(&p, MIB), LAUNCH_FAILED);
	FAILS(cuStreamQuery(sides[faulty].stream), LAUNCH_FAILED);
	for (uint32_t round = 0; round < 10; round++)
		ck_assert(works(other, round));
	ck_cuda(cuStreamQuery(sides[other].stream));
	use(other);
	FAILS(cuMemcpyPeer(
		      sides[other].out, sides[other].context, sides[faulty].in, sides[faulty].context, 64),
		LAUNCH_FAILED);
	FAILS(cuMemcpyPeer(
		      sides[faulty].out, sides[faulty].context, sides[other].in, sides[other].context, 64),
		LAUNCH_FAILED);
	ck_assert(works(other, 11));
	FAILS(cuCtxCreate_v2(&context, 0, faulty), LAUNCH_FAILED);
	ck_cuda(cuCtxCreate_v2(&context, 0, other));
	return 0;
}

TEST_LOOP(wrong, a_fault_leaves_the_other_device, 0, 2)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(fault_on_one, _i)), 0);
	status_await_faults(both_device((unsigned)_i), 1);
	ck_assert_int_eq(status_counter(both_device(1 - (unsigned)_i), "faults"), 0);
}

/* What waits for a device that faults goes on, and the program hears of it once. */
static int fault_ahead(int copies)
{
	CUresult r;
	CUevent event;
	uint32_t *held;

	both_open();
	held = word_of(0);
	use(0);
	ck_cuda(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	hold(0, held, 1);
	ck_cuda(cuLaunchKernel(
		function_of(0, "crash_trap"), 1, 1, 1, 1, 1, 1, 0, sides[0].stream, NULL, NULL));
	ck_cuda(cuEventRecord(event, sides[0].stream));
	use(1);
	if (copies)
		ck_cuda(cuMemcpyPeerAsync(sides[1].in, sides[1].context, sides[0].in, sides[0].context,
			WORDS * 4, sides[0].stream));
	else
		ck_cuda(cuStreamWaitEvent(sides[1].stream, event, 0));
	__atomic_store_n(held, 1, __ATOMIC_RELEASE);
	if (copies) {
		use(0);
		FAILS(cuStreamSynchronize(sides[0].stream), LAUNCH_FAILED);
		use(1);
	}
	/* The copy was of the other device's stream: it ends a moment later. */
	do
		r = cuCtxSynchronize();
	while (copies && r == CUDA_SUCCESS);
	ck_assert_int_eq((int)r, CUDA_ERROR_LAUNCH_FAILED);
	ck_cuda(cuCtxSynchronize());
	ck_assert(works(1, 3) || copies);
	return 0;
}

TEST_LOOP(wrong, a_wait_for_a_fault_ends, 0, 2)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(fault_ahead, _i)), 0);
}

static int cross_repeatedly(int progress, int orders)
{
	uint8_t *from = pattern(MIB, 5), *to = malloc(MIB);
	CUdeviceptr p[2];
	uint32_t round = 0;

	both_open();
	for (int i = 0; i < 2; i++) {
		use(i);
		ck_cuda(cuMemAlloc_v2(&p[i], MIB));
	}
	while (!ordered(orders, false)) {
		from[0] = (uint8_t)++round;
		use((int)round % 2);
		ck_cuda(cuMemcpyHtoD_v2(p[0], from, MIB));
		ck_cuda(cuMemcpyPeerAsync(
			p[1], sides[1].context, p[0], sides[0].context, MIB, sides[round % 2].stream));
		ck_cuda(cuStreamSynchronize(sides[round % 2].stream));
		ck_cuda(cuMemcpyDtoH_v2(to, p[1], MIB));
		if (memcmp(from, to, MIB) || !works(0, round) || !works(1, round))
			return 2;
		report(progress);
	}
	return 0;
}

TEST(wrong, a_dead_daemon_stops_nothing)
{
	struct child child;

	both_start();
	child = child_start(cross_repeatedly);
	child_wait(&child, 2);
	for (int i = 0; i < 2; i++) {
		kill(status_daemon(both_device((unsigned)i)), SIGKILL);
		ck_assert(service_log_wait(&both_service, "daemon was ended by signal 9 ", i + 1, 60));
		child_drain(&child);
		child_wait(&child, 3);
	}
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
}

/* All that serves device 1 goes. */
static int lose_one(int progress, int orders)
{
	size_t free_bytes, total;
	CUresult r = CUDA_SUCCESS;

	both_open();
	report(progress);
	ordered(orders, true);
	use(1);
	while (r == CUDA_SUCCESS)
		r = cuMemGetInfo_v2(&free_bytes, &total);
	if (r != CUDA_ERROR_MPS_RPC_FAILURE)
		return 2;
	for (uint32_t round = 0; round < 10; round++)
		if (!works(0, round))
			return 3;
	/* Both ways. */
	if (cuMemcpyPeer(sides[0].out, sides[0].context, sides[1].in, sides[1].context, 64) != r ||
		cuMemcpyPeer(sides[1].out, sides[1].context, sides[0].in, sides[0].context, 64) != r)
		return 4;
	return works(0, 11) ? 0 : 5;
}

TEST(wrong, a_lost_device_leaves_the_other)
{
	struct child child;

	both_start();
	child = child_start(lose_one);
	child_wait(&child, 1);
	kill(status_holder(both_device(1)), SIGKILL);
	ck_assert(service_log_wait(&both_service, "device 1 is not served at the moment", 1, 60));
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
}

static void expect_done(const char *command, unsigned number)
{
	const struct wire_names nothing = {0};
	char text[1400] = "";

	ck_assert_msg(!ask_with(both_device(number)->socket, command, &nothing, 60, NULL, text, sizeof(text)),
		"%s", text);
}

/* Device 1 is drained with work in it for which device 0 waits. */
static int use_beside_drained(int progress, int orders)
{
	uint32_t *held;
	CUevent event;

	both_open();
	held = word_of(1);
	hold(1, held, 1);
	ck_cuda(mix(1, sides[1].out, sides[1].in, 5, sides[1].stream));
	ck_cuda(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	ck_cuda(cuEventRecord(event, sides[1].stream));
	use(0);
	ck_cuda(cuStreamWaitEvent(sides[0].stream, event, 0));
	report(progress);
	ordered(orders, true);
	__atomic_store_n(held, 1, __ATOMIC_RELEASE);
	for (uint32_t round = 0; round < 10; round++)
		if (!works(0, round))
			return 2;
	if (cuStreamQuery(sides[0].stream) != CUDA_ERROR_NOT_READY)
		return 3;
	report(progress);
	ck_cuda(cuStreamSynchronize(sides[0].stream));
	use(1);
	return are_mixed(sides[1].out, 4, 5) && works(1, 6) ? 0 : 4;
}

TEST(wrong, a_drained_device_leaves_the_other)
{
	struct child child;

	both_start();
	child = child_start(use_beside_drained);
	child_wait(&child, 1);
	expect_done("drain", 1);
	child_order(&child);
	child_wait(&child, 1);
	expect_done("refill", 1);
	ck_assert_int_eq(child_end(&child), 0);
}

TEST(wrong, copies_go_on_after_a_drain)
{
	struct child child;

	both_start();
	child = child_start(cross_repeatedly);
	child_wait(&child, 2);
	for (unsigned round = 0; round < 6; round++) {
		unsigned first = round % 2;

		expect_done("drain", first);
		if (round / 2 != 1)
			expect_done("drain", 1 - first);
		child_drain(&child);
		pass_time(50);
		ck_assert(!child_progresses(&child));
		expect_done("refill", round / 2 ? first : 1 - first);
		expect_done("refill", round / 2 ? 1 - first : first);
		child_wait(&child, 3);
	}
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
}

static int fork_with_both(int unused)
{
	uint32_t *word;
	int count;
	pid_t pid;

	(void)unused;
	both_open();
	word = word_of(1);
	*word = 7;
	pid = fork();
	if (pid == 0) {
		bool good = cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED && *word == 7;

		*word = 8;
		_exit(good ? 0 : 1);
	}
	if (exit_status(pid) || *word != 8)
		return 2;
	return works(0, 1) && works(1, 2) ? 0 : 3;
}

TEST(wrong, a_fork_leaves_both)
{
	both_start();
	ck_assert_int_eq(exit_status(spawn(fork_with_both, 0)), 0);
}

int main(void)
{
	Suite *suite = suite_create("both");
	TCase *tests = suite_case(suite, "each");

	tcase_add_checked_fixture(tests, NULL, both_stop);
	suite_add(tests, "each");
	tests = suite_case(suite, "across");
	tcase_add_checked_fixture(tests, NULL, both_stop);
	suite_add(tests, "across");
	tests = suite_case(suite, "wrong");
	tcase_add_checked_fixture(tests, NULL, both_stop);
	suite_add(tests, "wrong");
	return suite_run(suite);
}
