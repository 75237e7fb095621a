// Graphs that a program makes, changes and launches. The tests run against NVIDIA's library as well
// and must pass there; the last case is about the mistakes of others and runs against the service
// alone.

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/graphs.h"
#include "tests/system/outlast.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

static struct service service;

/* ---- explicit graphs ---- */

TEST(graphs, nodes_run_in_the_order_of_their_edges)
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

/* Edges can be added after the nodes, against the order in which these were made. */
TEST(graphs, edges_are_added_removed_and_told)
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

static size_t edge_count(CUgraph graph)
{
	size_t count = 0;

	ck_cuda(cuGraphGetEdges_v2(graph, NULL, NULL, NULL, &count));
	return count;
}

/* A call that cannot remove one of its edges has removed those before it. */
TEST(graphs, an_edge_is_removed_whatever_its_data)
{
	static const CUgraphEdgeData early = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
		.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
	static const CUgraphEdgeData ordinary[2];
	CUgraphNode nodes[3], from[2];
	CUdeviceptr word;
	CUgraph graph;

	driver_open();
	word = device_words(1, 0);
	ck_cuda(cuGraphCreate(&graph, 0));
	for (int i = 0; i < 3; i++)
		nodes[i] = add_count(graph, NULL, 0, word, 1);
	from[0] = from[1] = nodes[0];
	ck_cuda(cuGraphAddDependencies_v2(graph, from, &nodes[1], &early, 1));
	ck_cuda(cuGraphRemoveDependencies(graph, from, &nodes[1], 1));
	ck_assert_uint_eq(edge_count(graph), 0);
	ck_cuda(cuGraphAddDependencies_v2(graph, from, &nodes[1], &early, 1));
	ck_cuda(cuGraphRemoveDependencies_v2(graph, from, &nodes[1], ordinary, 1));
	ck_assert_uint_eq(edge_count(graph), 0);
	ck_cuda(cuGraphAddDependencies_v2(graph, from, &nodes[1], &early, 1));
	ck_assert_int_eq(
		cuGraphRemoveDependencies_v2(graph, from, &nodes[1], ordinary, 2), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(edge_count(graph), 0);
}

TEST(graphs, circles_are_refused)
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

TEST(graphs, parameters_are_told_and_set)
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

TEST(graphs, children_are_copies_inside)
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

/* Children of several first and last nodes, of one, of none and of a child, each between the nodes
 * that it waits for and those that wait for it. */
TEST(graphs, children_are_in_their_place)
{
	CUgraph graph, two, inner, none, outer;
	CUgraphNode nodes[8], inside;
	CUdeviceptr from[2], to[2], last;
	CUstream stream;
	CUgraphExec exec;

	driver_open();
	stream = new_stream();
	last = device_words(WORDS, 0);
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphCreate(&two, 0));
	ck_cuda(cuGraphCreate(&inner, 0));
	ck_cuda(cuGraphCreate(&none, 0));
	ck_cuda(cuGraphCreate(&outer, 0));
	for (uint32_t i = 0; i < 2; i++) {
		from[i] = device_words(WORDS, 0);
		to[i] = device_words(WORDS, 0);
		nodes[i] = add_fill(graph, NULL, 0, from[i], 1 + i);
		add_copy(two, NULL, 0, copy_params(to[i], from[i], NULL, NULL, WORDS * 4));
	}
	add_copy(inner, NULL, 0, copy_params(last, to[1], NULL, NULL, WORDS * 4));
	ck_cuda(cuGraphAddChildGraphNode(&inside, outer, NULL, 0, inner));
	/* fills → two → none → fills → outer → fill */
	ck_cuda(cuGraphAddChildGraphNode(&nodes[2], graph, nodes, 2, two));
	/* One without nodes ends the program in the driver's cuGraphInstantiate(). */
	if (is_native())
		ck_cuda(cuGraphAddEmptyNode(&nodes[3], graph, &nodes[2], 1));
	else
		ck_cuda(cuGraphAddChildGraphNode(&nodes[3], graph, &nodes[2], 1, none));
	nodes[4] = add_fill(graph, &nodes[3], 1, from[0], 3);
	nodes[5] = add_fill(graph, &nodes[3], 1, from[1], 4);
	ck_cuda(cuGraphAddChildGraphNode(&nodes[6], graph, &nodes[4], 2, outer));
	nodes[7] = add_fill(graph, &nodes[6], 1, to[1], 5);
	exec = instantiate(graph);
	for (int round = 0; round < 3; round++) {
		ck_cuda(cuMemsetD32_v2(last, 0, WORDS));
		run(exec, stream);
		expect_words(from[0], WORDS, 3);
		expect_words(from[1], WORDS, 4);
		expect_words(to[0], WORDS, 1);
		expect_words(to[1], WORDS, 5);
		expect_words(last, WORDS, 2);
	}
}

