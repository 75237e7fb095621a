// Green contexts: kernels run on the multiprocessors that the program chose, in streams, in the
// context as the current one, and in graphs; and what else belongs to such a context.
// The tests run against NVIDIA's library as well and must pass there.

#include <stdlib.h>
#include <string.h>

#include "shm/layout.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

#define FAILS(call, code) ck_assert_int_eq(call, CUDA_ERROR_##code)

/* Of one device, and blocks that are enough for all of them. */
#define MOST   1024u
#define BLOCKS 4096u

/* What a split gave. */
#define PIECES 2
struct pieces {
	CUdevResource all, piece[PIECES], rest;
};

static unsigned count_of(const CUdevResource *resource)
{
	return resource->type == CU_DEV_RESOURCE_TYPE_SM ? resource->sm.smCount : 0;
}

/* The device, in two pieces of the least size and the rest. */
static void split(struct pieces *pieces)
{
	unsigned int count = PIECES;

	memset(pieces, 0x55, sizeof(*pieces));
	ck_cuda(cuDeviceGetDevResource(0, &pieces->all, CU_DEV_RESOURCE_TYPE_SM));
	ck_cuda(cuDevSmResourceSplitByCount(
		pieces->piece, &count, &pieces->all, &pieces->rest, 0, pieces->all.sm.minSmPartitionSize));
	ck_assert_uint_eq(count, PIECES);
}

