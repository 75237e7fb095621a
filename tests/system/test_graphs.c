// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Graphs and stream capture, as one program sees them. Like test_semantics, the tests run against NVIDIA's
// library as well and must pass there; the last case is about faults of others and runs against the service
// alone.

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"

#define WORDS 1024u

static struct service service;

/* ---- short forms ---- */

static CUstream new_stream(void)
{
	CUstream stream;

	ck_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

static CUevent new_event(void)
{
	CUevent event;

	ck_cuda(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	return event;
}

static CUstreamCaptureStatus status_of(CUstream stream)
{
	CUstreamCaptureStatus status;

	ck_cuda(cuStreamIsCapturing(stream, &status));
	return status;
}

static CUresult count_up(CUstream stream, CUdeviceptr word, uint32_t by)
{
	void *arguments[] = {&word, &by};

	return launch("count_up", 1, 1, stream, arguments);
}

static CUresult fill(CUstream stream, CUdeviceptr out, uint32_t value, uint64_t count)
{
	void *arguments[] = {&out, &value, &count};

	return launch("fill", 4, 64, stream, arguments);
}

static uint32_t word_at(CUdeviceptr address)
{
	uint32_t word;

	ck_cuda(cuMemcpyDtoH_v2(&word, address, sizeof(word)));
	return word;
}

static void expect_words(CUdeviceptr address, uint32_t count, uint32_t value)
{
	uint32_t *words = malloc(count * sizeof(*words));

	ck_assert_ptr_nonnull(words);
	ck_cuda(cuMemcpyDtoH_v2(words, address, count * sizeof(*words)));
	for (uint32_t i = 0; i < count; i++)
		ck_assert_uint_eq(words[i], value);
	free(words);
}

static CUgraphExec instantiate(CUgraph graph)
{
	CUgraphExec exec;

	ck_cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
	return exec;
}

static void run(CUgraphExec exec, CUstream stream)
{
	ck_cuda(cuGraphLaunch(exec, stream));
	ck_cuda(cuStreamSynchronize(stream));
}

static CUDA_KERNEL_NODE_PARAMS kernel_params(
	const char *name, unsigned blocks, unsigned threads, void **arguments)
{
	return (CUDA_KERNEL_NODE_PARAMS){.func = kernel(name),
		.gridDimX = blocks,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = threads,
		.blockDimY = 1,
		.blockDimZ = 1,
		.kernelParams = arguments};
}

static CUgraphNode add_count(
	CUgraph graph, const CUgraphNode *before, size_t count, CUdeviceptr word, uint32_t by)
{
	void *arguments[] = {&word, &by};
	CUDA_KERNEL_NODE_PARAMS params = kernel_params("count_up", 1, 1, arguments);
	CUgraphNode node;

	ck_cuda(cuGraphAddKernelNode_v2(&node, graph, before, count, &params));
	return node;
}

static CUgraphNode add_fill(
	CUgraph graph, const CUgraphNode *before, size_t count, CUdeviceptr out, uint32_t value)
{
	uint64_t words = WORDS;
	void *arguments[] = {&out, &value, &words};
	CUDA_KERNEL_NODE_PARAMS params = kernel_params("fill", 4, 64, arguments);
	CUgraphNode node;

	ck_cuda(cuGraphAddKernelNode_v2(&node, graph, before, count, &params));
	return node;
}

static CUgraphNode add_set(
	CUgraph graph, const CUgraphNode *before, size_t count, CUdeviceptr dst, uint32_t value)
{
	CUDA_MEMSET_NODE_PARAMS params = {.dst = dst,
		.value = value,
		.elementSize = 4,
		.width = WORDS,
		.height = 1,
		.pitch = WORDS * 4};
	CUgraphNode node;
	CUcontext context;

	ck_cuda(cuCtxGetCurrent(&context));
	ck_cuda(cuGraphAddMemsetNode(&node, graph, before, count, &params, context));
	return node;
}

static CUDA_MEMCPY3D copy_params(
	CUdeviceptr dst, CUdeviceptr src, void *dst_host, const void *src_host, size_t bytes)
{
	return (CUDA_MEMCPY3D){
		.srcMemoryType = src_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
		.srcHost = src_host,
		.srcDevice = src,
		.srcPitch = bytes,
		.srcHeight = 1,
		.dstMemoryType = dst_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
		.dstHost = dst_host,
		.dstDevice = dst,
		.dstPitch = bytes,
		.dstHeight = 1,
		.WidthInBytes = bytes,
		.Height = 1,
		.Depth = 1,
	};
}

static CUgraphNode add_copy(CUgraph graph, const CUgraphNode *before, size_t count, CUDA_MEMCPY3D params)
{
	CUgraphNode node;
	CUcontext context;

	ck_cuda(cuCtxGetCurrent(&context));
	ck_cuda(cuGraphAddMemcpyNode(&node, graph, before, count, &params, context));
	return node;
}

static size_t node_count(CUgraph graph)
{
	size_t count = 0;

	ck_cuda(cuGraphGetNodes(graph, NULL, &count));
	return count;
}

/* ---- explicit graphs ---- */

START_TEST(nodes_run_in_the_order_of_their_edges)
{
	CUdeviceptr a, b, word;
	CUgraphNode nodes[5];
	CUgraph graph;
	CUgraphExec exec;
	CUstream stream;
	uint32_t *seen;

	driver_open();
	stream = new_stream();
	a = device_words(WORDS, 1);
	b = device_words(WORDS, 1);
	word = device_words(1, 0);
	ck_cuda(cuMemHostAlloc((void **)&seen, WORDS * 4, 0));
	ck_cuda(cuGraphCreate(&graph, 0));
	nodes[0] = add_set(graph, NULL, 0, a, 5);
	nodes[1] = add_copy(graph, &nodes[0], 1, copy_params(b, a, NULL, NULL, WORDS * 4));
	nodes[2] = add_fill(graph, &nodes[1], 1, a, 9);
	nodes[3] = add_count(graph, NULL, 0, word, 3);
	nodes[4] = add_copy(graph, &nodes[1], 3, copy_params(0, b, seen, NULL, WORDS * 4));
	exec = instantiate(graph);
	ck_assert_uint_eq(word_at(word), 0);
	for (uint32_t round = 1; round <= 3; round++) {
		memset(seen, 0, WORDS * 4);
		ck_cuda(cuMemsetD32_v2(b, 1, WORDS));
		run(exec, stream);
		expect_words(a, WORDS, 9);
		for (uint32_t i = 0; i < WORDS; i++)
			ck_assert_uint_eq(seen[i], 5);
		ck_assert_uint_eq(word_at(word), 3 * round);
	}
	ck_cuda(cuGraphExecDestroy(exec));
	ck_cuda(cuGraphDestroy(graph));
	ck_assert_int_ne(cuGraphDestroy(graph), CUDA_SUCCESS);
}
END_TEST

/* Edges can be added after the nodes, against the order in which these were made. */
START_TEST(edges_are_added_removed_and_told)
{
	CUgraphNode nodes[3], list[4], from[4], to[4];
	CUdeviceptr a;
	CUgraph graph;
	CUgraphNodeType type;
	size_t count;

	driver_open();
	a = device_words(WORDS, 0);
	ck_cuda(cuGraphCreate(&graph, 0));
	nodes[0] = add_fill(graph, NULL, 0, a, 2);
	nodes[1] = add_set(graph, NULL, 0, a, 1);
	ck_cuda(cuGraphAddEmptyNode(&nodes[2], graph, nodes, 2));
	ck_cuda(cuGraphAddDependencies(graph, &nodes[1], &nodes[0], 1));
	ck_assert_int_eq(cuGraphAddDependencies(graph, &nodes[1], &nodes[0], 1), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(node_count(graph), 3);
	count = 4;
	ck_cuda(cuGraphGetRootNodes(graph, list, &count));
	ck_assert_uint_eq(count, 1);
	ck_assert_ptr_eq(list[0], nodes[1]);
	count = 4;
	ck_cuda(cuGraphGetEdges(graph, from, to, &count));
	ck_assert_uint_eq(count, 3);
	count = 0;
	ck_cuda(cuGraphNodeGetDependencies(nodes[2], NULL, &count));
	ck_assert_uint_eq(count, 2);
	count = 4;
	ck_cuda(cuGraphNodeGetDependentNodes(nodes[1], list, &count));
	ck_assert_uint_eq(count, 2);
	ck_cuda(cuGraphNodeGetType(nodes[1], &type));
	ck_assert_int_eq(type, CU_GRAPH_NODE_TYPE_MEMSET);
	run(instantiate(graph), new_stream());
	expect_words(a, WORDS, 2);
	ck_cuda(cuGraphRemoveDependencies(graph, &nodes[1], &nodes[2], 1));
	ck_cuda(cuGraphDestroyNode(nodes[0]));
	ck_assert_uint_eq(node_count(graph), 2);
	count = 4;
	ck_cuda(cuGraphGetEdges(graph, from, to, &count));
	ck_assert_uint_eq(count, 0);
	run(instantiate(graph), new_stream());
	expect_words(a, WORDS, 1);
}
END_TEST

START_TEST(circles_are_refused)
{
	CUgraphNode nodes[2];
	CUdeviceptr word;
	CUgraphExec exec;
	CUgraph graph;
	CUresult r;

	driver_open();
	word = device_words(1, 0);
	ck_cuda(cuGraphCreate(&graph, 0));
	nodes[0] = add_count(graph, NULL, 0, word, 1);
	nodes[1] = add_count(graph, &nodes[0], 1, word, 1);
	r = cuGraphAddDependencies(graph, &nodes[1], &nodes[0], 1);
	if (r == CUDA_SUCCESS)
		r = cuGraphInstantiateWithFlags(&exec, graph, 0);
	ck_assert_int_eq(r, CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(word_at(word), 0);
}
END_TEST

START_TEST(parameters_are_told_and_set)
{
	CUDA_KERNEL_NODE_PARAMS params;
	CUDA_MEMSET_NODE_PARAMS set;
	CUDA_MEMCPY3D copy;
	CUgraphNode nodes[3];
	CUdeviceptr a, b;
	uint32_t value = 8;
	uint64_t words = WORDS;
	CUgraph graph;

	driver_open();
	a = device_words(WORDS, 0);
	b = device_words(WORDS, 0);
	ck_cuda(cuGraphCreate(&graph, 0));
	nodes[0] = add_fill(graph, NULL, 0, a, 7);
	nodes[1] = add_set(graph, &nodes[0], 1, b, 6);
	nodes[2] = add_copy(graph, &nodes[1], 1, copy_params(b, a, NULL, NULL, 4));
	ck_cuda(cuGraphKernelNodeGetParams_v2(nodes[0], &params));
	ck_assert_uint_eq(params.gridDimX, 4);
	ck_assert_uint_eq(params.blockDimX, 64);
	ck_assert_uint_eq(*(uint32_t *)params.kernelParams[1], 7);
	params.kernelParams = (void *[]){&a, &value, &words};
	ck_cuda(cuGraphKernelNodeSetParams_v2(nodes[0], &params));
	ck_cuda(cuGraphKernelNodeGetParams_v2(nodes[0], &params));
	ck_assert_uint_eq(*(uint32_t *)params.kernelParams[1], 8);
	ck_cuda(cuGraphMemsetNodeGetParams(nodes[1], &set));
	ck_assert_uint_eq(set.value, 6);
	set.value = 4;
	ck_cuda(cuGraphMemsetNodeSetParams(nodes[1], &set));
	ck_cuda(cuGraphMemcpyNodeGetParams(nodes[2], &copy));
	ck_assert_uint_eq(copy.WidthInBytes, 4);
	ck_assert_int_eq(cuGraphMemcpyNodeGetParams(nodes[0], &copy), CUDA_ERROR_INVALID_VALUE);
	run(instantiate(graph), new_stream());
	ck_assert_uint_eq(word_at(b), 8);
	ck_assert_uint_eq(word_at(b + 4), 4);
}
END_TEST

START_TEST(children_are_copies_inside)
{
	CUgraph graph, child, inside, clone;
	CUgraphNode set, node, last, found;
	CUdeviceptr word;
	CUgraphExec exec;
	CUstream stream;

	driver_open();
	stream = new_stream();
	word = device_words(WORDS, 0);
	ck_cuda(cuGraphCreate(&child, 0));
	last = add_count(child, NULL, 0, word, 10);
	add_count(child, &last, 1, word, 100);
	ck_cuda(cuGraphCreate(&graph, 0));
	set = add_set(graph, NULL, 0, word, 1);
	ck_cuda(cuGraphAddChildGraphNode(&node, graph, &set, 1, child));
	add_count(graph, &node, 1, word, 1000);
	/* A copy: what is added to the child now is not in it. */
	add_count(child, &last, 1, word, 7);
	ck_cuda(cuGraphChildGraphNodeGetGraph(node, &inside));
	ck_assert_uint_eq(node_count(inside), 2);
	exec = instantiate(graph);
	run(exec, stream);
	ck_assert_uint_eq(word_at(word), 1111);
	ck_cuda(cuGraphClone(&clone, graph));
	ck_cuda(cuGraphNodeFindInClone(&found, set, clone));
	ck_assert_ptr_ne(found, set);
	ck_cuda(cuGraphDestroy(graph));
	ck_cuda(cuGraphDestroy(child));
	run(exec, stream);
	run(instantiate(clone), stream);
	ck_assert_uint_eq(word_at(word), 1111);
}
END_TEST

struct told {
	uint32_t *word;
	uint32_t seen[4], count;
};

static void tell(void *user)
{
	struct told *told = user;

	told->seen[told->count++ % 4] = *told->word;
}

/* Host functions and copies of ordinary memory stand between what the device does. */
START_TEST(the_program_takes_part)
{
	uint32_t ordinary_in[WORDS], ordinary_out[WORDS], *pinned;
	struct told told = {0};
	CUDA_HOST_NODE_PARAMS host = {tell, &told};
	CUgraphNode node[6];
	CUdeviceptr a;
	CUgraphExec exec;
	CUgraph graph;
	CUstream stream;

	driver_open();
	stream = new_stream();
	a = device_words(WORDS, 0);
	ck_cuda(cuMemHostAlloc((void **)&pinned, 4, 0));
	told.word = pinned;
	ck_cuda(cuGraphCreate(&graph, 0));
	node[0] = add_copy(graph, NULL, 0, copy_params(a, 0, NULL, ordinary_in, sizeof(ordinary_in)));
	node[1] = add_count(graph, &node[0], 1, a, 1);
	node[2] = add_copy(graph, &node[1], 1, copy_params(0, a, pinned, NULL, 4));
	ck_cuda(cuGraphAddHostNode(&node[3], graph, &node[2], 1, &host));
	node[4] = add_count(graph, &node[3], 1, a, 1);
	node[5] = add_copy(graph, &node[4], 1, copy_params(0, a, ordinary_out, NULL, sizeof(ordinary_out)));
	exec = instantiate(graph);
	for (uint32_t round = 0; round < 4; round++) {
		for (uint32_t i = 0; i < WORDS; i++)
			ordinary_in[i] = 100 * round + i;
		memset(ordinary_out, 0xff, sizeof(ordinary_out));
		run(exec, stream);
		ck_assert_uint_eq(told.count, round + 1);
		ck_assert_uint_eq(told.seen[round], 100 * round + 1);
		ck_assert_uint_eq(ordinary_out[0], 100 * round + 2);
		for (uint32_t i = 1; i < WORDS; i++)
			ck_assert_uint_eq(ordinary_out[i], 100 * round + i);
	}
	ck_cuda(cuGraphExecDestroy(exec));
}
END_TEST

START_TEST(events_of_graphs_order_streams)
{
	CUstream stream, other;
	CUgraphNode nodes[3];
	CUdeviceptr a, b;
	CUevent before, behind;
	CUgraph graph;
	CUgraphExec exec;
	uint64_t ns = 20000000;
	void *arguments[] = {&ns};

	driver_open();
	stream = new_stream();
	other = new_stream();
	before = new_event();
	behind = new_event();
	a = device_words(WORDS, 0);
	b = device_words(WORDS, 0);
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphAddEventWaitNode(&nodes[0], graph, NULL, 0, before));
	nodes[1] = add_copy(graph, &nodes[0], 1, copy_params(b, a, NULL, NULL, WORDS * 4));
	ck_cuda(cuGraphAddEventRecordNode(&nodes[2], graph, &nodes[1], 1, behind));
	exec = instantiate(graph);
	ck_cuda(launch("spin_ns", 1, 1, other, arguments));
	ck_cuda(fill(other, a, 4, WORDS));
	ck_cuda(cuEventRecord(before, other));
	ck_cuda(cuGraphLaunch(exec, stream));
	ck_cuda(cuStreamWaitEvent(other, behind, 0));
	ck_cuda(cuMemsetD32Async(a, 1, WORDS, other));
	ck_cuda(cuStreamSynchronize(other));
	expect_words(b, WORDS, 4);
	expect_words(a, WORDS, 1);
}
END_TEST

START_TEST(launches_of_one_graph_follow_each_other)
{
	CUstream stream[2];
	CUdeviceptr word;
	CUgraphNode node = NULL;
	CUgraphExec exec;
	CUgraph graph;

	driver_open();
	word = device_words(1, 0);
	ck_cuda(cuGraphCreate(&graph, 0));
	for (int i = 0; i < 20; i++)
		node = add_count(graph, &node, i > 0, word, 1);
	exec = instantiate(graph);
	stream[0] = new_stream();
	stream[1] = new_stream();
	for (int i = 0; i < 100; i++)
		ck_cuda(cuGraphLaunch(exec, stream[i % 2]));
	/* Destroyed while it runs, at the latest behind its last launch. */
	ck_cuda(cuGraphExecDestroy(exec));
	ck_cuda(cuCtxSynchronize());
	ck_assert_uint_eq(word_at(word), 2000);
}
END_TEST

/* ---- updates ---- */

START_TEST(executable_graphs_are_changed)
{
	CUgraphExecUpdateResultInfo info;
	CUDA_KERNEL_NODE_PARAMS params;
	CUgraphNode nodes[2], other[2];
	CUdeviceptr word;
	uint32_t by = 5;
	unsigned int enabled;
	CUgraphExec exec;
	CUgraph graph, second;
	CUstream stream;

	driver_open();
	stream = new_stream();
	word = device_words(1, 0);
	ck_cuda(cuGraphCreate(&graph, 0));
	nodes[0] = add_count(graph, NULL, 0, word, 1);
	nodes[1] = add_count(graph, &nodes[0], 1, word, 10);
	exec = instantiate(graph);
	run(exec, stream);
	ck_assert_uint_eq(word_at(word), 11);
	/* A launch that is on its way keeps what it had. */
	params = kernel_params("count_up", 1, 1, (void *[]){&word, &by});
	for (int i = 0; i < 50; i++) {
		ck_cuda(cuGraphLaunch(exec, stream));
		by = i % 2 ? 5 : 7;
		ck_cuda(cuGraphExecKernelNodeSetParams_v2(exec, nodes[0], &params));
	}
	ck_cuda(cuStreamSynchronize(stream));
	ck_assert_uint_eq(word_at(word), 11 + 50 * 10 + 1 + 25 * 7 + 24 * 5);
	ck_cuda(cuMemsetD32_v2(word, 0, 1));
	ck_cuda(cuGraphNodeSetEnabled(exec, nodes[1], 0));
	ck_cuda(cuGraphNodeGetEnabled(exec, nodes[1], &enabled));
	ck_assert_uint_eq(enabled, 0);
	run(exec, stream);
	ck_assert_uint_eq(word_at(word), 5);
	ck_cuda(cuGraphNodeSetEnabled(exec, nodes[1], 1));
	/* The graph itself is what it was. */
	run(instantiate(graph), stream);
	ck_assert_uint_eq(word_at(word), 16);
	ck_cuda(cuGraphCreate(&second, 0));
	other[0] = add_count(second, NULL, 0, word, 100);
	other[1] = add_count(second, &other[0], 1, word, 1000);
	ck_cuda(cuGraphExecUpdate_v2(exec, second, &info));
	ck_assert_int_eq(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
	run(exec, stream);
	ck_assert_uint_eq(word_at(word), 1116);
	add_count(second, &other[1], 1, word, 1);
	ck_assert_int_eq(cuGraphExecUpdate_v2(exec, second, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	ck_assert_int_eq(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
	run(exec, stream);
	ck_assert_uint_eq(word_at(word), 2216);
}
END_TEST

/* ---- memory nodes and user objects ---- */

START_TEST(graphs_have_memory)
{
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
		.bytesize = WORDS * 4,
	};
	CUgraphNode nodes[4];
	CUdeviceptr out, address;
	CUgraphExec exec;
	CUgraph graph;
	CUstream stream;

	driver_open();
	stream = new_stream();
	out = device_words(WORDS, 0);
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphAddMemAllocNode(&nodes[0], graph, NULL, 0, &alloc));
	ck_assert_uint_ne(alloc.dptr, 0);
	nodes[1] = add_fill(graph, &nodes[0], 1, alloc.dptr, 12);
	nodes[2] = add_copy(graph, &nodes[1], 1, copy_params(out, alloc.dptr, NULL, NULL, WORDS * 4));
	ck_cuda(cuGraphAddMemFreeNode(&nodes[3], graph, &nodes[2], 1, alloc.dptr));
	ck_cuda(cuGraphMemFreeNodeGetParams(nodes[3], &address));
	ck_assert_uint_eq(address, alloc.dptr);
	exec = instantiate(graph);
	for (int i = 0; i < 3; i++) {
		ck_cuda(cuMemsetD32_v2(out, 0, WORDS));
		run(exec, stream);
		expect_words(out, WORDS, 12);
	}
	ck_cuda(cuGraphExecDestroy(exec));
	ck_cuda(cuGraphDestroy(graph));
}
END_TEST

static void expect_graph_memory(uint64_t current, uint64_t high)
{
	static const CUgraphMem_attribute now[] = {CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT,
		CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT},
					  most[] = {CU_GRAPH_MEM_ATTR_USED_MEM_HIGH,
						  CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH};

	for (int i = 0; i < 2; i++) {
		uint64_t value;

		ck_cuda(cuDeviceGetGraphMemAttribute(0, now[i], &value));
		ck_assert_uint_eq(value, current);
		ck_cuda(cuDeviceGetGraphMemAttribute(0, most[i], &value));
		ck_assert_uint_eq(value, high);
	}
}

static const struct {
	uint64_t asked, counted;
} graph_sizes[] = {{4096, 32 << 20}, {100 << 20, 128 << 20}};

/* Memory of graphs is there from the first launch to a trim. */
START_TEST(graph_memory_is_counted)
{
	const uint64_t counted = graph_sizes[_i].counted;
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
		.bytesize = graph_sizes[_i].asked,
	};
	CUgraphNode nodes[2];
	CUgraphExec exec;
	CUgraph graph;
	CUstream stream;

	driver_open();
	stream = new_stream();
	for (int i = 0; i < 2; i++) {
		ck_cuda(cuGraphCreate(&graph, 0));
		ck_cuda(cuGraphAddMemAllocNode(&nodes[0], graph, NULL, 0, &alloc));
		ck_cuda(cuGraphAddMemFreeNode(&nodes[1], graph, &nodes[0], 1, alloc.dptr));
		exec = instantiate(graph);
		expect_graph_memory(0, i * counted);
		for (int k = 0; k < 2; k++) {
			run(exec, stream);
			expect_graph_memory(counted, counted);
		}
		ck_cuda(cuGraphExecDestroy(exec));
		ck_cuda(cuGraphDestroy(graph));
		expect_graph_memory(counted, counted);
		ck_cuda(cuDeviceGraphMemTrim(0));
		expect_graph_memory(0, counted);
	}
}
END_TEST

/* Not freed in the graph: the program's, until it frees it. */
START_TEST(memory_outlives_a_launch)
{
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
		.bytesize = WORDS * 4,
	};
	CUgraphNode node;
	CUgraphExec exec;
	CUgraph graph;
	CUstream stream;

	driver_open();
	stream = new_stream();
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &alloc));
	add_fill(graph, &node, 1, alloc.dptr, 3);
	exec = instantiate(graph);
	run(exec, stream);
	expect_words(alloc.dptr, WORDS, 3);
	ck_assert_int_eq(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuMemFree_v2(alloc.dptr));
	run(exec, stream);
	expect_words(alloc.dptr, WORDS, 3);
	ck_cuda(cuMemFree_v2(alloc.dptr));
}
END_TEST

static void mark_destroyed(void *flag)
{
	__atomic_store_n((int *)flag, 1, __ATOMIC_RELEASE);
}

START_TEST(stream_ordered_memory_becomes_nodes)
{
	CUdeviceptr out, p;
	CUgraphExec exec;
	CUgraph graph;
	CUstream stream;

	driver_open();
	kernel("fill");
	stream = new_stream();
	out = device_words(WORDS, 0);
	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ck_cuda(cuMemAllocAsync(&p, WORDS * 4, stream));
	ck_cuda(fill(stream, p, 21, WORDS));
	ck_cuda(cuMemcpyDtoDAsync_v2(out, p, WORDS * 4, stream));
	ck_cuda(cuMemFreeAsync(p, stream));
	ck_cuda(cuStreamEndCapture(stream, &graph));
	ck_assert_uint_eq(node_count(graph), 4);
	exec = instantiate(graph);
	run(exec, stream);
	run(exec, stream);
	expect_words(out, WORDS, 21);
}
END_TEST

/* A graph that copies ordinary memory, and has memory of its own if `alloc` is there. */
static CUgraph copying_graph(CUdeviceptr out, const uint32_t *from, CUDA_MEM_ALLOC_NODE_PARAMS *alloc)
{
	CUgraphNode node;
	CUgraph graph;

	ck_cuda(cuGraphCreate(&graph, 0));
	add_copy(graph, NULL, 0, copy_params(out, 0, NULL, from, WORDS * 4));
	if (alloc)
		ck_cuda(cuGraphAddMemAllocNode(&node, graph, NULL, 0, alloc));
	return graph;
}

/* What others do at that time may wait for this very thread. */
START_TEST(executable_graphs_come_and_go_beside_work_that_waits)
{
	uint32_t from[WORDS], *word;
	CUstream waiting, stream;
	CUdeviceptr out;
	CUgraphExec exec;
	CUgraph graph;

	driver_open();
	waiting = new_stream();
	stream = new_stream();
	out = device_words(WORDS, 0);
	ck_cuda(cuMemHostAlloc((void **)&word, 64, 0));
	*word = 0;
	for (uint32_t i = 0; i < WORDS; i++)
		from[i] = 23;
	graph = copying_graph(out, from, NULL);
	exec = instantiate(graph);
	run(exec, stream);
	ck_cuda(cuStreamWaitValue32_v2(waiting, (CUdeviceptr)(uintptr_t)word, 1, CU_STREAM_WAIT_VALUE_GEQ));
	ck_cuda(cuGraphExecDestroy(exec));
	exec = instantiate(graph);
	run(exec, stream);
	ck_cuda(cuGraphExecDestroy(exec));
	ck_assert_int_eq(cuStreamQuery(waiting), CUDA_ERROR_NOT_READY);
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	ck_cuda(cuStreamSynchronize(waiting));
	expect_words(out, WORDS, 23);
}
END_TEST

/* Memory of graphs is given back once: with the context, or with the graph. */
START_TEST(graphs_outlive_their_context)
{
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
		.bytesize = WORDS * 4,
	};
	uint32_t from[WORDS] = {0}, *pinned[4];
	CUdeviceptr out, memory[4];
	CUcontext first, second;
	CUgraphExec exec;
	unsigned flags;
	CUgraph graph;

	if (getenv("FRMPS_TEST_NATIVE"))
		return;
	driver_open();
	ck_cuda(cuCtxCreate_v2(&first, 0, 0));
	out = device_words(WORDS, 0);
	graph = copying_graph(out, from, &alloc);
	exec = instantiate(graph);
	run(exec, new_stream());
	ck_cuda(cuCtxDestroy_v2(first));
	ck_cuda(cuCtxCreate_v2(&second, 0, 0));
	for (int i = 0; i < 4; i++) {
		ck_cuda(cuMemHostAlloc((void **)&pinned[i], WORDS * 4, 0));
		ck_cuda(cuMemAlloc_v2(&memory[i], WORDS * 4));
	}
	/* Of its own it has no memory any more. */
	ck_assert_int_eq(cuGraphLaunch(exec, NULL), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	ck_cuda(cuGraphExecDestroy(exec));
	ck_cuda(cuGraphDestroy(graph));
	ck_cuda(cuDeviceGraphMemTrim(0));
	for (int i = 0; i < 4; i++) {
		ck_cuda(cuMemHostGetFlags(&flags, pinned[i]));
		ck_cuda(cuMemFreeHost(pinned[i]));
		ck_cuda(cuMemFree_v2(memory[i]));
	}
	ck_cuda(cuCtxDestroy_v2(second));
}
END_TEST

START_TEST(user_objects_live_as_long_as_graphs)
{
	int destroyed = 0;
	CUuserObject object;
	CUdeviceptr word;
	CUgraph graph;

	driver_open();
	word = device_words(1, 0);
	ck_assert_int_eq(
		cuUserObjectCreate(&object, &destroyed, mark_destroyed, 1, 0), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuUserObjectCreate(
		&object, &destroyed, mark_destroyed, 2, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	ck_cuda(cuGraphCreate(&graph, 0));
	add_count(graph, NULL, 0, word, 1);
	ck_cuda(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
	ck_cuda(cuUserObjectRelease(object, 1));
	ck_assert_int_eq(__atomic_load_n(&destroyed, __ATOMIC_ACQUIRE), 0);
	ck_cuda(cuGraphDestroy(graph));
	/* The driver calls the destructor from a thread of its own. */
	while (!__atomic_load_n(&destroyed, __ATOMIC_ACQUIRE))
		;
}
END_TEST

/* ---- capture ---- */

START_TEST(captured_work_runs_when_it_is_launched)
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
	ck_assert_int_eq(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
	ck_assert_int_eq(cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ck_assert_int_eq(
		cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
	ck_assert_int_eq(status_of(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
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
	ck_assert_int_eq(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
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
END_TEST

START_TEST(streams_join_a_capture_by_events)
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
	ck_assert_int_eq(status_of(other), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	ck_cuda(count_up(other, word[1], 1));
	ck_cuda(count_up(origin, word[2], 1));
	ck_cuda(cuEventRecord(join, other));
	ck_cuda(cuStreamWaitEvent(origin, join, 0));
	ck_cuda(cuMemcpyDtoDAsync_v2(word[0], word[1], 4, origin));
	ck_cuda(cuStreamEndCapture(origin, &graph));
	ck_assert_int_eq(status_of(other), CU_STREAM_CAPTURE_STATUS_NONE);
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
END_TEST

/* Ends a capture that must have failed. */
static void end_broken(CUstream stream, CUresult expected)
{
	CUgraph graph = (CUgraph)(uintptr_t)1;

	ck_assert_int_eq(cuStreamEndCapture(stream, &graph), expected);
	ck_assert_ptr_null(graph);
	ck_assert_int_eq(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
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
START_TEST(an_event_is_of_no_use_when_its_capture_is_over)
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
END_TEST

START_TEST(what_has_no_place_in_a_capture_ends_it)
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
	ck_assert_int_eq(status_of(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
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
	ck_assert_int_eq(status_of(other), CU_STREAM_CAPTURE_STATUS_NONE);
	ck_assert_int_eq(cuStreamEndCapture(other, &graph), CUDA_ERROR_ILLEGAL_STATE);
	ck_assert_uint_eq(word_at(word), 0);
}
END_TEST

START_TEST(launches_of_graphs_are_not_captured)
{
	static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL,
		CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED};
	CUgraphExec exec;
	CUstream stream;
	CUgraph graph;

	driver_open();
	stream = new_stream();
	ck_cuda(cuGraphCreate(&graph, 0));
	add_count(graph, NULL, 0, device_words(1, 0), 1);
	exec = instantiate(graph);
	for (int i = 0; i < 3; i++) {
		ck_cuda(cuStreamBeginCapture_v2(stream, modes[i]));
		ck_assert_int_eq(cuGraphLaunch(exec, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
		end_broken(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
		ck_cuda(cuStreamBeginCapture_v2(stream, modes[i]));
		ck_assert_int_eq(cuGraphUpload(exec, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
		end_broken(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	}
	run(exec, stream);
}
END_TEST

static CUresult count_up_with(CUstream stream, CUdeviceptr word, CUlaunchAttributeID id, CUevent event)
{
	uint32_t one = 1;
	void *arguments[] = {&word, &one};
	CUlaunchAttribute attribute = {.id = id};
	CUlaunchConfig config = {.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 1,
		.blockDimY = 1,
		.blockDimZ = 1,
		.hStream = stream,
		.attrs = &attribute,
		.numAttrs = 1};

	/* Both attributes have it in the same place. */
	attribute.value.launchCompletionEvent.event = event;
	return cuLaunchKernelEx(&config, kernel("count_up"), arguments, NULL);
}

static const CUlaunchAttributeID event_attributes[] = {
	CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT};

/* Not before the launch, whose stream waits for a word; captured, it takes a stream along. */
START_TEST(launches_record_events)
{
	CUstream stream, other;
	CUdeviceptr word, seen;
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
	ck_assert_int_ne(count_up_with(stream, word, event_attributes[_i], timed), CUDA_SUCCESS);
	ck_cuda(cuStreamWaitValue32_v2(stream, (CUdeviceptr)(uintptr_t)gate, 1, CU_STREAM_WAIT_VALUE_GEQ));
	ck_cuda(cuMemsetD32Async(word, 41, 1, stream));
	ck_cuda(count_up_with(stream, word, event_attributes[_i], event));
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
	ck_cuda(count_up_with(stream, word, event_attributes[_i], event));
	ck_cuda(cuStreamWaitEvent(other, event, 0));
	ck_assert_int_eq(status_of(other), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	ck_cuda(cuStreamEndCapture(stream, &graph));
	ck_assert_uint_eq(node_count(graph), 1);
	run(instantiate(graph), stream);
	ck_assert_uint_eq(word_at(word), 43);
}
END_TEST

/* One that only waits leaves nothing behind that somebody would have to wait for. */
START_TEST(a_stream_without_work_needs_no_join)
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
	ck_assert_int_eq(status_of(other), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	ck_cuda(cuStreamEndCapture(stream, &graph));
	ck_assert_int_eq(status_of(other), CU_STREAM_CAPTURE_STATUS_NONE);
	ck_assert_uint_eq(node_count(graph), 1);
}
END_TEST

START_TEST(captures_stay_apart)
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
	ck_assert_int_eq(status_of(a), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	ck_assert_int_eq(status_of(b), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	end_broken(a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	ck_assert_int_eq(status_of(b), CU_STREAM_CAPTURE_STATUS_NONE);

	/* The legacy stream is only in the way of streams that wait for it. */
	ck_cuda(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(count_up(NULL, word, 1));
	ck_cuda(cuStreamEndCapture(a, &graph));
	ck_cuda(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	ck_cuda(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_assert_int_eq(cuStreamIsCapturing(NULL, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	ck_assert_int_eq(status_of(blocking), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	ck_assert_int_eq(count_up(NULL, word, 1), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	end_broken(blocking, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	ck_assert_uint_eq(word_at(word), 1);
}
END_TEST

/* ---- who may do what during a capture ---- */

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

/* What a capture forbids by its mode, and what it does not. The first ones are looked at in other threads,
 * too.
 */
static const struct {
	CUresult (*call)(void);
	bool unsafe;
} visits[] = {{do_alloc, true}, {do_event_query, true}, {do_stream_query, true},
	{do_stream_synchronize, true}, {do_copy, false}, {do_host_alloc, true}, {do_free, true},
	{do_set, false}, {do_create_stream, false}, {do_load, false}};

#define VISITS	       (sizeof(visits) / sizeof(*visits))
#define VISITS_OUTSIDE 5

static void outside_open(void)
{
	driver_open();
	outside_stream = new_stream();
	outside_event = new_event();
	device_word = device_words(1, 0);
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
	ck_assert_int_eq(status_of(stream),
		forbidden ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE);
	if (forbidden)
		end_broken(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	else
		ck_cuda(cuStreamEndCapture(stream, &graph));
}

static const CUstreamCaptureMode capture_modes[] = {
	CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED};

START_TEST(modes_say_what_the_thread_may_do)
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
END_TEST

START_TEST(modes_say_what_other_threads_may_do)
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
END_TEST

static CUstream captured_stream;

static CUresult do_end(void)
{
	CUgraph graph;

	return cuStreamEndCapture(captured_stream, &graph);
}

START_TEST(another_thread_ends_a_capture)
{
	CUgraph graph;

	outside_open();
	captured_stream = new_stream();
	for (int i = 0; i < 2; i++) {
		ck_cuda(cuStreamBeginCapture_v2(captured_stream, capture_modes[i]));
		ck_assert_int_eq(visited(do_end, CU_STREAM_CAPTURE_MODE_GLOBAL),
			CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
		ck_assert_int_eq(status_of(captured_stream), CU_STREAM_CAPTURE_STATUS_NONE);
		ck_cuda(visited(do_alloc, CU_STREAM_CAPTURE_MODE_GLOBAL));
		ck_assert_int_eq(cuStreamEndCapture(captured_stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
	}
	ck_cuda(cuStreamBeginCapture_v2(captured_stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(visited(do_end, CU_STREAM_CAPTURE_MODE_GLOBAL));
	ck_assert_int_eq(status_of(captured_stream), CU_STREAM_CAPTURE_STATUS_NONE);
}
END_TEST

START_TEST(captures_go_on_in_a_graph_that_is_there)
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
END_TEST

/* Of the nodes that the end of a capture looks at, some may be gone. What the driver does then is not known.
 */
START_TEST(nodes_are_destroyed_in_the_middle_of_a_capture)
{
	CUstream origin, other;
	CUgraph graph, same;
	CUgraphNode node;
	CUdeviceptr word;
	CUevent fork;

	if (getenv("FRMPS_TEST_NATIVE"))
		return;
	driver_open();
	kernel("count_up");
	origin = new_stream();
	other = new_stream();
	fork = new_event();
	word = device_words(1, 0);
	ck_cuda(cuGraphCreate(&graph, 0));
	node = add_count(graph, NULL, 0, word, 1);
	ck_cuda(cuStreamBeginCaptureToGraph(origin, graph, &node, NULL, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(cuEventRecord(fork, origin));
	ck_cuda(cuStreamWaitEvent(other, fork, 0));
	ck_cuda(count_up(other, word, 10));
	ck_cuda(cuGraphDestroyNode(node));
	ck_assert_int_eq(cuStreamEndCapture(origin, &same), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
	ck_assert_uint_eq(node_count(graph), 1);
	run(instantiate(graph), origin);
	ck_assert_uint_eq(word_at(word), 10);
}
END_TEST

static void *capture_and_end(void *context)
{
	CUstreamCaptureStatus status;

	ck_cuda(cuCtxSetCurrent(context));
	ck_cuda(cuStreamIsCapturing_ptsz(NULL, &status));
	ck_assert_int_eq(status, CU_STREAM_CAPTURE_STATUS_NONE);
	ck_cuda(cuStreamBeginCapture_v2_ptsz(NULL, CU_STREAM_CAPTURE_MODE_RELAXED));
	return NULL;
}

/* A stream that begins where another one ended in the middle of a capture has nothing to do with it. */
START_TEST(captures_end_with_their_stream)
{
	CUcontext primary, made;
	CUstream stream;
	CUdeviceptr a;

	if (getenv("FRMPS_TEST_NATIVE"))
		return;
	driver_open();
	a = device_words(WORDS, 0);
	ck_cuda(cuCtxGetCurrent(&primary));
	ck_cuda(cuCtxCreate_v2(&made, 0, 0));
	ck_cuda(cuStreamBeginCapture_v2(new_stream(), CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_cuda(cuCtxDestroy_v2(made));
	ck_cuda(cuCtxSetCurrent(primary));
	stream = new_stream();
	ck_assert_int_eq(status_of(stream), CU_STREAM_CAPTURE_STATUS_NONE);
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
END_TEST

/* A host function, ordinary memory, a wait for a word. */
START_TEST(everything_is_captured)
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
END_TEST

/* ---- faults of others: the service alone ---- */

static int graph_survivor(int progress, int orders)
{
	uint64_t count = WORDS;
	uint32_t round = 0;
	CUdeviceptr in, out, state;
	CUgraphNode nodes[2];
	CUDA_KERNEL_NODE_PARAMS params;
	void *arguments[] = {&out, &in, &round, &count};
	uint32_t *result;
	CUgraphExec exec;
	CUgraph graph;
	CUstream stream;

	setenv("FRMPS_RECOVERY", "replay", 1);
	driver_open();
	in = device_words(count, 3);
	out = device_words(count, 0);
	state = device_words(count, 0);
	stream = new_stream();
	ck_cuda(cuMemHostAlloc((void **)&result, count * 4, 0));
	params = kernel_params("mix", 16, 64, arguments);
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphAddKernelNode_v2(&nodes[0], graph, NULL, 0, &params));
	nodes[1] = add_copy(graph, &nodes[0], 1, copy_params(state, out, NULL, NULL, count * 4));
	add_copy(graph, &nodes[1], 1, copy_params(0, state, result, NULL, count * 4));
	exec = instantiate(graph);
	for (; !ordered(orders, false); round++) {
		if (round % 3 == 0)
			ck_cuda(cuGraphExecKernelNodeSetParams_v2(exec, nodes[0], &params));
		memset(result, 0, count * 4);
		run(exec, stream);
		for (uint32_t i = 0; i < count; i++)
			if (result[i] != mixed(i * 3, round / 3 * 3, i))
				return 2;
		report(progress);
	}
	return 0;
}

static int crash(int unused)
{
	CUdeviceptr address = 16;
	void *arguments[] = {&address};

	(void)unused;
	driver_open();
	launch("crash_write", 1, 1, NULL, arguments);
	return cuCtxSynchronize() == CUDA_SUCCESS ? 1 : 0;
}

static const char *const on_fault[] = {
	"on_fault = default\nquarantine_faults = 0\n", "on_fault = fast\nquarantine_faults = 0\n"};

START_TEST(graphs_outlast_somebody_elses_fault)
{
	struct child child;

	ck_assert(service_start_configured(&service, on_fault[_i]));
	child = child_start(graph_survivor);
	child_wait(&child, 20);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(exit_status(spawn(crash, 0)), 0);
		/* Before that the next one would be a second fault. */
		ck_assert(service_log_wait(&service, "promotion: executor", i + 1, 60));
		child_drain(&child);
		child_wait(&child, 20);
	}
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
	ck_assert_int_eq(service_stop(&service), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("graphs");
	TCase *tests = tcase_create("graphs"), *faults = tcase_create("faults");

	tcase_set_timeout(tests, 120);
	tcase_add_unchecked_fixture(tests, common_service_start, common_service_stop);
	tcase_add_test(tests, nodes_run_in_the_order_of_their_edges);
	tcase_add_test(tests, edges_are_added_removed_and_told);
	tcase_add_test(tests, circles_are_refused);
	tcase_add_test(tests, parameters_are_told_and_set);
	tcase_add_test(tests, children_are_copies_inside);
	tcase_add_test(tests, the_program_takes_part);
	tcase_add_test(tests, events_of_graphs_order_streams);
	tcase_add_test(tests, launches_of_one_graph_follow_each_other);
	tcase_add_test(tests, executable_graphs_are_changed);
	tcase_add_test(tests, graphs_have_memory);
	tcase_add_loop_test(tests, graph_memory_is_counted, 0, 2);
	tcase_add_test(tests, memory_outlives_a_launch);
	tcase_add_test(tests, stream_ordered_memory_becomes_nodes);
	tcase_add_test(tests, executable_graphs_come_and_go_beside_work_that_waits);
	tcase_add_test(tests, graphs_outlive_their_context);
	tcase_add_test(tests, user_objects_live_as_long_as_graphs);
	tcase_add_test(tests, captured_work_runs_when_it_is_launched);
	tcase_add_test(tests, streams_join_a_capture_by_events);
	tcase_add_test(tests, an_event_is_of_no_use_when_its_capture_is_over);
	tcase_add_test(tests, what_has_no_place_in_a_capture_ends_it);
	tcase_add_test(tests, launches_of_graphs_are_not_captured);
	tcase_add_loop_test(tests, launches_record_events, 0, 2);
	tcase_add_test(tests, a_stream_without_work_needs_no_join);
	tcase_add_test(tests, captures_stay_apart);
	tcase_add_test(tests, modes_say_what_the_thread_may_do);
	tcase_add_test(tests, modes_say_what_other_threads_may_do);
	tcase_add_test(tests, another_thread_ends_a_capture);
	tcase_add_test(tests, captures_go_on_in_a_graph_that_is_there);
	tcase_add_test(tests, nodes_are_destroyed_in_the_middle_of_a_capture);
	tcase_add_test(tests, captures_end_with_their_stream);
	tcase_add_test(tests, everything_is_captured);
	suite_add_tcase(suite, tests);
	if (!getenv("FRMPS_TEST_NATIVE")) {
		tcase_set_timeout(faults, 240);
		tcase_add_loop_test(faults, graphs_outlast_somebody_elses_fault, 0, 2);
		suite_add_tcase(suite, faults);
	}
	return suite_run(suite);
}