/* Those that were added to the clone itself have no original. */
TEST(graphs, nodes_are_found_in_a_clone_that_has_grown)
{
	CUgraphNode old[3], more, found;
	CUgraph graph, clone;

	driver_open();
	for (size_t count = 1; count <= 3; count++) {
		ck_cuda(cuGraphCreate(&graph, 0));
		for (size_t i = 0; i < count; i++)
			ck_cuda(cuGraphAddEmptyNode(&old[i], graph, NULL, 0));
		ck_cuda(cuGraphClone(&clone, graph));
		for (size_t added = 0; added < 4; added++) {
			for (size_t i = 0; i < count; i++) {
				ck_cuda(cuGraphNodeFindInClone(&found, old[i], clone));
				ck_assert_ptr_ne(found, old[i]);
			}
			ck_cuda(cuGraphAddEmptyNode(&more, clone, NULL, 0));
			ck_assert_int_eq(
				cuGraphNodeFindInClone(&found, more, clone), CUDA_ERROR_INVALID_VALUE);
		}
		/* Nor has what the original got later a copy. */
		ck_cuda(cuGraphAddEmptyNode(&more, graph, NULL, 0));
		ck_assert_int_eq(cuGraphNodeFindInClone(&found, more, clone), CUDA_ERROR_INVALID_VALUE);
		ck_cuda(cuGraphDestroy(graph));
		ck_cuda(cuGraphDestroy(clone));
	}
}

static CUgraph counting(CUdeviceptr word, uint32_t by)
{
	CUgraph graph;

	ck_cuda(cuGraphCreate(&graph, 0));
	add_count(graph, NULL, 0, word, by);
	return graph;
}

/* What was instantiated before keeps the former one. */
TEST(graphs, a_child_is_replaced)
{
	CUgraph graph, child, other, inside;
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
	CUgraphExec before, after;
	CUgraphNode node, last;
	CUdeviceptr word;
	CUstream stream;

	driver_open();
	stream = new_stream();
	word = device_words(1, 0);
	child = counting(word, 1);
	other = counting(word, 10);
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphAddChildGraphNode(&node, graph, NULL, 0, child));
	last = add_count(graph, &node, 1, word, 100);
	before = instantiate(graph);
	params.graph.graph = other;
	ck_cuda(cuGraphNodeSetParams(node, &params));
	ck_assert_int_ne(cuGraphNodeSetParams(last, &params), CUDA_SUCCESS);
	ck_cuda(cuGraphDestroy(child));
	ck_cuda(cuGraphDestroy(other));
	ck_cuda(cuGraphChildGraphNodeGetGraph(node, &inside));
	ck_assert_uint_eq(node_count(inside), 1);
	params.graph.graph = inside;
	ck_assert_int_ne(cuGraphNodeSetParams(node, &params), CUDA_SUCCESS);
	after = instantiate(graph);
	run(after, stream);
	ck_assert_uint_eq(word_at(word), 110);
	run(before, stream);
	ck_assert_uint_eq(word_at(word), 211);
	ck_cuda(cuGraphDestroy(graph));
	run(after, stream);
	ck_assert_uint_eq(word_at(word), 321);
}

/* A child that is moved is the node's, and the program's handle is of that. */
TEST(graphs, a_child_is_moved)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH,
		.graph = {.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE}};
	CUgraph graph, second, child, inside;
	CUgraphNode node, other;
	CUgraphExec exec;
	CUdeviceptr word;
	CUstream stream;

	driver_open();
	stream = new_stream();
	word = device_words(1, 0);
	child = counting(word, 1);
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphCreate(&second, 0));
	params.graph.graph = child;
	/* What becomes of a graph inside itself is not known of the driver. */
	if (!is_native())
		ck_assert_int_ne(cuGraphAddNode_v2(&node, child, NULL, NULL, 0, &params), CUDA_SUCCESS);
	ck_cuda(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &params));
	ck_cuda(cuGraphChildGraphNodeGetGraph(node, &inside));
	ck_assert_ptr_eq(inside, child);
	ck_assert_int_ne(cuGraphAddNode_v2(&other, second, NULL, NULL, 0, &params), CUDA_SUCCESS);
	ck_assert_uint_eq(node_count(second), 0);
	ck_assert_int_ne(cuGraphDestroy(child), CUDA_SUCCESS);
	add_count(graph, &node, 1, word, 100);
	/* It can be changed there. */
	add_count(child, NULL, 0, word, 10);
	exec = instantiate(graph);
	ck_cuda(cuGraphDestroy(graph));
	run(exec, stream);
	ck_assert_uint_eq(word_at(word), 111);
	ck_cuda(cuGraphExecDestroy(exec));
}

