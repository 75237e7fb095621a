// Stream capture: what becomes nodes, which streams take part, what has no place in a capture and
// ends it. The tests run against NVIDIA's library as well and must pass there.

#include <pthread.h>
#include <string.h>

#include "tests/lib/scarce.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/graphs.h"
#include "tests/system/program.h"

TEST(captures, captured_work_runs_when_it_is_launched)
{
	CUstream stream;
	CUdeviceptr a, b;
	CUgraphExec exec;
	CUgraph graph;
	uint64_t id = 0;
	size_t tips = 9;
	CUgraph into = NULL;
	const CUgraphNode *nodes;
	CUstreamCaptureStatus status;

	driver_open();
	kernel("fill");
	kernel("count_up");
	stream = new_stream();
	a = device_words(WORDS, 0);
	b = device_words(WORDS, 0);
	ck_assert_int_eq(capture_status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
	ck_assert_int_eq(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ck_assert_int_eq(
		cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
	ck_assert_int_eq(capture_status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	ck_cuda(cuStreamGetCaptureInfo_v2(stream, &status, &id, &into, &nodes, &tips));
	ck_assert_uint_ne(id, 0);
	ck_assert_uint_eq(tips, 0);
	ck_cuda(cuMemsetD32Async(a, 3, WORDS, stream));
	ck_cuda(count_up(stream, a, 4));
	ck_cuda(cuMemcpyDtoDAsync_v2(b, a, WORDS * 4, stream));
	ck_cuda(fill(stream, a, 1, WORDS));
	ck_cuda(cuStreamGetCaptureInfo_v2(stream, &status, &id, &into, &nodes, &tips));
	ck_assert_uint_eq(tips, 1);
	ck_cuda(cuStreamEndCapture(stream, &graph));
	ck_assert_ptr_eq(graph, into);
	ck_assert_int_eq(capture_status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
	ck_assert_uint_eq(node_count(graph), 4);
	expect_words(a + 4, 1, 0);
	exec = instantiate(graph);
	expect_words(b, WORDS, 0);
	for (int i = 0; i < 3; i++) {
		ck_cuda(cuMemsetD32_v2(b, 0, WORDS));
		run(exec, stream);
		expect_words(a, WORDS, 1);
		ck_assert_uint_eq(word_at(b), 7);
		expect_words(b + 4, WORDS - 1, 3);
	}
}

TEST(captures, streams_join_a_capture_by_events)
{
	CUstream origin, other;
	CUdeviceptr word[3];
	CUevent fork, join;
	CUgraphExec exec;
	CUgraph graph;
	size_t count = 0;

	driver_open();
	kernel("count_up");
	origin = new_stream();
	other = new_stream();
	fork = new_event();
	join = new_event();
	for (int i = 0; i < 3; i++)
		word[i] = device_words(1, 0);
	ck_cuda(cuStreamBeginCapture_v2(origin, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	ck_cuda(count_up(origin, word[0], 1));
	ck_cuda(cuEventRecord(fork, origin));
	ck_cuda(cuStreamWaitEvent(other, fork, 0));
	ck_assert_int_eq(capture_status(other), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	ck_cuda(count_up(other, word[1], 1));
	ck_cuda(count_up(origin, word[2], 1));
	ck_cuda(cuEventRecord(join, other));
	ck_cuda(cuStreamWaitEvent(origin, join, 0));
	ck_cuda(cuMemcpyDtoDAsync_v2(word[0], word[1], 4, origin));
	ck_cuda(cuStreamEndCapture(origin, &graph));
	ck_assert_int_eq(capture_status(other), CU_STREAM_CAPTURE_STATUS_NONE);
	ck_assert_uint_eq(node_count(graph), 4);
	ck_cuda(cuGraphGetEdges(graph, NULL, NULL, &count));
	ck_assert_uint_eq(count, 4);
	exec = instantiate(graph);
	run(exec, other);
	run(exec, origin);
	ck_assert_uint_eq(word_at(word[0]), 2);
	ck_assert_uint_eq(word_at(word[1]), 2);
	ck_assert_uint_eq(word_at(word[2]), 2);
}

/* Records an event in a capture that then ends. */
static void record_and_end(CUevent event, CUstream stream, bool breaks)
{
	CUgraph graph;

	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(cuEventRecord(event, stream));
	if (breaks)
		ck_assert_int_eq(cuStreamQuery(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	ck_assert_int_eq(cuStreamEndCapture(stream, &graph),
		breaks ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS);
}

/* Until it is recorded anew. */
TEST(captures, an_event_is_of_no_use_when_its_capture_is_over)
{
	CUstream stream, other;
	CUevent event;
	float time;

	driver_open();
	stream = new_stream();
	other = new_stream();
	ck_cuda(cuEventCreate(&event, CU_EVENT_DEFAULT));
	for (int breaks = 0; breaks < 2; breaks++) {
		record_and_end(event, stream, breaks);
		ck_assert_int_eq(cuEventQuery(event), CUDA_ERROR_INVALID_VALUE);
		ck_assert_int_eq(cuEventSynchronize(event), CUDA_ERROR_INVALID_VALUE);
		ck_assert_int_eq(cuEventElapsedTime(&time, event, event), CUDA_ERROR_INVALID_VALUE);
		ck_assert_int_eq(cuStreamWaitEvent(other, event, 0), CUDA_ERROR_INVALID_VALUE);
		ck_cuda(cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_RELAXED));
		ck_assert_int_eq(cuStreamWaitEvent(other, event, 0), CUDA_ERROR_INVALID_VALUE);
		end_broken(other, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
		ck_cuda(cuEventRecord(event, other));
		ck_cuda(cuEventSynchronize(event));
		ck_cuda(cuEventQuery(event));
	}
}

TEST(captures, what_has_no_place_in_a_capture_ends_it)
{
	CUstream stream, other;
	CUevent outside, inside;
	CUdeviceptr word;
	CUgraph graph;

	driver_open();
	kernel("count_up");
	stream = new_stream();
	other = new_stream();
	outside = new_event();
	inside = new_event();
	word = device_words(1, 0);
	ck_cuda(cuEventRecord(outside, other));

	ck_assert_int_eq(cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_RELAXED),
		CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);

	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_assert_int_eq(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	ck_assert_int_eq(capture_status(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	ck_assert_int_eq(count_up(stream, word, 1), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	end_broken(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_assert_int_eq(cuStreamQuery(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	end_broken(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_assert_int_eq(cuStreamWaitEvent(stream, outside, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	end_broken(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(cuEventRecord(inside, stream));
	ck_assert_int_eq(cuEventSynchronize(inside), CUDA_ERROR_CAPTURED_EVENT);
	end_broken(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_assert_int_eq(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	end_broken(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(count_up(stream, word, 1));
	ck_cuda(cuEventRecord(inside, stream));
	ck_cuda(cuStreamWaitEvent(other, inside, 0));
	ck_cuda(count_up(other, word, 1));
	end_broken(stream, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
	ck_assert_int_eq(capture_status(other), CU_STREAM_CAPTURE_STATUS_NONE);
	ck_assert_int_eq(cuStreamEndCapture(other, &graph), CUDA_ERROR_ILLEGAL_STATE);
	ck_assert_uint_eq(word_at(word), 0);
}

/* A dependency would be missing. */
TEST(captures, a_wait_for_no_event_ends_its_capture)
{
	CUstream stream;

	driver_open();
	stream = new_stream();
	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_assert_int_eq(cuEventRecord(NULL, stream), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(capture_status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	ck_assert_int_eq(cuStreamWaitEvent(stream, NULL, 0), CUDA_ERROR_INVALID_HANDLE);
	end_broken(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST(captures, a_launch_without_its_arguments_ends_no_capture)
{
	CUdeviceptr word;
	CUstream stream;
	CUgraph graph;

	driver_open();
	word = device_words(1, 0);
	stream = new_stream();
	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(count_up(stream, word, 1));
	ck_assert_int_eq(cuLaunchKernel(kernel("count_up"), 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL),
		CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(
		cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
	ck_cuda(cuStreamEndCapture(stream, &graph));
	run(instantiate(graph), stream);
	ck_assert_uint_eq(word_at(word), 1);
}

/* It would be missing in the graph. */
TEST_LOOP(captures, a_launch_that_is_refused_ends_its_capture, 0, 3)
{
	static const struct {
		unsigned blocks, threads, shared;
	} wrong[] = {{0, 32, 0}, {1, 2048, 0}, {1, 32, 1 << 20}};
	CUdeviceptr word;
	uint32_t by = 1;
	void *arguments[] = {&word, &by};
	CUstream stream;

	driver_open();
	word = device_words(1, 0);
	stream = new_stream();
	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(count_up(stream, word, 1));
	ck_assert_int_eq(cuLaunchKernel(kernel("count_up"), wrong[_i].blocks, 1, 1, wrong[_i].threads, 1, 1,
				 wrong[_i].shared, stream, arguments, NULL),
		CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(capture_status(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	end_broken(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	/* Elsewhere nothing comes of it. */
	ck_cuda(count_up(stream, word, 1));
	ck_cuda(cuStreamSynchronize(stream));
	ck_assert_uint_eq(word_at(word), 1);
}

/* Nor is that of no graph. */
TEST(captures, launches_of_graphs_are_not_captured)
{
	static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL,
		CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED};
	CUgraphExec execs[2] = {NULL};
	CUstream stream;
	CUgraph graph;

	driver_open();
	stream = new_stream();
	ck_cuda(cuGraphCreate(&graph, 0));
	add_count(graph, NULL, 0, device_words(1, 0), 1);
	execs[0] = instantiate(graph);
	for (int i = 0; i < 6; i++) {
		CUgraphExec exec = execs[i % 2];

		ck_cuda(cuStreamBeginCapture_v2(stream, modes[i / 2]));
		ck_assert_int_eq(cuGraphLaunch(exec, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
		end_broken(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
		ck_cuda(cuStreamBeginCapture_v2(stream, modes[i / 2]));
		ck_assert_int_eq(cuGraphUpload(exec, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
		end_broken(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	}
	run(execs[0], stream);
}

static CUdeviceptr managed;
static size_t managed_bytes = 4096;

static CUmemLocation device_place(void)
{
	return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
}

static CUresult do_prefetch(CUstream stream)
{
	return cuMemPrefetchAsync(managed, managed_bytes, 0, stream);
}

static CUresult do_prefetch_to_place(CUstream stream)
{
	return cuMemPrefetchAsync_v2(managed, managed_bytes, device_place(), 0, stream);
}

static CUresult do_attach(CUstream stream)
{
	return cuStreamAttachMemAsync(stream, managed, 0, CU_MEM_ATTACH_GLOBAL);
}

static CUresult do_prefetch_batch(CUstream stream)
{
	CUmemLocation place = device_place();
	size_t first = 0;

	return cuMemPrefetchBatchAsync(&managed, &managed_bytes, 1, &place, &first, 1, 0, stream);
}

static CUresult do_discard_and_prefetch_batch(CUstream stream)
{
	CUmemLocation place = device_place();
	size_t first = 0;

	return cuMemDiscardAndPrefetchBatchAsync(&managed, &managed_bytes, 1, &place, &first, 1, 0, stream);
}

static CUresult do_discard_batch(CUstream stream)
{
	return cuMemDiscardBatchAsync(&managed, &managed_bytes, 1, 0, stream);
}

static int prefetched_to(void)
{
	int device;

	ck_cuda(cuMemRangeGetAttribute(&device, sizeof(device), CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
		managed, managed_bytes));
	return device;
}

/* There are no nodes for these. The batches, which come last, are not for the legacy stream at
 * all. */
TEST(captures, managed_memory_is_not_moved_in_a_capture)
{
	static CUresult (*const calls[])(CUstream) = {do_prefetch, do_prefetch_to_place, do_attach,
		do_prefetch_batch, do_discard_and_prefetch_batch, do_discard_batch};
	CUstream stream, blocking;

	driver_open();
	stream = new_stream();
	ck_cuda(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	ck_cuda(cuMemAllocManaged(&managed, managed_bytes, CU_MEM_ATTACH_GLOBAL));
	for (int i = 0; i < 6; i++) {
		ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
		ck_assert_int_eq(calls[i](stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
		end_broken(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	}
	for (int i = 0; i < 3; i++) {
		ck_cuda(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
		ck_assert_int_eq(calls[i](NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
		end_broken(blocking, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	}
	ck_assert_int_eq(prefetched_to(), CU_DEVICE_INVALID);
	ck_cuda(cuMemPrefetchAsync(managed, managed_bytes, 0, stream));
	ck_assert_int_eq(prefetched_to(), 0);
}

static CUresult count_up_with_all(
	CUstream stream, CUdeviceptr word, CUlaunchAttribute *attributes, unsigned int count)
{
	uint32_t one = 1;
	void *arguments[] = {&word, &one};
	CUlaunchConfig config = {.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 1,
		.blockDimY = 1,
		.blockDimZ = 1,
		.hStream = stream,
		.attrs = attributes,
		.numAttrs = count};

	return cuLaunchKernelEx(&config, kernel("count_up"), arguments, NULL);
}

static CUresult count_up_with(CUstream stream, CUdeviceptr word, CUlaunchAttribute attribute)
{
	return count_up_with_all(stream, word, &attribute, 1);
}

static const CUlaunchAttributeID event_attributes[] = {
	CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT};

/* Both have the event in the same place. */
static CUlaunchAttribute records(CUlaunchAttributeID id, CUevent event)
{
	return (CUlaunchAttribute){.id = id, .value.launchCompletionEvent.event = event};
}

/* Not before the launch, whose stream waits for a word; captured, it takes a stream along. */
TEST_LOOP(captures, launches_record_events, 0, 2)
{
	CUstream stream, other;
	CUdeviceptr word, seen;
	CUlaunchAttribute wrong;
	CUevent event, timed;
	uint32_t *gate;
	CUgraph graph;

	driver_open();
	stream = new_stream();
	other = new_stream();
	event = new_event();
	ck_cuda(cuEventCreate(&timed, CU_EVENT_DEFAULT));
	word = device_words(1, 0);
	seen = device_words(1, 0);
	ck_cuda(cuMemHostAlloc((void **)&gate, 64, 0));
	*gate = 0;
	ck_assert_int_eq(
		count_up_with(stream, word, records(event_attributes[_i], timed)), CUDA_ERROR_NOT_SUPPORTED);
	wrong = records(event_attributes[_i], event);
	wrong.value.launchCompletionEvent.flags = CU_EVENT_RECORD_EXTERNAL;
	ck_assert_int_eq(count_up_with(stream, word, wrong), CUDA_ERROR_ILLEGAL_STATE);
	ck_cuda(cuStreamWaitValue32_v2(stream, (CUdeviceptr)(uintptr_t)gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
	ck_cuda(cuMemsetD32Async(word, 41, 1, stream));
	ck_cuda(count_up_with(stream, word, records(event_attributes[_i], event)));
	ck_cuda(cuStreamWaitEvent(other, event, 0));
	ck_cuda(cuMemsetD32Async(seen, 1, 1, other));
	ck_assert_int_eq(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	ck_assert_int_eq(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
	__atomic_store_n(gate, 1, __ATOMIC_RELEASE);
	ck_cuda(cuEventSynchronize(event));
	ck_cuda(cuStreamSynchronize(other));
	ck_assert_uint_eq(word_at(seen), 1);
	ck_cuda(cuStreamSynchronize(stream));
	ck_assert_uint_eq(word_at(word), 42);

	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(count_up_with(stream, word, records(event_attributes[_i], event)));
	ck_cuda(cuStreamWaitEvent(other, event, 0));
	ck_assert_int_eq(capture_status(other), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	ck_cuda(cuStreamEndCapture(stream, &graph));
	ck_assert_uint_eq(node_count(graph), 1);
	run(instantiate(graph), stream);
	ck_assert_uint_eq(word_at(word), 43);
}

/* A kernel that may begin before the one in front of it has ended. */
static CUresult count_up_early(CUstream stream, CUdeviceptr word)
{
	CUlaunchAttribute early = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
		.value.programmaticStreamSerializationAllowed = 1};

	return count_up_with(stream, word, early);
}

/* The nodes that the next one of a capturing stream depends on. */
static size_t capture_ends(CUstream stream, CUgraph *ret_graph, const CUgraphNode **ret_nodes)
{
	const CUgraphEdgeData *data;
	CUstreamCaptureStatus status;
	uint64_t id;
	size_t count;

	ck_cuda(cuStreamGetCaptureInfo_v3(stream, &status, &id, ret_graph, ret_nodes, &data, &count));
	return count;
}

/* The only one of them. */
static CUgraphNode tip_of(CUstream stream)
{
	const CUgraphNode *nodes;
	CUgraph graph;

	ck_assert_uint_eq(capture_ends(stream, &graph, &nodes), 1);
	return nodes[0];
}

static void expect_edge(CUgraphNode from, CUgraphNode to, CUgraphDependencyType type)
{
	CUgraphEdgeData data[4];
	CUgraphNode nodes[4];
	size_t count = 4, at = 0;

	ck_cuda(cuGraphNodeGetDependencies_v2(to, nodes, data, &count));
	while (at < count && nodes[at] != from)
		at++;
	ck_assert_uint_lt(at, count);
	ck_assert_uint_eq(data[at].type, type);
	ck_assert_uint_eq(data[at].from_port, type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
						      ? CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
						      : CU_GRAPH_KERNEL_NODE_PORT_DEFAULT);
}

static CUresult count_at(CUstream stream, CUdeviceptr word, int priority)
{
	return count_up_with(stream, word,
		(CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value = {.priority = priority}});
}

/* Graphs that are made with USE_NODE_PRIORITY, as PyTorch's are, run at these. */
TEST(captures, captured_kernels_keep_the_priority_of_their_stream)
{
	CUgraphNode nodes[3] = {NULL};
	CUlaunchAttributeValue found[3];
	size_t count = 3;
	CUgraphExec exec;
	CUdeviceptr word;
	CUstream stream;
	CUgraph graph;

	driver_open();
	kernel("count_up");
	word = device_words(1, 0);
	ck_cuda(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -3));
	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ck_cuda(count_up(stream, word, 1));
	ck_cuda(count_at(stream, word, -1));
	ck_cuda(count_at(stream, word, 0));
	ck_cuda(cuStreamEndCapture(stream, &graph));
	ck_cuda(cuGraphGetNodes(graph, nodes, &count));
	ck_assert_uint_eq(count, 3);
	for (int i = 0; i < 3; i++)
		ck_cuda(cuGraphKernelNodeGetAttribute(nodes[i], CU_LAUNCH_ATTRIBUTE_PRIORITY, &found[i]));
	ck_assert_int_eq(found[0].priority, -3);
	ck_assert_int_eq(found[1].priority, -1);
	ck_assert_int_eq(found[2].priority, 0);
	ck_cuda(cuGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
	run(exec, stream);
	ck_assert_uint_eq(word_at(word), 3);
}

/* What a stream says of its kernels is their nodes'; a launch that says otherwise is right. */
TEST(captures, captured_kernels_keep_the_attributes_of_their_stream)
{
	const CUlaunchAttributeValue domain = {.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE},
				     map = {.memSyncDomainMap = {2, 3}};
	CUlaunchAttributeValue window = {.accessPolicyWindow = {.num_bytes = 4096, .hitRatio = 0.5F}}, found;
	CUgraphNode nodes[3] = {NULL};
	size_t count = 3;
	CUdeviceptr word;
	CUstream stream;
	CUgraph graph;

	driver_open();
	kernel("count_up");
	word = device_words(1, 0);
	window.accessPolicyWindow.base_ptr = (void *)(uintptr_t)word;
	stream = new_stream();
	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ck_cuda(count_up(stream, word, 1));
	ck_cuda(cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, &domain));
	ck_cuda(cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, &map));
	ck_cuda(cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &window));
	ck_cuda(count_up(stream, word, 1));
	ck_cuda(count_up_with(stream, word, (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN}));
	ck_cuda(cuStreamEndCapture(stream, &graph));
	ck_cuda(cuGraphGetNodes(graph, nodes, &count));
	ck_assert_uint_eq(count, 3);
	for (unsigned int i = 0; i < 3; i++) {
		ck_cuda(cuGraphKernelNodeGetAttribute(nodes[i], CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, &found));
		ck_assert_int_eq(found.memSyncDomain, i == 1);
		ck_cuda(cuGraphKernelNodeGetAttribute(
			nodes[i], CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, &found));
		ck_assert_uint_eq(found.memSyncDomainMap.default_, i ? 2 : 0);
		ck_assert_uint_eq(found.memSyncDomainMap.remote, i ? 3 : 1);
		ck_cuda(cuGraphKernelNodeGetAttribute(
			nodes[i], CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &found));
		ck_assert_uint_eq(found.accessPolicyWindow.num_bytes, i ? 4096 : 0);
		ck_assert_ptr_eq(
			found.accessPolicyWindow.base_ptr, i ? window.accessPolicyWindow.base_ptr : NULL);
	}
	run(instantiate(graph), stream);
	ck_assert_uint_eq(word_at(word), 3);
}

/* A program may give any number. */
TEST(captures, of_many_launch_attributes_the_last_of_a_kind_count)
{
	enum { MANY = 300 };
	CUlaunchAttribute attributes[MANY] = {{.id = CU_LAUNCH_ATTRIBUTE_IGNORE}};
	CUlaunchAttributeValue found;
	CUdeviceptr word;
	CUgraphNode node;
	CUstream stream;
	CUgraph graph;
	size_t count = 1;

	driver_open();
	kernel("count_up");
	word = device_words(1, 0);
	stream = new_stream();
	for (int i = 0; i < MANY; i++)
		attributes[i] = (CUlaunchAttribute){
			.id = i % 2 ? CU_LAUNCH_ATTRIBUTE_PRIORITY : CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN};
	attributes[MANY - 3].value.priority = -1;
	attributes[MANY - 2].value.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
	attributes[MANY - 1].value.priority = -2;
	ck_cuda(count_up_with_all(stream, word, attributes, MANY));
	ck_cuda(cuStreamSynchronize(stream));
	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ck_cuda(count_up_with_all(stream, word, attributes, MANY));
	ck_cuda(cuStreamEndCapture(stream, &graph));
	ck_cuda(cuGraphGetNodes(graph, &node, &count));
	ck_cuda(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &found));
	ck_assert_int_eq(found.priority, -2);
	ck_cuda(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, &found));
	ck_assert_int_eq(found.memSyncDomain, CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE);
	/* A size of no block is as if it was not given; one of some is none. */
	for (int i = 0; i < 2; i++)
		attributes[i] = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
	ck_cuda(count_up_with_all(stream, word, attributes, 2));
	attributes[0].value = (CUlaunchAttributeValue){.clusterDim = {2, 1, 1}};
	ck_assert_int_eq(count_up_with_all(stream, word, attributes, 2), CUDA_ERROR_INVALID_CLUSTER_SIZE);
	attributes[0].value = (CUlaunchAttributeValue){.clusterDim = {1, 1, 0}};
	ck_assert_int_eq(count_up_with_all(stream, word, attributes, 2), CUDA_ERROR_INVALID_CLUSTER_SIZE);
	/* Each is checked, also one that does not count. */
	attributes[0] = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN};
	attributes[0].value.memSyncDomain = (CUlaunchMemSyncDomain)7;
	ck_assert_int_eq(count_up_with_all(stream, word, attributes, MANY), CUDA_ERROR_INVALID_VALUE);
	run(instantiate(graph), stream);
	ck_assert_uint_eq(word_at(word), 3);
}

/* It overlaps with the kernel before it in its own stream alone: who waits for an event waits for
 * the end of what was recorded. Whether the driver's captures say as much is not known. */
TEST(captures, events_are_waited_for_to_their_end_by_early_kernels)
{
	CUgraphNode first, forked, early, joined, last;
	CUstream origin, other;
	CUevent fork, join;
	CUdeviceptr a, b;
	CUgraph graph;

	if (is_native())
		return;
	driver_open();
	kernel("count_up");
	origin = new_stream();
	other = new_stream();
	fork = new_event();
	join = new_event();
	a = device_words(1, 0);
	b = device_words(1, 0);
	ck_cuda(cuStreamBeginCapture_v2(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(count_up(origin, a, 1));
	first = tip_of(origin);
	ck_cuda(cuEventRecord(fork, origin));
	ck_cuda(cuStreamWaitEvent(other, fork, 0));
	ck_cuda(count_up_early(other, b));
	forked = tip_of(other);
	expect_edge(first, forked, CU_GRAPH_DEPENDENCY_TYPE_DEFAULT);
	ck_cuda(count_up_early(origin, a));
	early = tip_of(origin);
	expect_edge(first, early, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
	ck_cuda(cuEventRecord(join, other));
	ck_cuda(cuStreamWaitEvent(origin, join, 0));
	ck_cuda(count_up_early(origin, a));
	joined = tip_of(origin);
	expect_edge(early, joined, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
	expect_edge(forked, joined, CU_GRAPH_DEPENDENCY_TYPE_DEFAULT);
	/* Its own stream's event, too. */
	ck_cuda(cuEventRecord(fork, origin));
	ck_cuda(cuStreamWaitEvent(origin, fork, 0));
	ck_cuda(count_up_early(origin, b));
	last = tip_of(origin);
	expect_edge(joined, last, CU_GRAPH_DEPENDENCY_TYPE_DEFAULT);
	ck_cuda(cuStreamEndCapture(origin, &graph));
	run(instantiate(graph), origin);
	ck_assert_uint_eq(word_at(a), 3);
	ck_assert_uint_eq(word_at(b), 2);
}

/* What the program says of an edge is done, unless something else says that more is to be waited
 * for. */
TEST(captures, the_stricter_of_two_dependencies_counts)
{
	static const CUgraphEdgeData early = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
		.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
	CUgraphNode first, second, third, fourth;
	CUdeviceptr word;
	CUstream stream;
	CUgraph graph;
	CUevent event;

	if (is_native())
		return;
	driver_open();
	kernel("count_up");
	stream = new_stream();
	event = new_event();
	word = device_words(1, 0);
	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(count_up(stream, word, 1));
	first = tip_of(stream);
	ck_cuda(cuStreamUpdateCaptureDependencies_v2(
		stream, &first, &early, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	ck_cuda(count_up(stream, word, 1));
	second = tip_of(stream);
	expect_edge(first, second, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
	ck_cuda(cuEventRecord(event, stream));
	ck_cuda(cuStreamUpdateCaptureDependencies_v2(
		stream, &second, &early, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	ck_cuda(cuStreamWaitEvent(stream, event, 0));
	ck_cuda(count_up(stream, word, 1));
	third = tip_of(stream);
	expect_edge(second, third, CU_GRAPH_DEPENDENCY_TYPE_DEFAULT);
	ck_cuda(cuStreamUpdateCaptureDependencies(stream, &third, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	ck_cuda(count_up_early(stream, word));
	fourth = tip_of(stream);
	expect_edge(third, fourth, CU_GRAPH_DEPENDENCY_TYPE_DEFAULT);
	ck_cuda(cuStreamEndCapture(stream, &graph));
	run(instantiate(graph), stream);
	ck_assert_uint_eq(word_at(word), 4);
}

/* One that only waits leaves nothing behind that somebody would have to wait for. */
TEST(captures, a_stream_without_work_needs_no_join)
{
	CUstream stream, other;
	CUdeviceptr word;
	CUevent event;
	CUgraph graph;

	driver_open();
	kernel("count_up");
	stream = new_stream();
	other = new_stream();
	event = new_event();
	word = device_words(1, 0);
	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(count_up(stream, word, 1));
	ck_cuda(cuEventRecord(event, stream));
	ck_cuda(cuStreamWaitEvent(other, event, 0));
	ck_assert_int_eq(capture_status(other), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	ck_cuda(cuStreamEndCapture(stream, &graph));
	ck_assert_int_eq(capture_status(other), CU_STREAM_CAPTURE_STATUS_NONE);
	ck_assert_uint_eq(node_count(graph), 1);
}

/* A stream that captures beside an origin: the word that its only node changes, and an event behind
 * that node. */
struct side {
	CUstream origin, stream;
	CUdeviceptr word;
	CUevent fork, end;
};

static void side_begin(struct side *side, CUstreamCaptureMode mode)
{
	driver_open();
	kernel("count_up");
	side->origin = new_stream();
	side->stream = new_stream();
	side->fork = new_event();
	side->end = new_event();
	side->word = device_words(1, 0);
	ck_cuda(cuStreamBeginCapture_v2(side->origin, mode));
	ck_cuda(count_up(side->origin, side->word, 1));
	ck_cuda(cuEventRecord(side->fork, side->origin));
	ck_cuda(cuStreamWaitEvent(side->stream, side->fork, 0));
	ck_cuda(count_up(side->stream, side->word, 2));
	ck_cuda(cuEventRecord(side->end, side->stream));
}

/* The three nodes, one after the other. */
static void side_expect_graph(const struct side *side)
{
	CUgraph graph;

	ck_cuda(count_up(side->origin, side->word, 4));
	ck_cuda(cuStreamEndCapture(side->origin, &graph));
	ck_assert_uint_eq(node_count(graph), 3);
	run(instantiate(graph), side->origin);
	ck_assert_uint_eq(word_at(side->word), 7);
}

TEST_LOOP(captures, a_stream_that_has_joined_may_be_destroyed_in_a_capture, CU_STREAM_CAPTURE_MODE_GLOBAL,
	CU_STREAM_CAPTURE_MODE_RELAXED + 1)
{
	struct side side;

	side_begin(&side, _i);
	ck_cuda(cuStreamWaitEvent(side.origin, side.end, 0));
	ck_cuda(cuStreamDestroy_v2(side.stream));
	ck_cuda(cuEventDestroy_v2(side.fork));
	ck_cuda(cuEventDestroy_v2(side.end));
	ck_assert_int_eq(capture_status(side.origin), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	ck_assert_int_eq(capture_status(new_stream()), CU_STREAM_CAPTURE_STATUS_NONE);
	side_expect_graph(&side);
}

/* What it captured is joined by an event that outlives it. */
TEST(captures, a_stream_that_is_destroyed_in_a_capture_can_be_joined)
{
	struct side side;

	side_begin(&side, CU_STREAM_CAPTURE_MODE_RELAXED);
	ck_cuda(cuStreamDestroy_v2(side.stream));
	ck_cuda(cuStreamWaitEvent(side.origin, side.end, 0));
	side_expect_graph(&side);
}

TEST(captures, a_stream_that_is_destroyed_in_a_capture_must_be_joined)
{
	struct side side;

	side_begin(&side, CU_STREAM_CAPTURE_MODE_RELAXED);
	ck_cuda(cuStreamDestroy_v2(side.stream));
	ck_assert_int_eq(capture_status(side.origin), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	end_broken(side.origin, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
	ck_assert_uint_eq(word_at(side.word), 0);
}

TEST(captures, a_stream_without_work_may_be_destroyed_in_a_capture)
{
	struct side side;
	CUstream idle;

	side_begin(&side, CU_STREAM_CAPTURE_MODE_RELAXED);
	idle = new_stream();
	ck_cuda(cuStreamWaitEvent(idle, side.fork, 0));
	ck_cuda(cuStreamDestroy_v2(idle));
	ck_cuda(cuStreamWaitEvent(side.origin, side.end, 0));
	side_expect_graph(&side);
}

static void side_do(struct side *side, char step)
{
	const bool adds = step == 'a';
	const CUgraphNode *ends;
	CUgraphNode node;
	CUgraph graph;
	size_t count = capture_ends(side->stream, &graph, &ends);

	switch (step) {
	case 'n': /* another node of the stream */
		ck_cuda(count_up(side->stream, side->word, 1));
		break;
	case 'j':
		ck_cuda(cuEventRecord(side->end, side->stream));
		ck_cuda(cuStreamWaitEvent(side->origin, side->end, 0));
		break;
	case 'b': /* a node of the program's behind the stream's */
		ck_cuda(cuGraphAddEmptyNode(&node, graph, ends, count));
		break;
	case 'a': /* the stream goes on behind a node of the program's: besides, or instead */
	case 's':
		ck_cuda(cuGraphAddEmptyNode(&node, graph, NULL, 0));
		ck_cuda(cuStreamUpdateCaptureDependencies(side->stream, &node, 1,
			adds ? CU_STREAM_ADD_CAPTURE_DEPENDENCIES : CU_STREAM_SET_CAPTURE_DEPENDENCIES));
		break;
	case 'f': /* it goes on behind nothing */
		ck_cuda(cuStreamUpdateCaptureDependencies(
			side->stream, NULL, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
		break;
	default: /* 'o': the origin does */
		ck_cuda(cuStreamUpdateCaptureDependencies(
			side->origin, NULL, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
	}
}

/* NCCL takes its stream out of a capture so. */
TEST_LOOP(captures, a_node_that_its_stream_has_dropped_need_not_be_joined, 0, 12)
{
	static const struct {
		const char *steps;
		CUresult code;
	} forms[] = {{"", CUDA_ERROR_STREAM_CAPTURE_UNJOINED}, {"f", CUDA_SUCCESS}, {"s", CUDA_SUCCESS},
		{"a", CUDA_ERROR_STREAM_CAPTURE_UNJOINED}, {"sn", CUDA_ERROR_STREAM_CAPTURE_UNJOINED},
		{"snjs", CUDA_SUCCESS}, {"js", CUDA_SUCCESS}, {"b", CUDA_SUCCESS},
		{"bn", CUDA_ERROR_STREAM_CAPTURE_UNJOINED}, {"o", CUDA_ERROR_STREAM_CAPTURE_UNJOINED},
		{"jo", CUDA_SUCCESS}, {"jns", CUDA_SUCCESS}};
	struct side side;
	CUgraph graph;

	side_begin(&side, CU_STREAM_CAPTURE_MODE_RELAXED);
	for (const char *step = forms[_i].steps; *step; step++)
		side_do(&side, *step);
	ck_assert_int_eq(cuStreamEndCapture(side.origin, &graph), forms[_i].code);
}

#define FORKS 1300

/* Each has all that were before it behind its back, and nothing joins them but the origin. */
TEST(captures, many_streams_join_in_no_time)
{
	CUstream origin, stream;
	CUdeviceptr word;
	CUevent fork, end;
	CUgraph graph;

	driver_open();
	kernel("count_up");
	origin = new_stream();
	fork = new_event();
	word = device_words(1, 0);
	ck_cuda(cuStreamBeginCapture_v2(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(count_up(origin, word, 1));
	for (int i = 0; i < FORKS; i++) {
		stream = new_stream();
		end = new_event();
		ck_cuda(cuEventRecord(fork, origin));
		ck_cuda(cuStreamWaitEvent(stream, fork, 0));
		ck_cuda(count_up(stream, word, 1));
		ck_cuda(cuEventRecord(end, stream));
		ck_cuda(cuStreamWaitEvent(origin, end, 0));
		ck_cuda(cuEventDestroy_v2(end));
		ck_cuda(cuStreamDestroy_v2(stream));
	}
	ck_cuda(cuStreamEndCapture(origin, &graph));
	ck_assert_uint_eq(node_count(graph), FORKS + 1);
}

TEST(captures_3, captures_stay_apart)
{
	CUstream a, b, blocking;
	CUgraph graph;
	CUevent event;
	CUstreamCaptureStatus status;
	CUdeviceptr word;

	driver_open();
	kernel("count_up");
	a = new_stream();
	b = new_stream();
	event = new_event();
	word = device_words(1, 0);
	ck_cuda(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(cuStreamBeginCapture_v2(b, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(cuEventRecord(event, a));
	ck_assert_int_eq(cuStreamWaitEvent(b, event, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
	end_broken(a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	end_broken(b, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

	/* Another stream is not the origin. */
	ck_cuda(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(cuEventRecord(event, a));
	ck_cuda(cuStreamWaitEvent(b, event, 0));
	ck_assert_int_eq(cuStreamEndCapture(b, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	ck_assert_int_eq(capture_status(a), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	ck_assert_int_eq(capture_status(b), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	end_broken(a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	ck_assert_int_eq(capture_status(b), CU_STREAM_CAPTURE_STATUS_NONE);

	/* The legacy stream is only in the way of streams that wait for it. */
	ck_cuda(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(count_up(NULL, word, 1));
	ck_cuda(cuStreamEndCapture(a, &graph));
	ck_cuda(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	ck_cuda(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_assert_int_eq(cuStreamIsCapturing(NULL, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	ck_assert_int_eq(capture_status(blocking), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	ck_assert_int_eq(count_up(NULL, word, 1), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	end_broken(blocking, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	ck_assert_uint_eq(word_at(word), 1);
}

TEST(captures_3, captures_go_on_in_a_graph_that_is_there)
{
	CUgraphNode nodes[2], *tips;
	const CUgraphNode *now;
	CUdeviceptr word;
	CUgraph graph, same;
	CUstream stream;
	CUstreamCaptureStatus status;
	uint64_t id;
	size_t count;

	driver_open();
	kernel("count_up");
	stream = new_stream();
	word = device_words(1, 0);
	ck_cuda(cuGraphCreate(&graph, 0));
	nodes[0] = add_count(graph, NULL, 0, word, 1);
	ck_cuda(cuStreamBeginCaptureToGraph(stream, graph, nodes, NULL, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(count_up(stream, word, 10));
	nodes[1] = add_count(graph, nodes, 1, word, 100);
	tips = &nodes[1];
	ck_cuda(cuStreamUpdateCaptureDependencies(stream, tips, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
	ck_cuda(cuStreamGetCaptureInfo_v2(stream, &status, &id, &same, &now, &count));
	ck_assert_uint_eq(count, 2);
	ck_cuda(count_up(stream, word, 1000));
	ck_cuda(cuStreamEndCapture(stream, &same));
	ck_assert_ptr_eq(graph, same);
	ck_assert_uint_eq(node_count(graph), 4);
	run(instantiate(graph), stream);
	ck_assert_uint_eq(word_at(word), 1111);
}

/* A graph that is captured into grows only. Which error the driver has for that is not known. */
TEST(captures_3, nothing_is_taken_out_in_the_middle_of_a_capture)
{
	CUgraph graph, same;
	CUgraphNode node;
	CUdeviceptr word;
	CUstream stream;

	if (is_native())
		return;
	driver_open();
	kernel("count_up");
	stream = new_stream();
	word = device_words(1, 0);
	ck_cuda(cuGraphCreate(&graph, 0));
	node = add_count(graph, NULL, 0, word, 1);
	ck_cuda(cuStreamBeginCaptureToGraph(stream, graph, &node, NULL, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_assert_int_eq(cuGraphDestroyNode(node), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(count_up(stream, word, 10));
	ck_cuda(cuStreamEndCapture(stream, &same));
	run(instantiate(graph), stream);
	ck_assert_uint_eq(word_at(word), 11);
	ck_cuda(cuGraphDestroyNode(node));
	ck_cuda(cuGraphDestroy(graph));
}

/* A graph with a child; the child is the node's. */
struct family {
	CUgraph parent, child;
	CUgraphNode node;
};

static struct family family_with(CUdeviceptr word)
{
	struct family family;
	CUgraph graph;

	ck_cuda(cuGraphCreate(&graph, 0));
	add_count(graph, NULL, 0, word, 1);
	ck_cuda(cuGraphCreate(&family.parent, 0));
	ck_cuda(cuGraphAddChildGraphNode(&family.node, family.parent, NULL, 0, graph));
	ck_cuda(cuGraphChildGraphNodeGetGraph(family.node, &family.child));
	ck_cuda(cuGraphDestroy(graph));
	return family;
}

/* What is captured into a child is in its parent, which waits for it. */
TEST(captures_3, captures_go_into_a_child)
{
	CUgraphExecUpdateResultInfo info;
	CUgraphExec before, behind;
	struct family family;
	CUdeviceptr word;
	CUstream stream;
	CUgraph same, clone;

	driver_open();
	kernel("count_up");
	stream = new_stream();
	word = device_words(1, 0);
	family = family_with(word);
	before = instantiate(family.parent);
	ck_cuda(cuStreamBeginCaptureToGraph(
		stream, family.child, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(count_up(stream, word, 10));
	if (!is_native()) {
		ck_assert_int_eq(
			cuGraphInstantiateWithFlags(&behind, family.parent, 0), CUDA_ERROR_ILLEGAL_STATE);
		ck_assert_int_eq(
			cuGraphExecUpdate_v2(before, family.parent, &info), CUDA_ERROR_ILLEGAL_STATE);
		ck_assert_int_eq(cuGraphDestroyNode(family.node), CUDA_ERROR_INVALID_VALUE);
		ck_assert_int_eq(cuGraphDestroy(family.parent), CUDA_ERROR_INVALID_VALUE);
	}
	ck_cuda(cuGraphClone(&clone, family.parent));
	ck_cuda(count_up(stream, word, 100));
	ck_cuda(cuStreamEndCapture(stream, &same));
	ck_assert_ptr_eq(same, family.child);
	behind = instantiate(family.parent);
	ck_cuda(cuGraphDestroy(family.parent));
	run(before, stream);
	ck_assert_uint_eq(word_at(word), 1);
	run(behind, stream);
	ck_assert_uint_eq(word_at(word), 112);
	run(instantiate(clone), stream);
	ck_assert_uint_eq(word_at(word), 123);
}

/* A child of a graph that a capture makes and gives to nobody. What the driver does then is not
 * known. */
TEST(captures_3, a_capture_ends_with_the_graph_around_it)
{
	CUstream outer, inner;
	CUstreamCaptureStatus status;
	struct family family;
	CUgraph graph, child;
	CUgraphNode node;
	CUdeviceptr word;

	if (is_native())
		return;
	driver_open();
	kernel("count_up");
	outer = new_stream();
	inner = new_stream();
	word = device_words(1, 0);
	family = family_with(word);
	for (int gives_up = 0; gives_up < 2; gives_up++) {
		ck_cuda(cuStreamBeginCapture_v2(outer, CU_STREAM_CAPTURE_MODE_RELAXED));
		ck_cuda(cuStreamGetCaptureInfo_v2(outer, &status, NULL, &graph, NULL, NULL));
		ck_cuda(cuGraphAddChildGraphNode(&node, graph, NULL, 0, family.parent));
		ck_cuda(cuGraphChildGraphNodeGetGraph(node, &child));
		ck_cuda(cuStreamBeginCaptureToGraph(
			inner, child, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
		ck_cuda(count_up(inner, word, 10));
		if (gives_up) {
			ck_cuda(cuStreamDestroy_v2(outer));
		} else {
			ck_assert_int_eq(cuStreamQuery(outer), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
			end_broken(outer, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
		}
		ck_assert_int_eq(capture_status(inner), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
		ck_assert_int_eq(count_up(inner, word, 10), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
		end_broken(inner, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	}
	run(instantiate(family.parent), inner);
	ck_assert_uint_eq(word_at(word), 1);
}

static void *capture_and_end(void *context)
{
	CUstreamCaptureStatus status;

	ck_cuda(cuCtxSetCurrent(context));
	ck_cuda(cuStreamIsCapturing_ptsz(NULL, &status));
	ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_NONE);
	ck_cuda(cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
	return NULL;
}

/* A stream that begins where another one ended in the middle of a capture has nothing to do with
 * it. */
TEST(captures_3, captures_end_with_their_stream)
{
	CUcontext primary, made;
	CUstream stream;
	CUdeviceptr a;

	if (is_native())
		return;
	driver_open();
	a = device_words(WORDS, 0);
	ck_cuda(cuCtxGetCurrent(&primary));
	ck_cuda(cuCtxCreate_v2(&made, 0, 0));
	ck_cuda(cuStreamBeginCapture_v2(new_stream(), CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(cuCtxDestroy_v2(made));
	ck_cuda(cuCtxSetCurrent(primary));
	stream = new_stream();
	ck_assert_int_eq(capture_status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
	ck_cuda(cuMemsetD32Async(a, 31, WORDS, stream));
	ck_cuda(cuStreamSynchronize(stream));
	expect_words(a, WORDS, 31);
	/* And a thread's own stream, which ends with the thread. */
	for (int i = 0; i < 2; i++) {
		pthread_t thread;

		ck_assert_int_eq(pthread_create(&thread, NULL, capture_and_end, primary), 0);
		pthread_join(thread, NULL);
	}
}

struct capturer {
	CUcontext context;
	CUstream stream; /* the legacy stream waits for it */
	uint32_t ended;
};

static void *capture_again_and_again(void *arg)
{
	struct capturer *c = arg;
	CUgraph graph;

	ck_cuda(cuCtxSetCurrent(c->context));
	for (int i = 0; i < 50000; i++) {
		ck_cuda(cuStreamBeginCapture_v2(c->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
		if (cuStreamEndCapture(c->stream, &graph) == CUDA_SUCCESS)
			ck_cuda(cuGraphDestroy(graph));
	}
	__atomic_store_n(&c->ended, 1, __ATOMIC_RELEASE);
	return NULL;
}

static CUresult ask_priority(void)
{
	int priority;

	return cuStreamGetPriority(NULL, &priority);
}

static CUresult ask_flags(void)
{
	unsigned int flags;

	return cuStreamGetFlags(NULL, &flags);
}

static CUresult ask_id(void)
{
	unsigned long long id;

	return cuStreamGetId(NULL, &id);
}

static CUresult ask_context(void)
{
	CUcontext context;

	return cuStreamGetCtx(NULL, &context);
}

static CUresult ask_attribute(void)
{
	CUlaunchAttributeValue value;

	return cuStreamGetAttribute(NULL, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value);
}

static CUresult ask_if_capturing(void)
{
	CUstreamCaptureStatus status;

	return cuStreamIsCapturing(NULL, &status);
}

/* While it would wait for a capture. */
TEST_LOOP(captures_4, the_legacy_stream_has_no_answers, 0, 6)
{
	static CUresult (*const questions[])(void) = {
		ask_if_capturing, ask_priority, ask_flags, ask_id, ask_context, ask_attribute};
	CUstream stream;
	CUgraph graph;

	driver_open();
	ck_cuda(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
	ck_cuda(questions[_i]());
	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_assert_int_eq(questions[_i](), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	cuStreamEndCapture(stream, &graph);
	ck_cuda(questions[_i]());
}

/* A capture on another thread is in the way of the legacy stream, or it is not: nothing else is
 * said when it begins or ends at that moment. Not natively: the driver (580) crashes. */
TEST(captures_4, the_legacy_stream_is_in_no_capture)
{
	struct capturer capturer = {0};
	pthread_t thread;

	driver_open();
	ck_cuda(cuCtxGetCurrent(&capturer.context));
	ck_cuda(cuStreamCreate(&capturer.stream, CU_STREAM_DEFAULT));
	ck_assert_int_eq(pthread_create(&thread, NULL, capture_again_and_again, &capturer), 0);
	while (!__atomic_load_n(&capturer.ended, __ATOMIC_ACQUIRE)) {
		CUresult r = cuStreamQuery(NULL);

		if (r != CUDA_SUCCESS)
			ck_assert_int_eq(r, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	}
	pthread_join(thread, NULL);
	ck_cuda(cuStreamQuery(NULL));
}

/* A host function, ordinary memory, a wait for a word. */
TEST(captures_5, everything_is_captured)
{
	struct told told = {0};
	uint32_t *pinned, ordinary = 5, out = 0;
	CUdeviceptr word, flag;
	CUgraphExec exec;
	CUgraph graph;
	CUstream stream;

	driver_open();
	kernel("count_up");
	stream = new_stream();
	word = device_words(1, 0);
	flag = device_words(1, 0);
	ck_cuda(cuMemHostAlloc((void **)&pinned, 4, 0));
	told.word = pinned;
	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ck_cuda(cuMemcpyHtoDAsync_v2(word, &ordinary, 4, stream));
	ck_cuda(count_up(stream, word, 1));
	ck_cuda(cuMemcpyDtoHAsync_v2(pinned, word, 4, stream));
	ck_cuda(cuLaunchHostFunc(stream, tell, &told));
	ck_cuda(cuStreamWriteValue32_v2(stream, flag, 77, 0));
	ck_cuda(cuStreamWaitValue32_v2(stream, flag, 77, CU_STREAM_WAIT_VALUE_EQ));
	ck_cuda(count_up(stream, word, 1));
	ck_cuda(cuMemcpyDtoHAsync_v2(&out, word, 4, stream));
	ck_cuda(cuStreamEndCapture(stream, &graph));
	exec = instantiate(graph);
	ck_assert_uint_eq(told.count, 0);
	for (uint32_t i = 1; i <= 3; i++) {
		ordinary = 5 * i;
		run(exec, stream);
		ck_assert_uint_eq(told.count, i);
		ck_assert_uint_eq(told.seen[i - 1], 5 * i + 1);
		ck_assert_uint_eq(out, 5 * i + 2);
	}
	ck_assert_uint_eq(word_at(flag), 77);
}

/* Nor is it broken by an event whose capture is over. */
TEST(captures_2, a_launch_joins_no_capture)
{
	CUgraph graph, captured;
	CUstream stream, origin;
	CUgraphNode node;
	CUdeviceptr word;
	CUgraphExec exec;
	CUevent event;

	driver_open();
	stream = new_stream();
	origin = new_stream();
	event = new_event();
	word = device_words(1, 0);
	ck_cuda(cuGraphCreate(&graph, 0));
	node = add_count(graph, NULL, 0, word, 1);
	ck_cuda(cuGraphAddEventWaitNode(&node, graph, &node, 1, event));
	add_count(graph, &node, 1, word, 10);
	exec = instantiate(graph);
	ck_cuda(cuStreamBeginCapture_v2(origin, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(count_up(origin, word, 100));
	ck_cuda(cuEventRecord(event, origin));
	ck_cuda(cuGraphLaunch(exec, stream));
	ck_assert_int_eq(capture_status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
	ck_cuda(cuStreamEndCapture(origin, &captured));
	ck_assert_uint_eq(node_count(captured), 1);
	ck_cuda(cuGraphLaunch(exec, stream));
	ck_cuda(cuStreamSynchronize(stream));
	ck_assert_uint_eq(word_at(word), 22);
}

#if SCARCE_POSSIBLE
static int end_without_memory(int unused)
{
	CUstream stream;
	CUgraph graph;
	CUdeviceptr p;
	CUresult r;

	(void)unused;
	driver_attach();
	stream = new_stream();
	p = device_words(1, 0);
	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ck_cuda(cuMemsetD32Async(p, 1, 1, stream));
	scarce_begin();
	r = cuStreamEndCapture(stream, &graph);
	scarce_end();
	return r != CUDA_ERROR_OUT_OF_MEMORY || capture_status(stream) != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* A stream that waits for only some of the nodes it should wait for is of no use. */
static int depend_without_memory(int unused)
{
	static CUgraphNode nodes[1024];
	CUstreamCaptureStatus status;
	CUstream stream;
	CUgraph graph;
	uint64_t id;
	CUresult r;

	(void)unused;
	driver_attach();
	stream = new_stream();
	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ck_cuda(cuStreamGetCaptureInfo_v2(stream, &status, &id, &graph, NULL, NULL));
	for (size_t i = 0; i < 1024; i++)
		ck_cuda(cuGraphAddEmptyNode(&nodes[i], graph, NULL, 0));
	scarce_begin();
	r = cuStreamUpdateCaptureDependencies(stream, nodes, 1024, CU_STREAM_ADD_CAPTURE_DEPENDENCIES);
	scarce_end();
	if (r != CUDA_ERROR_OUT_OF_MEMORY || capture_status(stream) != CU_STREAM_CAPTURE_STATUS_INVALIDATED)
		return 1;
	return cuStreamEndCapture(stream, &graph) != CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}
#endif

TEST(captures, a_capture_without_memory_is_invalid)
{
#if SCARCE_POSSIBLE
	if (!is_native())
		ck_assert_int_eq(exit_status(spawn(depend_without_memory, 0)), 0);
#endif
}

/* Its streams are joined. */
TEST(captures, a_capture_that_ends_without_memory_says_so)
{
#if SCARCE_POSSIBLE
	if (!is_native())
		ck_assert_int_eq(exit_status(spawn(end_without_memory, 0)), 0);
#endif
}

int main(void)
{
	Suite *suite = suite_create("captures");
	TCase *tests = tcase_create("captures");

	tcase_set_timeout(tests, 120);
	tcase_add_unchecked_fixture(tests, common_service_start, common_service_stop);
	suite_add(tests, "captures");
	if (!is_native())
		suite_add(tests, "captures_2");
	suite_add(tests, "captures_3");
	if (!is_native())
		suite_add(tests, "captures_4");
	suite_add(tests, "captures_5");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