static CUgreenCtx make(CUdevResource *resources, unsigned int count)
{
	CUdevResourceDesc description;
	CUgreenCtx green;

	ck_cuda(cuDevResourceGenerateDesc(&description, resources, count));
	ck_cuda(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	return green;
}

static CUcontext context_of(CUgreenCtx green)
{
	CUcontext context;

	ck_cuda(cuCtxFromGreenCtx(&context, green));
	return context;
}

static CUstream stream_of(CUgreenCtx green)
{
	CUstream stream;

	ck_cuda(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
	return stream;
}

/* Where kernels ran, word i: how many of them on multiprocessor i. */
struct sight {
	uint32_t at[MOST];
};

static CUdeviceptr marks;

static CUresult launch_marks(CUstream stream)
{
	void *arguments[] = {&marks};

	return launch("mark_sms", BLOCKS, 32, stream, arguments);
}

static void open_marks(void)
{
	driver_open();
	kernel("mark_sms");
	ck_cuda(cuMemAlloc_v2(&marks, MOST * 4));
}

static void clear_marks(CUstream stream)
{
	ck_cuda(cuMemsetD32Async(marks, 0, MOST, stream));
}

/* Adds them to the sight. Return: how many there are */
static unsigned take_marks(CUstream stream, struct sight *sight)
{
	static uint32_t seen[MOST];
	unsigned count = 0;

	ck_cuda(cuMemcpyDtoHAsync_v2(seen, marks, sizeof(seen), stream));
	ck_cuda(cuStreamSynchronize(stream));
	for (unsigned i = 0; i < MOST; i++) {
		count += seen[i] != 0;
		sight->at[i] += seen[i] != 0;
	}
	return count;
}

static unsigned run(CUstream stream, struct sight *sight)
{
	clear_marks(stream);
	ck_cuda(launch_marks(stream));
	return take_marks(stream, sight);
}

static unsigned run_graph(CUgraphExec graph, CUstream stream, struct sight *sight)
{
	clear_marks(stream);
	ck_cuda(cuGraphLaunch(graph, stream));
	return take_marks(stream, sight);
}

static bool do_not_meet(const struct sight *sight)
{
	for (unsigned i = 0; i < MOST; i++)
		if (sight->at[i] > 1)
			return false;
	return true;
}

static bool are_same(const struct sight *a, const struct sight *b)
{
	for (unsigned i = 0; i < MOST; i++)
		if (!a->at[i] != !b->at[i])
			return false;
	return true;
}

TEST(green, kernels_run_on_the_chosen_multiprocessors)
{
	struct sight sight = {{0}}, unused = {{0}};
	struct pieces pieces;
	CUgreenCtx rest;

	open_marks();
	split(&pieces);
	rest = make(&pieces.rest, 1);
	for (int i = 0; i < PIECES; i++)
		ck_assert_uint_eq(
			run(stream_of(make(&pieces.piece[i], 1)), &sight), count_of(&pieces.piece[i]));
	ck_assert_uint_eq(run(stream_of(rest), &sight), count_of(&pieces.rest));
	ck_assert(do_not_meet(&sight));
	ck_assert_uint_eq(run(NULL, &unused), count_of(&pieces.all));
	ck_assert(are_same(&sight, &unused));
	/* Several together. */
	memset(&unused, 0, sizeof(unused));
	ck_assert_uint_eq(run(stream_of(make(pieces.piece, PIECES)), &unused),
		count_of(&pieces.piece[0]) + count_of(&pieces.piece[1]));
	ck_assert_uint_eq(run(stream_of(make(&pieces.all, 1)), &unused), count_of(&pieces.all));
}

/* As a library does that wants several parts of different sizes. */
TEST(green, what_is_left_is_split_again)
{
	struct sight sight = {{0}};
	CUdevResource left, piece, rest;
	unsigned int count, all;

	open_marks();
	ck_cuda(cuDeviceGetDevResource(0, &left, CU_DEV_RESOURCE_TYPE_SM));
	all = count_of(&left);
	for (unsigned i = 1; i < 3; i++) {
		count = 1;
		ck_cuda(cuDevSmResourceSplitByCount(
			&piece, &count, &left, &rest, 0, i * left.sm.minSmPartitionSize));
		ck_assert_uint_eq(count_of(&piece) + count_of(&rest), count_of(&left));
		ck_assert_uint_eq(run(stream_of(make(&piece, 1)), &sight), count_of(&piece));
		ck_cuda(cuGreenCtxGetDevResource(make(&rest, 1), &left, CU_DEV_RESOURCE_TYPE_SM));
		ck_assert_uint_eq(count_of(&left), count_of(&rest));
		ck_assert_uint_eq(all -= count_of(&piece), count_of(&left));
	}
	ck_assert_uint_eq(run(stream_of(make(&rest, 1)), &sight), count_of(&left));
	ck_assert(do_not_meet(&sight));
}

TEST(green, splits_and_what_they_refuse)
{
	CUdevResource all, piece[4], rest, other;
	CUdevResourceDesc description;
	unsigned int count = 0;

	driver_attach();
	FAILS(cuDeviceGetDevResource(0, NULL, CU_DEV_RESOURCE_TYPE_SM), INVALID_VALUE);
	FAILS(cuDeviceGetDevResource(99, &all, CU_DEV_RESOURCE_TYPE_SM), INVALID_DEVICE);
	FAILS(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_INVALID), INVALID_RESOURCE_TYPE);
	FAILS(cuDeviceGetDevResource(0, &all, (CUdevResourceType)1000), INVALID_RESOURCE_TYPE);
	ck_cuda(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
	ck_assert_uint_gt(all.sm.minSmPartitionSize, 0);
	/* Asked for, not made. */
	ck_cuda(cuDevSmResourceSplitByCount(NULL, &count, &all, NULL, 0, 0));
	ck_assert_uint_ge(count, 4);
	count = 4;
	ck_cuda(cuDevSmResourceSplitByCount(piece, &count, &all, NULL, 0, 0));
	ck_assert_uint_eq(count, 4);
	for (unsigned i = 0; i < 4; i++)
		ck_assert_uint_eq(count_of(&piece[i]), all.sm.minSmPartitionSize);
	/* All of it. */
	ck_cuda(cuDevSmResourceSplitByCount(piece, &count, &all, &rest, 0, count_of(&all)));
	ck_assert_uint_eq(count, 1);
	ck_assert_uint_eq(count_of(&piece[0]), count_of(&all));
	ck_assert_int_eq(rest.type, CU_DEV_RESOURCE_TYPE_INVALID);
	count = 4;
	FAILS(cuDevSmResourceSplitByCount(piece, &count, &all, &rest, 0, count_of(&all) + 1),
		INVALID_RESOURCE_CONFIGURATION);
	FAILS(cuDevSmResourceSplitByCount(piece, &count, &all, &rest, 3, 0), INVALID_VALUE);
	FAILS(cuDevSmResourceSplitByCount(piece, NULL, &all, &rest, 0, 0), INVALID_VALUE);
	FAILS(cuDevSmResourceSplitByCount(piece, &count, NULL, &rest, 0, 0), INVALID_VALUE);
	count = 0;
	FAILS(cuDevSmResourceSplitByCount(piece, &count, &all, &rest, 0, 0), INVALID_VALUE);
	/* What a split gave, what is nothing, and what the program has changed. */
	count = 1;
	FAILS(cuDevSmResourceSplitByCount(&other, &count, piece, &rest, 0, 0),
		INVALID_RESOURCE_CONFIGURATION);
	memset(&other, 0, sizeof(other));
	FAILS(cuDevSmResourceSplitByCount(piece, &count, &other, &rest, 0, 0), INVALID_RESOURCE_TYPE);
	other = all;
	other.sm.smCount--;
	FAILS(cuDevSmResourceSplitByCount(piece, &count, &other, &rest, 0, 0),
		INVALID_RESOURCE_CONFIGURATION);
	FAILS(cuDevResourceGenerateDesc(&description, &other, 1), INVALID_RESOURCE_CONFIGURATION);
	FAILS(cuDevResourceGenerateDesc(&description, NULL, 1), INVALID_VALUE);
	FAILS(cuDevResourceGenerateDesc(NULL, &all, 1), INVALID_VALUE);
}

/* As PyTorch does: work in the default stream while the green context is current. */
TEST(green, a_green_context_as_the_current_one)
{
	struct sight direct = {{0}}, current = {{0}}, unused = {{0}};
	struct pieces pieces;
	CUcontext primary, context, seen;
	CUgreenCtx green, seen_green;
	unsigned int flags;
	CUexecAffinityParam affinity;
	unsigned long long id, other;
	CUstream inner;
	CUdeviceptr made;
	CUevent event;
	CUdevice device;

	open_marks();
	split(&pieces);
	ck_cuda(cuCtxGetCurrent(&primary));
	green = make(pieces.piece, 1);
	context = context_of(green);
	ck_assert_ptr_ne(context, primary);
	ck_assert_uint_eq(run(stream_of(green), &direct), count_of(pieces.piece));
	ck_cuda(cuCtxPushCurrent_v2(context));
	ck_cuda(cuCtxGetCurrent(&seen));
	ck_assert_ptr_eq(seen, context);
	ck_cuda(cuCtxGetDevice(&device));
	ck_assert_int_eq(device, 0);
	ck_assert_uint_eq(run(NULL, &current), count_of(pieces.piece));
	ck_assert_uint_eq(run(CU_STREAM_LEGACY, &current), count_of(pieces.piece));
	ck_cuda(cuStreamCreate(&inner, 0));
	ck_assert_uint_eq(run(inner, &current), count_of(pieces.piece));
	ck_assert(are_same(&direct, &current));
	ck_cuda(cuStreamGetFlags(inner, &flags));
	ck_assert_uint_eq(flags, CU_STREAM_NON_BLOCKING);
	ck_cuda(cuStreamGetFlags(NULL, &flags));
	ck_assert_uint_eq(flags, CU_STREAM_NON_BLOCKING);
	FAILS(launch_marks(CU_STREAM_PER_THREAD), INVALID_HANDLE);
	/* To whom they say they belong. */
	ck_cuda(cuStreamGetGreenCtx(inner, &seen_green));
	ck_assert_ptr_eq(seen_green, green);
	ck_cuda(cuStreamGetGreenCtx(NULL, &seen_green));
	ck_assert_ptr_eq(seen_green, green);
	ck_cuda(cuStreamGetCtx(inner, &seen));
	ck_assert_ptr_eq(seen, context);
	ck_cuda(cuStreamGetCtx_v2(inner, &seen, &seen_green));
	ck_assert_ptr_eq(seen, primary);
	ck_assert_ptr_eq(seen_green, green);
	ck_cuda(cuCtxGetId(NULL, &id));
	ck_cuda(cuGreenCtxGetId(NULL, &other));
	ck_assert_uint_eq(id, other);
	ck_cuda(cuGreenCtxGetId(green, &other));
	ck_assert_uint_eq(id, other);
	ck_cuda(cuCtxGetId(primary, &other));
	ck_assert_uint_ne(id, other);
	FAILS(cuCtxGetExecAffinity(&affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT), INVALID_CONTEXT);
	/* What is made meanwhile is the primary context's. */
	ck_cuda(cuMemAlloc_v2(&made, 4096));
	ck_cuda(cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_CONTEXT, made));
	ck_assert_ptr_eq(seen, primary);
	ck_cuda(cuEventCreate(&event, 0));
	ck_cuda(cuEventRecord(event, NULL));
	ck_cuda(cuCtxPopCurrent_v2(&seen));
	ck_assert_ptr_eq(seen, context);
	ck_cuda(cuStreamWaitEvent(NULL, event, 0));
	ck_assert_uint_eq(run(NULL, &unused), count_of(&pieces.all));
	FAILS(cuGreenCtxGetId(NULL, &other), INVALID_CONTEXT);
	ck_cuda(cuStreamGetGreenCtx(NULL, &seen_green));
	ck_assert_ptr_null(seen_green);
	FAILS(cuCtxDestroy_v2(context), INVALID_CONTEXT);
	ck_cuda(cuGreenCtxDestroy(green));
	ck_cuda(cuMemsetD32_v2(made, 1, 1024));
	ck_cuda(cuMemFree_v2(made));
	ck_cuda(cuEventDestroy_v2(event));
}

static CUgraphExec capture_marks(CUstream stream, CUgraph *ret_graph)
{
	CUgraphExec exec;

	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(launch_marks(stream));
	ck_cuda(cuStreamEndCapture(stream, ret_graph));
	ck_cuda(cuGraphInstantiateWithFlags(&exec, *ret_graph, 0));
	return exec;
}

static CUcontext context_of_node(CUgraph graph)
{
	CUDA_KERNEL_NODE_PARAMS params;
	CUgraphNode node;
	size_t count = 1;

	ck_cuda(cuGraphGetNodes(graph, &node, &count));
	ck_cuda(cuGraphKernelNodeGetParams_v2(node, &params));
	return params.ctx;
}

static CUgraphExec add_marks(CUgraph *ret_graph)
{
	void *arguments[] = {&marks};
	const CUDA_KERNEL_NODE_PARAMS params = {.func = kernel("mark_sms"),
		.gridDimX = BLOCKS,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 32,
		.blockDimY = 1,
		.blockDimZ = 1,
		.kernelParams = arguments};
	CUgraphNode node;
	CUgraphExec exec;

	ck_cuda(cuGraphCreate(ret_graph, 0));
	ck_cuda(cuGraphAddKernelNode_v2(&node, *ret_graph, NULL, 0, &params));
	ck_cuda(cuGraphInstantiateWithFlags(&exec, *ret_graph, 0));
	return exec;
}

/* A kernel of a graph runs where it was captured or added, whatever stream the graph runs in. */
TEST(green, graphs_keep_the_multiprocessors_of_their_kernels)
{
	struct sight direct = {{0}}, sight = {{0}};
	struct pieces pieces;
	CUcontext primary, context;
	CUgraphExec within, without;
	CUstream inside, outside;
	CUgreenCtx green;
	CUgraph graph;
	unsigned count;

	open_marks();
	split(&pieces);
	count = count_of(pieces.piece);
	ck_cuda(cuCtxGetCurrent(&primary));
	green = make(pieces.piece, 1);
	context = context_of(green);
	inside = stream_of(green);
	ck_cuda(cuStreamCreate(&outside, CU_STREAM_NON_BLOCKING));
	ck_assert_uint_eq(run(inside, &direct), count);
	within = capture_marks(inside, &graph);
	ck_assert_ptr_eq(context_of_node(graph), context);
	without = capture_marks(outside, &graph);
	ck_assert_ptr_eq(context_of_node(graph), primary);
	ck_assert_uint_eq(run_graph(within, outside, &sight), count);
	ck_assert_uint_eq(run_graph(within, inside, &sight), count);
	ck_assert_uint_eq(run_graph(without, inside, &(struct sight){{0}}), count_of(&pieces.all));
	ck_cuda(cuCtxSetCurrent(context));
	/* Its default stream captures, by any name. */
	within = capture_marks(NULL, &graph);
	ck_assert_uint_eq(run_graph(within, outside, &sight), count);
	within = capture_marks(CU_STREAM_LEGACY, &graph);
	ck_assert_uint_eq(run_graph(within, outside, &sight), count);
	within = add_marks(&graph);
	ck_cuda(cuCtxSetCurrent(primary));
	ck_assert_ptr_eq(context_of_node(graph), context);
	ck_assert_uint_eq(run_graph(within, outside, &sight), count);
	ck_assert(are_same(&direct, &sight));
	without = add_marks(&graph);
	ck_assert_uint_eq(run_graph(without, inside, &(struct sight){{0}}), count_of(&pieces.all));
}

/* Kernels of several green contexts in one graph. */
TEST(green, a_graph_of_kernels_of_several_green_contexts)
{
	struct sight sight = {{0}};
	struct pieces pieces;
	CUstream streams[PIECES];
	CUevent events[2];
	CUgraphExec exec;
	CUgraph graph;

	open_marks();
	split(&pieces);
	for (int i = 0; i < PIECES; i++) {
		ck_cuda(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
		streams[i] = stream_of(make(&pieces.piece[i], 1));
	}
	ck_cuda(cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(launch_marks(streams[0]));
	ck_cuda(cuEventRecord(events[0], streams[0]));
	ck_cuda(cuStreamWaitEvent(streams[1], events[0], 0));
	ck_cuda(launch_marks(streams[1]));
	ck_cuda(cuEventRecord(events[1], streams[1]));
	ck_cuda(cuStreamWaitEvent(streams[0], events[1], 0));
	ck_cuda(cuStreamEndCapture(streams[0], &graph));
	ck_cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
	ck_assert_uint_eq(run_graph(exec, NULL, &sight), 2 * count_of(pieces.piece));
}

/* Calls without a stream come behind the work of the current context's default stream. */
TEST(green, synchronous_calls_are_of_the_current_context)
{
	struct pieces pieces;
	uint64_t ns = 50000000;
	void *arguments[] = {&ns};
	uint32_t word = 0;
	CUdeviceptr p;

	driver_open();
	kernel("spin_ns");
	split(&pieces);
	ck_cuda(cuCtxSetCurrent(context_of(make(pieces.piece, 1))));
	ck_cuda(cuMemAlloc_v2(&p, 4));
	ck_cuda(cuMemsetD32_v2(p, 1, 1));
	ck_cuda(launch("spin_ns", 1, 1, NULL, arguments));
	ck_cuda(cuMemsetD32Async(p, 2, 1, NULL));
	ck_cuda(cuMemcpyDtoH_v2(&word, p, 4));
	ck_assert_uint_eq(word, 2);
	ck_cuda(cuStreamQuery(NULL));
}

static void let_go(uint32_t *word)
{
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
}

/* Default streams of the primary context and of green ones do not wait for each other, nor for
 * other streams of their context. */
TEST(green, default_streams_do_not_wait)
{
	struct pieces pieces;
	CUcontext primary, context;
	CUstream inner;
	uint32_t *word;

	driver_open();
	kernel("fill");
	split(&pieces);
	word = shared_word();
	ck_cuda(cuCtxGetCurrent(&primary));
	context = context_of(make(pieces.piece, 1));
	ck_cuda(cuCtxSetCurrent(context));
	ck_cuda(cuStreamCreate(&inner, 0));
	ck_cuda(launch_spin(word, 1, NULL));
	ck_cuda(cuMemsetD32Async((CUdeviceptr)(uintptr_t)(word + 1), 7, 1, inner));
	ck_cuda(cuStreamSynchronize(inner));
	ck_cuda(cuCtxSetCurrent(primary));
	ck_cuda(cuMemsetD32Async((CUdeviceptr)(uintptr_t)(word + 2), 7, 1, NULL));
	ck_cuda(cuStreamSynchronize(NULL));
	ck_assert_uint_eq(word[1] + word[2], 14);
	ck_cuda(cuCtxSetCurrent(context));
	FAILS(cuStreamQuery(NULL), NOT_READY);
	let_go(word);
	ck_cuda(cuCtxSynchronize());
	ck_cuda(cuStreamQuery(NULL));
}

/* A context's synchronisation covers the green contexts within, and theirs nothing else. */
TEST(green, synchronisation_covers_what_is_within)
{
	struct pieces pieces;
	CUcontext primary, context;
	CUstream inside, outside;
	uint32_t *word;

	driver_open();
	split(&pieces);
	word = shared_word();
	ck_cuda(cuCtxGetCurrent(&primary));
	context = context_of(make(pieces.piece, 1));
	inside = stream_of(make(&pieces.piece[1], 1));
	ck_cuda(cuStreamCreate(&outside, CU_STREAM_NON_BLOCKING));
	ck_cuda(launch_spin(word, 1, outside));
	ck_cuda(launch_spin(word, 1, inside));
	ck_cuda(cuCtxSetCurrent(context));
	ck_cuda(cuCtxSynchronize());
	FAILS(cuStreamQuery(inside), NOT_READY);
	let_go(word);
	ck_cuda(cuCtxSynchronize_v2(primary));
	ck_cuda(cuStreamQuery(inside));
	ck_cuda(cuStreamQuery(outside));
}

static CUevent new_event(void)
{
	CUevent event;

	ck_cuda(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	return event;
}

TEST(green, events_of_whole_contexts)
{
	struct pieces pieces;
	CUcontext primary;
	CUgreenCtx one, two;
	CUstream first, second, outside;
	CUevent event;
	uint32_t *word;

	driver_open();
	split(&pieces);
	word = shared_word();
	event = new_event();
	ck_cuda(cuCtxGetCurrent(&primary));
	one = make(&pieces.piece[0], 1);
	two = make(&pieces.piece[1], 1);
	first = stream_of(one);
	ck_cuda(cuStreamCreate(&outside, CU_STREAM_NON_BLOCKING));
	/* Work in one of them holds the event, and the event the other one, with streams to
	 * come. */
	ck_cuda(launch_spin(word, 1, first));
	ck_cuda(cuGreenCtxRecordEvent(one, event));
	FAILS(cuEventQuery(event), NOT_READY);
	ck_cuda(cuGreenCtxWaitEvent(two, event));
	second = stream_of(two);
	ck_cuda(cuMemsetD32Async((CUdeviceptr)(uintptr_t)(word + 1), 7, 1, second));
	ck_cuda(cuMemsetD32Async((CUdeviceptr)(uintptr_t)(word + 2), 7, 1, outside));
	ck_cuda(cuStreamSynchronize(outside));
	ck_assert_uint_eq(word[2], 7);
	FAILS(cuStreamQuery(second), NOT_READY);
	ck_assert_uint_eq(word[1], 0);
	let_go(word);
	ck_cuda(cuStreamSynchronize(second));
	ck_assert_uint_eq(word[1], 7);
	ck_cuda(cuEventSynchronize(event));
	/* The primary context covers green ones, not the other way round. */
	*word = 0;
	ck_cuda(launch_spin(word, 1, outside));
	ck_cuda(cuCtxRecordEvent(context_of(one), event));
	ck_cuda(cuEventSynchronize(event));
	ck_cuda(cuCtxRecordEvent(primary, event));
	FAILS(cuEventQuery(event), NOT_READY);
	ck_cuda(cuCtxWaitEvent(primary, event));
	ck_cuda(cuMemsetD32Async((CUdeviceptr)(uintptr_t)(word + 1), 8, 1, second));
	FAILS(cuStreamQuery(second), NOT_READY);
	let_go(word);
	ck_cuda(cuCtxSynchronize());
	ck_assert_uint_eq(word[1], 8);
	/* Nothing was recorded. */
	ck_cuda(cuCtxWaitEvent(primary, new_event()));
	FAILS(cuCtxRecordEvent(NULL, event), INVALID_CONTEXT);
	FAILS(cuGreenCtxRecordEvent(NULL, event), INVALID_CONTEXT);
	FAILS(cuGreenCtxRecordEvent(one, NULL), INVALID_HANDLE);
	FAILS(cuGreenCtxWaitEvent(one, NULL), INVALID_HANDLE);
	FAILS(cuCtxRecordEvent(primary, NULL), INVALID_HANDLE);
}

TEST(green, a_capture_ends_where_a_whole_context_is_recorded)
{
	CUstreamCaptureStatus status;
	struct pieces pieces;
	CUcontext primary;
	CUgreenCtx one, two;
	CUstream inside, outside;
	CUevent event;
	CUgraph graph;

	driver_open();
	split(&pieces);
	event = new_event();
	ck_cuda(cuCtxGetCurrent(&primary));
	one = make(&pieces.piece[0], 1);
	two = make(&pieces.piece[1], 1);
	inside = stream_of(one);
	ck_cuda(cuStreamCreate(&outside, CU_STREAM_NON_BLOCKING));
	ck_cuda(cuStreamBeginCapture_v2(inside, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(cuGreenCtxRecordEvent(two, event));
	ck_cuda(cuCtxRecordEvent(primary, event));
	ck_cuda(cuStreamIsCapturing(inside, &status));
	ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	FAILS(cuGreenCtxRecordEvent(one, event), STREAM_CAPTURE_UNSUPPORTED);
	ck_cuda(cuStreamIsCapturing(inside, &status));
	ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	FAILS(cuStreamEndCapture(inside, &graph), STREAM_CAPTURE_INVALIDATED);
	ck_cuda(cuStreamBeginCapture_v2(outside, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(cuEventRecord(event, outside));
	FAILS(cuGreenCtxWaitEvent(two, event), CAPTURED_EVENT);
	FAILS(cuStreamEndCapture(outside, &graph), STREAM_CAPTURE_INVALIDATED);
}

TEST(green, what_is_refused)
{
	CUdevResourceDesc description;
	struct pieces pieces;
	CUdevResource resource;
	CUcontext context;
	CUgreenCtx green;
	CUstream stream;

	driver_attach();
	split(&pieces);
	ck_cuda(cuDevResourceGenerateDesc(&description, pieces.piece, 1));
	FAILS(cuGreenCtxCreate(&green, description, 0, 0), INVALID_VALUE);
	FAILS(cuGreenCtxCreate(&green, description, 0, 2), INVALID_VALUE);
	FAILS(cuGreenCtxCreate(NULL, description, 0, CU_GREEN_CTX_DEFAULT_STREAM), INVALID_VALUE);
	FAILS(cuGreenCtxCreate(&green, description, 99, CU_GREEN_CTX_DEFAULT_STREAM), INVALID_DEVICE);
	ck_cuda(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
	FAILS(cuCtxFromGreenCtx(NULL, green), INVALID_VALUE);
	FAILS(cuCtxFromGreenCtx(&context, NULL), INVALID_CONTEXT);
	FAILS(cuGreenCtxGetDevResource(NULL, &resource, CU_DEV_RESOURCE_TYPE_SM), INVALID_CONTEXT);
	FAILS(cuGreenCtxGetDevResource(green, NULL, CU_DEV_RESOURCE_TYPE_SM), INVALID_VALUE);
	FAILS(cuGreenCtxGetDevResource(green, &resource, (CUdevResourceType)7), INVALID_RESOURCE_TYPE);
	FAILS(cuCtxGetDevResource(NULL, &resource, CU_DEV_RESOURCE_TYPE_SM), INVALID_CONTEXT);
	ck_cuda(cuCtxGetDevResource(context_of(green), &resource, CU_DEV_RESOURCE_TYPE_SM));
	ck_assert_uint_eq(count_of(&resource), count_of(pieces.piece));
	ck_cuda(cuCtxGetCurrent(&context));
	ck_cuda(cuCtxGetDevResource(context, &resource, CU_DEV_RESOURCE_TYPE_SM));
	ck_assert_uint_eq(count_of(&resource), count_of(&pieces.all));
	FAILS(cuGreenCtxStreamCreate(&stream, green, 0, 0), INVALID_VALUE);
	FAILS(cuGreenCtxStreamCreate(&stream, green, 2, 0), INVALID_VALUE);
	FAILS(cuGreenCtxStreamCreate(NULL, green, CU_STREAM_NON_BLOCKING, 0), INVALID_VALUE);
	FAILS(cuGreenCtxStreamCreate(&stream, NULL, CU_STREAM_NON_BLOCKING, 0), INVALID_CONTEXT);
	FAILS(cuGreenCtxGetId(green, NULL), INVALID_VALUE);
	FAILS(cuGreenCtxDestroy(NULL), INVALID_CONTEXT);
}

TEST(green, the_end_of_a_green_context)
{
	struct pieces pieces;
	CUcontext context, seen;
	CUgreenCtx green;
	CUdevResource resource;
	CUstream stream, inner;
	CUevent event;

	driver_open();
	split(&pieces);
	green = make(pieces.piece, 1);
	context = context_of(green);
	stream = stream_of(green);
	event = new_event();
	ck_cuda(cuCtxPushCurrent_v2(context));
	ck_cuda(cuStreamCreate(&inner, 0));
	ck_cuda(cuEventRecord(event, stream));
	ck_cuda(cuGreenCtxDestroy(green));
	ck_cuda(cuCtxGetCurrent(&seen));
	ck_assert_ptr_eq(seen, context);
	FAILS(cuCtxSynchronize(), CONTEXT_IS_DESTROYED);
	FAILS(cuStreamQuery(NULL), CONTEXT_IS_DESTROYED);
	FAILS(cuStreamQuery(stream), CONTEXT_IS_DESTROYED);
	ck_cuda(cuCtxPopCurrent_v2(&seen));
	FAILS(cuStreamQuery(inner), CONTEXT_IS_DESTROYED);
	FAILS(cuStreamDestroy_v2(stream), CONTEXT_IS_DESTROYED);
	ck_cuda(cuEventSynchronize(event));
	FAILS(cuCtxFromGreenCtx(&seen, green), CONTEXT_IS_DESTROYED);
	FAILS(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0), CONTEXT_IS_DESTROYED);
	FAILS(cuGreenCtxGetDevResource(green, &resource, CU_DEV_RESOURCE_TYPE_SM), CONTEXT_IS_DESTROYED);
	FAILS(cuGreenCtxDestroy(green), CONTEXT_IS_DESTROYED);
}

/* It needs no primary context before, and keeps it until its end. */
TEST(green, a_green_context_keeps_its_primary_context)
{
	struct pieces pieces;
	unsigned int flags;
	CUgreenCtx green;
	int active;

	ck_cuda(cuInit(0));
	split(&pieces);
	ck_cuda(cuDevicePrimaryCtxGetState(0, &flags, &active));
	ck_assert_int_eq(active, 0);
	green = make(pieces.piece, 1);
	ck_cuda(cuDevicePrimaryCtxGetState(0, &flags, &active));
	ck_assert_int_eq(active, 1);
	ck_cuda(cuStreamSynchronize(stream_of(green)));
	ck_cuda(cuGreenCtxDestroy(green));
	ck_cuda(cuDevicePrimaryCtxGetState(0, &flags, &active));
	ck_assert_int_eq(active, 0);
}

int main(void)
{
	Suite *suite = suite_create("green");
	TCase *tests = tcase_create("green");

	tcase_set_timeout(tests, 120);
	tcase_add_unchecked_fixture(tests, common_service_start, common_service_stop);
	suite_add(tests, "green");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