/* Host functions and copies of ordinary memory stand between what the device does. */
TEST(graphs, the_program_takes_part)
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

TEST(graphs, events_of_graphs_order_streams)
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

/* Not even the nodes before it run. */
TEST(graphs_2, a_graph_without_its_event_does_nothing)
{
	CUgraphNode nodes[2];
	CUdeviceptr word;
	CUgraphExec exec;
	CUstream stream;
	CUevent event;
	CUgraph graph;

	driver_open();
	stream = new_stream();
	event = new_event();
	word = device_words(1, 0);
	ck_cuda(cuGraphCreate(&graph, 0));
	nodes[0] = add_count(graph, NULL, 0, word, 1);
	ck_cuda(cuGraphAddEventRecordNode(&nodes[1], graph, nodes, 1, event));
	add_count(graph, &nodes[1], 1, word, 10);
	exec = instantiate(graph);
	run(exec, stream);
	ck_cuda(cuEventDestroy_v2(event));
	ck_assert_int_eq(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_HANDLE);
	ck_cuda(cuStreamSynchronize(stream));
	ck_assert_uint_eq(word_at(word), 11);
}

TEST(graphs, launches_of_one_graph_follow_each_other)
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

/* ---- updates ---- */

TEST(graphs, executable_graphs_are_changed)
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
	ck_cuda(cuGraphExecUpdate_v2(exec, second, NULL));
	run(exec, stream);
	ck_assert_uint_eq(word_at(word), 1116);
	add_count(second, &other[1], 1, word, 1);
	ck_assert_int_eq(cuGraphExecUpdate_v2(exec, second, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	ck_assert_int_eq(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
	run(exec, stream);
	ck_assert_uint_eq(word_at(word), 2216);
}

struct fork {
	CUgraph graph;
	CUgraphNode count, fill, end;
};

/* Two nodes, made in either order, and one behind both. */
static struct fork make_fork(CUdeviceptr word, CUdeviceptr out, uint32_t value, bool fill_first)
{
	struct fork fork;

	ck_cuda(cuGraphCreate(&fork.graph, 0));
	if (fill_first)
		fork.fill = add_set(fork.graph, NULL, 0, out, value);
	fork.count = add_count(fork.graph, NULL, 0, word, value);
	if (!fill_first)
		fork.fill = add_set(fork.graph, NULL, 0, out, value);
	fork.end = add_count(fork.graph, &fork.count, 1, word, 100 * value);
	ck_cuda(cuGraphAddDependencies(fork.graph, &fork.fill, &fork.end, 1));
	return fork;
}

/* Streams that capture side by side make their nodes in any order. */
TEST(graphs, an_update_goes_by_the_edges)
{
	CUgraphExecUpdateResultInfo info;
	CUdeviceptr word, out;
	struct fork first, second;
	CUgraphExec exec;
	CUstream stream;

	driver_open();
	stream = new_stream();
	word = device_words(1, 0);
	out = device_words(WORDS, 0);
	first = make_fork(word, out, 1, false);
	second = make_fork(word, out, 2, true);
	exec = instantiate(first.graph);
	run(exec, stream);
	ck_assert_uint_eq(word_at(word), 101);
	ck_cuda(cuGraphExecUpdate_v2(exec, second.graph, &info));
	ck_assert_int_eq(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
	run(exec, stream);
	ck_assert_uint_eq(word_at(word), 303);
	expect_words(out, WORDS, 2);
	/* The nodes of the first one still name those of the executable graph. */
	ck_cuda(cuGraphNodeSetEnabled(exec, first.fill, 0));
	ck_cuda(cuMemsetD32_v2(out, 5, WORDS));
	run(exec, stream);
	ck_assert_uint_eq(word_at(word), 505);
	expect_words(out, WORDS, 5);
}

/* A kernel in a graph of its own, launched with an attribute, as a library for matrices captures
 * its work. */
static CUgraph captured_count(CUstream stream, CUdeviceptr word, uint32_t by)
{
	void *arguments[] = {&word, &by};
	CUlaunchAttribute attribute;
	CUlaunchConfig config = {.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 1,
		.blockDimY = 1,
		.blockDimZ = 1,
		.hStream = stream,
		.attrs = &attribute,
		.numAttrs = 1};
	CUgraph graph;

	/* Behind the value is what was there before. */
	memset(&attribute, (int)by, sizeof(attribute));
	attribute.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
	attribute.value.priority = 0;
	ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	ck_cuda(cuLaunchKernelEx(&config, kernel("count_up"), arguments, NULL));
	ck_cuda(cuStreamEndCapture(stream, &graph));
	return graph;
}

/* As a launch with it would be: and the node stays as it was. */
TEST(graphs, attributes_that_do_not_fit_a_node_are_refused)
{
	CUdeviceptr word;
	uint32_t by = 1;
	void *arguments[] = {&word, &by};
	CUDA_KERNEL_NODE_PARAMS params;
	CUlaunchAttributeValue value = {.clusterDim = {2, 1, 1}}, found;
	CUgraphNode node;
	CUstream stream;
	CUgraph graph;

	driver_open();
	word = device_words(1, 0);
	stream = new_stream();
	params = kernel_params("count_up", 3, 64, arguments);
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &params));
	ck_assert_int_eq(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value),
		CUDA_ERROR_INVALID_CLUSTER_SIZE);
	ck_cuda(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &found));
	ck_assert_uint_eq(found.clusterDim.x, 0);
	value.clusterDim.x = 3;
	ck_cuda(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value));
	params.gridDimX = 4;
	ck_assert_int_eq(cuGraphKernelNodeSetParams_v2(node, &params), CUDA_ERROR_INVALID_CLUSTER_SIZE);
	/* None at all. */
	value = (CUlaunchAttributeValue){.clusterDim = {0, 0, 0}};
	ck_cuda(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value));
	params.gridDimX = 1 << 20;
	ck_cuda(cuGraphKernelNodeSetParams_v2(node, &params));
	value = (CUlaunchAttributeValue){.cooperative = 1};
	ck_assert_int_eq(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value),
		CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
	ck_cuda(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &found));
	ck_assert_int_eq(found.cooperative, 0);
	/* Of launches alone, and the device's own end. */
	ck_assert_int_eq(cuGraphKernelNodeSetAttribute(
				 node, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, &value),
		CUDA_ERROR_INVALID_VALUE);
	value = (CUlaunchAttributeValue){.priority = 5};
	ck_cuda(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
	ck_cuda(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &found));
	ck_assert_int_eq(found.priority, 0);
	params.gridDimX = 3;
	ck_cuda(cuGraphKernelNodeSetParams_v2(node, &params));
	run(instantiate(graph), stream);
	ck_assert_uint_eq(word_at(word), 3);
}

static unsigned int clusters_of(CUgraphNode node)
{
	CUlaunchAttributeValue found = {.clusterDim = {7, 7, 7}};

	ck_cuda(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &found));
	ck_assert_uint_eq(found.clusterDim.y, found.clusterDim.x);
	ck_assert_uint_eq(found.clusterDim.z, found.clusterDim.x);
	return found.clusterDim.x;
}

/* The size that the kernel's text demands is the attribute of a node that was captured, and of no
 * other one. Of host kernels that is one block. */
TEST(graphs, captured_nodes_show_the_clusters_of_their_kernels_text)
{
	CUdeviceptr word;
	uint32_t by = 1;
	void *arguments[] = {&word, &by};
	CUDA_KERNEL_NODE_PARAMS params;
	CUgraph graph, captured;
	size_t count = 1;
	CUgraphNode node;
	CUstream stream;

	driver_open();
	stream = new_stream();
	word = device_words(1, 0);
	ck_cuda(cuGraphCreate(&graph, 0));
	for (unsigned int own = 0; own < 2; own++) {
		const char *name = own ? "count_alone" : "count_up";

		params = kernel_params(name, 3, 64, arguments);
		ck_cuda(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &params));
		ck_assert_uint_eq(clusters_of(node), 0);
		ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
		ck_cuda(launch(name, 3, 64, stream, arguments));
		ck_cuda(cuStreamEndCapture(stream, &captured));
		ck_cuda(cuGraphGetNodes(captured, &node, &count));
		ck_assert_uint_eq(clusters_of(node), own);
		run(instantiate(captured), stream);
	}
	run(instantiate(graph), stream);
	ck_assert_uint_eq(word_at(word), 12);
}

/* Of the rest of a value nothing is written. */
TEST(graphs, nodes_have_some_of_the_attributes_of_launches)
{
	static const struct {
		CUlaunchAttributeID id;
		CUresult get, set;
	} rows[] = {
		{CU_LAUNCH_ATTRIBUTE_IGNORE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE},
		{CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, CUDA_SUCCESS, CUDA_SUCCESS},
		{CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, CUDA_ERROR_INVALID_VALUE,
			CUDA_ERROR_INVALID_VALUE},
		{CU_LAUNCH_ATTRIBUTE_PRIORITY, CUDA_SUCCESS, CUDA_SUCCESS},
		{CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION, CUDA_ERROR_INVALID_VALUE,
			CUDA_ERROR_INVALID_VALUE},
		{CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, CUDA_SUCCESS, CUDA_SUCCESS},
		{CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING, CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS},
	};
	uint32_t by = 1;
	CUdeviceptr word;
	void *arguments[] = {&word, &by};
	CUDA_KERNEL_NODE_PARAMS params;
	CUlaunchAttributeValue value;
	CUgraphNode node;
	CUgraph graph;

	driver_open();
	word = device_words(1, 0);
	params = kernel_params("count_up", 1, 1, arguments);
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphAddKernelNode_v2(&node, graph, NULL, 0, &params));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		memset(&value, 0x77, sizeof(value));
		ck_assert_int_eq(cuGraphKernelNodeGetAttribute(node, rows[i].id, &value), rows[i].get);
		ck_assert_int_eq(value.pad[sizeof(value.accessPolicyWindow)], 0x77);
		memset(&value, 0, sizeof(value));
		ck_assert_int_eq(cuGraphKernelNodeSetAttribute(node, rows[i].id, &value), rows[i].set);
	}
	value.nvlinkUtilCentricScheduling = 2;
	ck_assert_int_eq(cuGraphKernelNodeSetAttribute(
				 node, CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING, &value),
		CUDA_ERROR_INVALID_VALUE);
}

/* A program whose memory moves from step to step sets all nodes before each launch, and captures
 * anew what libraries do. The service makes no graph for that, but for the first change. */
TEST(graphs, steps_with_other_memory_make_no_graphs)
{
	CUgraphNode child, count, set;
	CUdeviceptr words, out;
	CUgraph graph, captured;
	CUcontext context;
	CUgraphExec exec;
	CUstream stream;
	int64_t requests = 0;

	driver_open();
	stream = new_stream();
	words = device_words(8, 0);
	out = device_words(WORDS, 0);
	ck_cuda(cuCtxGetCurrent(&context));
	ck_cuda(cuGraphCreate(&graph, 0));
	captured = captured_count(stream, words, 1);
	ck_cuda(cuGraphAddChildGraphNode(&child, graph, NULL, 0, captured));
	ck_cuda(cuGraphDestroy(captured));
	count = add_count(graph, &child, 1, words, 100);
	set = add_set(graph, &count, 1, out, 1);
	exec = instantiate(graph);
	run(exec, stream);
	for (uint32_t step = 0; step < 16; step++) {
		CUdeviceptr word = words + step % 8 * 4;
		uint32_t by = 100;
		CUDA_KERNEL_NODE_PARAMS params = kernel_params("count_up", 1, 1, (void *[]){&word, &by});
		CUDA_MEMSET_NODE_PARAMS fill = {
			.dst = out + step * 4, .value = step, .elementSize = 4, .width = 1, .height = 1};

		captured = captured_count(stream, word, 1 + step);
		ck_cuda(cuGraphExecChildGraphNodeSetParams(exec, child, captured));
		ck_cuda(cuGraphDestroy(captured));
		ck_cuda(cuGraphExecKernelNodeSetParams_v2(exec, count, &params));
		ck_cuda(cuGraphExecMemsetNodeSetParams(exec, set, &fill, context));
		run(exec, stream);
		if (step == 1 && !is_native())
			requests = status_counter(&common_service, "requests");
	}
	if (!is_native())
		ck_assert_int_eq(status_counter(&common_service, "requests"), requests);
	for (uint32_t i = 0; i < 8; i++)
		ck_assert_uint_eq(word_at(words + i * 4), 200 + 10 + 2 * i + (i ? 0 : 101));
	for (uint32_t i = 0; i < 16; i++)
		ck_assert_uint_eq(word_at(out + i * 4), i);
}

/* Many changes go to the service before the launch that they are for. They are in no earlier one,
 * in every later one, in whatever stream that is, and it waits for nothing else that a stream of
 * before has. */
TEST(graphs, many_changes_are_in_the_next_launch)
{
	enum { NODES = 100, STEPS = 12 };
	CUgraphNode nodes[NODES], *before = NULL;
	CUstream streams[2];
	CUdeviceptr words;
	uint32_t *gate, sum = 1;
	CUgraphExec exec;
	CUgraph graph;

	driver_open();
	words = device_words(NODES, 0);
	ck_cuda(cuMemHostAlloc((void **)&gate, 64, 0));
	*gate = 0;
	ck_cuda(cuGraphCreate(&graph, 0));
	for (uint32_t i = 0; i < NODES; before = &nodes[i++])
		nodes[i] = add_count(graph, before, before != NULL, words + i * 4, 1);
	exec = instantiate(graph);
	streams[0] = new_stream();
	streams[1] = new_stream();
	run(exec, streams[0]);
	for (uint32_t step = 1; step <= STEPS; step++) {
		for (uint32_t i = 0; i < 2 * NODES; i++) {
			/* The second change of each is what counts. */
			uint32_t by = i < NODES ? 1000 : step;
			CUdeviceptr word = words + i % NODES * 4;
			CUDA_KERNEL_NODE_PARAMS params =
				kernel_params("count_up", 1, 1, (void *[]){&word, &by});

			ck_cuda(cuGraphExecKernelNodeSetParams_v2(exec, nodes[i % NODES], &params));
		}
		ck_cuda(cuGraphLaunch(exec, streams[step % 2]));
		sum += step;
		if (step % 3)
			continue;
		/* What the other stream waits for comes behind this one's next launch. */
		ck_cuda(cuStreamSynchronize(streams[step % 2]));
		ck_cuda(cuStreamWaitValue32_v2(
			streams[step % 2], (CUdeviceptr)(uintptr_t)gate, step, CU_STREAM_WAIT_VALUE_GEQ));
		for (uint32_t i = 0; i < NODES; i++) {
			uint32_t by = 7;
			CUdeviceptr word = words + i * 4;
			CUDA_KERNEL_NODE_PARAMS params =
				kernel_params("count_up", 1, 1, (void *[]){&word, &by});

			ck_cuda(cuGraphExecKernelNodeSetParams_v2(exec, nodes[i], &params));
		}
		run(exec, streams[1 - step % 2]);
		sum += 7;
		ck_assert_int_eq(cuStreamQuery(streams[step % 2]), CUDA_ERROR_NOT_READY);
		__atomic_store_n(gate, step, __ATOMIC_RELEASE);
	}
	ck_cuda(cuCtxSynchronize());
	for (uint32_t i = 0; i < NODES; i++)
		ck_assert_uint_eq(word_at(words + i * 4), sum);
}

/* ---- what comes and goes ---- */

static void mark_destroyed(void *flag)
{
	__atomic_store_n((int *)flag, 1, __ATOMIC_RELEASE);
}

/* What others do at that time may wait for this very thread. */
TEST(graphs, executable_graphs_come_and_go_beside_work_that_waits)
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
	ck_cuda(cuGraphCreate(&graph, 0));
	add_copy(graph, NULL, 0, copy_params(out, 0, NULL, from, WORDS * 4));
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

TEST(graphs, user_objects_live_as_long_as_graphs)
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
	while (!__atomic_load_n(&destroyed, __ATOMIC_ACQUIRE))
		;
}

/* A graph of one node that moves an object into itself. With a parent it is the child of that one's
 * only node.
 */
static CUgraph graph_with_object(CUdeviceptr word, int *destroyed, bool has_parent)
{
	CUgraph graph, parent;
	CUuserObject object;
	CUgraphNode node;

	ck_cuda(cuUserObjectCreate(&object, destroyed, mark_destroyed, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	ck_cuda(cuGraphCreate(&graph, 0));
	add_count(graph, NULL, 0, word, 1);
	ck_cuda(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
	if (!has_parent)
		return graph;
	ck_cuda(cuGraphCreate(&parent, 0));
	ck_cuda(cuGraphAddChildGraphNode(&node, parent, NULL, 0, graph));
	ck_cuda(cuGraphDestroy(graph));
	return parent;
}

/* An update of all of an executable graph, or of a child. Earlier launches may still need what was
 * there. */
TEST_LOOP(graphs, user_objects_follow_updates, 0, 2)
{
	int first_destroyed = 0, second_destroyed = 0;
	CUgraphExecUpdateResultInfo info;
	CUgraph first, second;
	CUgraphExec exec;
	CUstream stream;
	CUgraphNode node;
	CUdeviceptr word;
	uint32_t *gate;
	size_t count = 1;

	driver_open();
	kernel("spin_until");
	stream = new_stream();
	word = device_words(1, 0);
	gate = shared_word();
	first = graph_with_object(word, &first_destroyed, _i);
	second = graph_with_object(word, &second_destroyed, false);
	ck_cuda(cuGraphGetNodes(first, &node, &count));
	exec = instantiate(first);
	ck_cuda(launch_spin(gate, 1, stream));
	ck_cuda(cuGraphLaunch(exec, stream));
	if (_i)
		ck_cuda(cuGraphExecChildGraphNodeSetParams(exec, node, second));
	else
		ck_cuda(cuGraphExecUpdate_v2(exec, second, &info));
	ck_cuda(cuGraphDestroy(first));
	ck_cuda(cuGraphDestroy(second));
	ck_cuda(cuGraphLaunch(exec, stream));
	ck_assert_int_eq(__atomic_load_n(&first_destroyed, __ATOMIC_ACQUIRE), 0);
	__atomic_store_n(gate, 1, __ATOMIC_RELEASE);
	ck_cuda(cuStreamSynchronize(stream));
	run(exec, stream);
	ck_assert_int_eq(__atomic_load_n(&second_destroyed, __ATOMIC_ACQUIRE), 0);
	ck_assert_uint_eq(word_at(word), 3);
	ck_cuda(cuGraphExecDestroy(exec));
	while (!__atomic_load_n(&first_destroyed, __ATOMIC_ACQUIRE) ||
		!__atomic_load_n(&second_destroyed, __ATOMIC_ACQUIRE))
		;
}

static void note_thread(void *thread)
{
	*(pthread_t *)thread = pthread_self();
}

/* As the driver's calls do. A program may look at once, or end. */
TEST(graphs, destructors_run_in_the_call_that_drops_the_object)
{
	pthread_t first = 0, second = 0;
	CUuserObject object;
	CUgraph graph;

	driver_open();
	ck_cuda(cuUserObjectCreate(&object, &first, note_thread, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
	ck_cuda(cuGraphDestroy(graph));
	ck_assert(pthread_equal(first, pthread_self()));
	ck_cuda(cuUserObjectCreate(&object, &second, note_thread, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	ck_cuda(cuUserObjectRelease(object, 1));
	ck_assert(pthread_equal(second, pthread_self()));
}

/* Of two threads that launch into one stream. */
struct lane {
	CUgraphExec exec;
	CUstream stream;
	CUcontext context;
	const uint32_t *words;
	uint32_t expected, wrong;
};

static void nothing(void *unused)
{
	(void)unused;
}

static void look(void *context)
{
	struct lane *lane = context;

	lane->wrong += lane->words[0] != lane->expected;
}

#define LANE_LAUNCHES 3000
static void *launch_many(void *context)
{
	struct lane *lane = context;

	ck_cuda(cuCtxSetCurrent(lane->context));
	for (int i = 0; i < LANE_LAUNCHES; i++)
		ck_cuda(cuGraphLaunch(lane->exec, lane->stream));
	return NULL;
}

/* Sets the words to the lane's, lets the host in, copies them out and has them looked at. */
static void make_lane(struct lane *lane, CUdeviceptr scratch)
{
	CUDA_HOST_NODE_PARAMS pass = {nothing, NULL}, check = {look, lane};
	uint32_t *words = shared_word();
	CUgraphNode set, host, copy, last;
	CUgraph graph;

	lane->words = words;
	ck_cuda(cuCtxGetCurrent(&lane->context));
	ck_cuda(cuGraphCreate(&graph, 0));
	set = add_fill(graph, NULL, 0, scratch, lane->expected);
	ck_cuda(cuGraphAddHostNode(&host, graph, &set, 1, &pass));
	copy = add_copy(graph, &host, 1, copy_params(0, scratch, words, NULL, WORDS * 4));
	ck_cuda(cuGraphAddHostNode(&last, graph, &copy, 1, &check));
	lane->exec = instantiate(graph);
	ck_cuda(cuGraphDestroy(graph));
}

/* A launch is one command of its stream, whatever it is made of. */
TEST(graphs, launches_of_two_threads_do_not_mix)
{
	struct lane lanes[2] = {{.expected = 1}, {.expected = 2}};
	pthread_t threads[2];
	CUdeviceptr scratch;
	CUstream stream;

	driver_open();
	stream = new_stream();
	scratch = device_words(WORDS, 0);
	for (int i = 0; i < 2; i++) {
		make_lane(&lanes[i], scratch);
		lanes[i].stream = stream;
	}
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, launch_many, &lanes[i]), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	ck_cuda(cuStreamSynchronize(stream));
	ck_assert_uint_eq(lanes[0].wrong, 0);
	ck_assert_uint_eq(lanes[1].wrong, 0);
}

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

/* Launches of a round, each with parameters of its own. */
#define QUEUED 48u

/* A mixing node, which is changed before each third launch, and one that copies what it wrote,
 * which is before all. The program waits for many launches together. Each has its place, so none
 * may have run with what another one had. */
static int queueing_survivor(int progress, int orders)
{
	uint64_t count = WORDS;
	uint32_t round = 0, *results;
	CUdeviceptr in, out, places;
	CUgraphNode nodes[2];
	CUDA_KERNEL_NODE_PARAMS params;
	void *arguments[] = {&out, &in, &round, &count};
	CUstream streams[2];
	CUcontext context;
	CUgraphExec exec;
	CUgraph graph;

	setenv("FRMPS_RECOVERY", "replay", 1);
	driver_open();
	ck_cuda(cuCtxGetCurrent(&context));
	in = device_words(count, 3);
	out = device_words(count, 0);
	places = device_words(QUEUED * WORDS, 0);
	streams[0] = new_stream();
	streams[1] = new_stream();
	ck_cuda(cuMemHostAlloc((void **)&results, QUEUED * count * 4, 0));
	params = kernel_params("mix", 4, 64, arguments);
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphAddKernelNode_v2(&nodes[0], graph, NULL, 0, &params));
	nodes[1] = add_copy(graph, &nodes[0], 1, copy_params(places, out, NULL, NULL, count * 4));
	exec = instantiate(graph);
	while (!ordered(orders, false)) {
		for (uint32_t i = 0; i < QUEUED; i++, round++) {
			CUDA_MEMCPY3D copy = copy_params(places + i * WORDS * 4, out, NULL, NULL, count * 4);

			if (round % 3 == 0)
				ck_cuda(cuGraphExecKernelNodeSetParams_v2(exec, nodes[0], &params));
			ck_cuda(cuGraphExecMemcpyNodeSetParams(exec, nodes[1], &copy, context));
			ck_cuda(cuGraphLaunch(exec, streams[i / 5 % 2]));
		}
		ck_cuda(cuCtxSynchronize());
		ck_cuda(cuMemcpyDtoH_v2(results, places, QUEUED * count * 4));
		for (uint32_t i = 0; i < QUEUED * WORDS; i++)
			if (results[i] !=
				mixed(i % WORDS * 3, (round - QUEUED + i / WORDS) / 3 * 3, i % WORDS))
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

TEST_LOOP(faults, graphs_outlast_somebody_elses_fault, 0, 2)
{
	expect_outlasts_faults(&service, _i ? queueing_survivor : graph_survivor, crash, 3);
}

/* Killed with launches under way, and with such as were not begun. */
TEST_LOOP(faults, graphs_outlast_their_executors, 0, 2)
{
	expect_outlasts_executors(&service, _i ? queueing_survivor : graph_survivor, 4);
}

/* More than the shim keeps of it for later. */
#define FREED_BYTES ((size_t)200 << 20)

/* A graph whose copy goes to memory that is freed before the second launch: this program's own
 * mistake. */
static int freeing(bool on_host, int progress, int orders)
{
	CUdeviceptr source, target = 0;
	uint32_t *host = NULL;
	CUgraphExec exec;
	CUstream stream;
	CUgraph graph;

	driver_open();
	stream = new_stream();
	source = device_words(WORDS, 1);
	if (on_host)
		ck_cuda(cuMemHostAlloc((void **)&host, FREED_BYTES, 0));
	else
		ck_cuda(cuMemAlloc_v2(&target, FREED_BYTES));
	ck_cuda(cuGraphCreate(&graph, 0));
	add_copy(graph, NULL, 0, copy_params(target, source, host, NULL, WORDS * 4));
	exec = instantiate(graph);
	run(exec, stream);
	ck_cuda(on_host ? cuMemFreeHost(host) : cuMemFree_v2(target));
	report(progress);
	ordered(orders, true);
	ck_cuda(cuGraphLaunch(exec, stream));
	return cuStreamSynchronize(stream) == CUDA_ERROR_INVALID_VALUE ? 0 : 2;
}

static int freeing_host(int progress, int orders)
{
	return freeing(true, progress, orders);
}

static int freeing_device(int progress, int orders)
{
	return freeing(false, progress, orders);
}

TEST_LOOP(faults, a_graph_over_memory_that_is_gone_hurts_nobody, 0, 2)
{
	struct child survivor, child;

	ck_assert(service_start_configured(&service, "guard = off\n"));
	survivor = child_start(graph_survivor);
	child = child_start(_i ? freeing_host : freeing_device);
	child_wait(&child, 1);
	status_await_bytes(&service, child.pid, _i ? "host_bytes" : "memory_bytes", FREED_BYTES / 2);
	child_order(&child);
	ck_assert_int_eq(child_end(&child), 0);
	child_drain(&survivor);
	child_wait(&survivor, 20);
	child_order(&survivor);
	ck_assert_int_eq(child_end(&survivor), 0);
	ck_assert_int_eq(status_counter(&service, "faults"), 0);
	ck_assert_int_eq(status_counter(&service, "promotions"), 0);
	ck_assert_int_eq(service_stop(&service), 0);
}

int main(void)
{
	Suite *suite = suite_create("graphs");
	TCase *tests = tcase_create("graphs"), *faults = tcase_create("faults");

	tcase_set_timeout(tests, 120);
	tcase_add_unchecked_fixture(tests, common_service_start, common_service_stop);
	suite_add(tests, "graphs");
	suite_add_tcase(suite, tests);
	if (!is_native()) {
		tcase_set_timeout(faults, 240);
		suite_add(tests, "graphs_2");
		suite_add(faults, "faults");
		suite_add_tcase(suite, faults);
	}
	return suite_run(suite);
}
