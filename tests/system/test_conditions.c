// Graphs with conditional nodes. The tests run against NVIDIA's library as well and must pass
// there; the last case is about moves and faults and runs against the service alone.

#include <stdlib.h>

#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/graphs.h"
#include "tests/system/outlast.h"
#include "tests/system/program.h"
#include "tests/system/status.h"

static struct service service;

static CUgraph new_graph(void)
{
	CUgraph graph;

	ck_cuda(cuGraphCreate(&graph, 0));
	return graph;
}

static CUgraphConditionalHandle new_handle(CUgraph graph, unsigned int value, unsigned int flags)
{
	CUgraphConditionalHandle handle;
	CUcontext context;

	ck_cuda(cuCtxGetCurrent(&context));
	ck_cuda(cuGraphConditionalHandleCreate(&handle, graph, context, value, flags));
	return handle;
}

static CUresult try_condition(CUgraph graph, const CUgraphNode *before, CUgraphConditionalHandle handle,
	CUgraphConditionalNodeType type, unsigned int size, CUgraphNode *ret_node, CUgraph *ret_bodies)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
	CUresult r;

	params.conditional.handle = handle;
	params.conditional.type = type;
	params.conditional.size = size;
	ck_cuda(cuCtxGetCurrent(&params.conditional.ctx));
	r = cuGraphAddNode_v2(ret_node, graph, before, NULL, before ? 1 : 0, &params);
	for (unsigned int i = 0; r == CUDA_SUCCESS && i < size; i++)
		ret_bodies[i] = params.conditional.phGraph_out[i];
	return r;
}

static CUgraphNode add_condition(CUgraph graph, const CUgraphNode *before, CUgraphConditionalHandle handle,
	CUgraphConditionalNodeType type, unsigned int size, CUgraph *ret_bodies)
{
	CUgraphNode node;

	ck_cuda(try_condition(graph, before, handle, type, size, &node, ret_bodies));
	return node;
}

/* Sets a condition to a word, or to whether it is below a number. */
static CUgraphNode add_decide(CUgraph graph, const CUgraphNode *before, CUgraphConditionalHandle handle,
	CUdeviceptr word, uint32_t below)
{
	void *arguments[] = {&handle, &word, &below};
	CUDA_KERNEL_NODE_PARAMS params = kernel_params("decide", 1, 1, arguments);
	CUgraphNode node;

	ck_cuda(cuGraphAddKernelNode_v2(&node, graph, before, before ? 1 : 0, &params));
	return node;
}

/* Counts a word up to a number. */
static CUgraphNode add_loop(CUgraph graph, const CUgraphNode *before, CUgraphConditionalHandle handle,
	CUdeviceptr word, uint32_t by, uint32_t below)
{
	CUgraphNode node, count;
	CUgraph body;

	node = add_condition(graph, before, handle, CU_GRAPH_COND_TYPE_WHILE, 1, &body);
	count = add_count(body, NULL, 0, word, by);
	add_decide(body, &count, handle, word, below);
	return node;
}

TEST(conditions, a_loop_ends_when_its_kernel_says_so)
{
	CUgraphConditionalHandle handle;
	CUdeviceptr word, behind;
	CUgraphExec exec;
	CUstream stream;
	CUgraphNode node;
	CUgraph graph;

	driver_open();
	stream = new_stream();
	word = device_words(1, 0);
	behind = device_words(1, 0);
	graph = new_graph();
	handle = new_handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
	node = add_loop(graph, NULL, handle, word, 1, 7);
	add_copy(graph, &node, 1, copy_params(behind, word, NULL, NULL, 4));
	exec = instantiate(graph);
	run(exec, stream);
	ck_assert_uint_eq(word_at(behind), 7);
	/* The default is there at each launch: the body runs once. */
	run(exec, stream);
	ck_assert_uint_eq(word_at(behind), 8);
	ck_cuda(cuMemsetD32_v2(word, 0, 1));
	for (int i = 0; i < 20; i++)
		ck_cuda(cuGraphLaunch(exec, stream));
	ck_cuda(cuStreamSynchronize(stream));
	ck_assert_uint_eq(word_at(behind), 7 + 19);
	ck_cuda(cuGraphExecDestroy(exec));
	ck_cuda(cuGraphDestroy(graph));
}

TEST(conditions, one_of_two_bodies_runs)
{
	CUgraphConditionalHandle handle;
	CUdeviceptr which, word;
	CUgraph graph, bodies[2];
	CUgraphExec exec;
	CUstream stream;
	CUgraphNode node;

	driver_open();
	stream = new_stream();
	which = device_words(1, 0);
	word = device_words(1, 0);
	graph = new_graph();
	handle = new_handle(graph, 0, 0);
	node = add_decide(graph, NULL, handle, which, 0);
	node = add_condition(graph, &node, handle, CU_GRAPH_COND_TYPE_IF, 2, bodies);
	add_count(bodies[0], NULL, 0, word, 1);
	add_count(bodies[1], NULL, 0, word, 100);
	exec = instantiate(graph);
	run(exec, stream);
	ck_assert_uint_eq(word_at(word), 100);
	ck_cuda(cuMemsetD32_v2(which, 5, 1));
	run(exec, stream);
	ck_assert_uint_eq(word_at(word), 101);
	ck_cuda(cuMemsetD32_v2(which, 0, 1));
	run(exec, stream);
	ck_assert_uint_eq(word_at(word), 201);
}

TEST(conditions, a_switch_chooses_by_number)
{
	CUgraphConditionalHandle handle;
	CUdeviceptr which, word;
	CUgraph graph, bodies[3];
	CUgraphExec exec;
	CUstream stream;
	CUgraphNode node;
	uint32_t sum = 0;

	driver_open();
	stream = new_stream();
	which = device_words(1, 0);
	word = device_words(1, 0);
	graph = new_graph();
	handle = new_handle(graph, 0, 0);
	node = add_decide(graph, NULL, handle, which, 0);
	add_condition(graph, &node, handle, CU_GRAPH_COND_TYPE_SWITCH, 3, bodies);
	for (uint32_t i = 0; i < 3; i++)
		add_count(bodies[i], NULL, 0, word, i + 1);
	exec = instantiate(graph);
	/* Nothing runs for 3, of which there is no body. */
	for (uint32_t i = 0; i < 4; i++) {
		ck_cuda(cuMemsetD32_v2(which, i, 1));
		run(exec, stream);
		sum += i < 3 ? i + 1 : 0;
		ck_assert_uint_eq(word_at(word), sum);
	}
}

/* A loop in a loop, in a branch, filled by a capture. */
TEST(conditions, conditions_nest)
{
	CUgraphConditionalHandle branch, outer, inner;
	CUgraph graph, in_branch, in_outer, in_inner, got;
	CUgraphNode node;
	CUdeviceptr steps, turns;
	CUgraphExec exec;
	CUstream stream;
	uint32_t five = 5, three = 3;
	void *decide_outer[] = {&outer, &turns, &three}, *decide_inner[] = {&inner, &steps, &five};

	driver_open();
	stream = new_stream();
	steps = device_words(WORDS, 0);
	turns = device_words(1, 0);
	graph = new_graph();
	branch = new_handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
	outer = new_handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
	inner = new_handle(graph, 0, 0);
	add_condition(graph, NULL, branch, CU_GRAPH_COND_TYPE_IF, 1, &in_branch);
	add_condition(in_branch, NULL, outer, CU_GRAPH_COND_TYPE_WHILE, 1, &in_outer);
	node = add_set(in_outer, NULL, 0, steps, 0);
	node = add_decide(in_outer, &node, inner, steps, 5);
	node = add_condition(in_outer, &node, inner, CU_GRAPH_COND_TYPE_WHILE, 1, &in_inner);
	ck_cuda(cuStreamBeginCaptureToGraph(
		stream, in_inner, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	ck_cuda(count_up(stream, steps, 1));
	ck_cuda(launch("decide", 1, 1, stream, decide_inner));
	ck_cuda(cuStreamEndCapture(stream, &got));
	ck_assert_ptr_eq(got, in_inner);
	ck_cuda(cuStreamBeginCaptureToGraph(
		stream, in_outer, &node, NULL, 1, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	ck_cuda(count_up(stream, turns, 1));
	ck_cuda(launch("decide", 1, 1, stream, decide_outer));
	ck_cuda(cuStreamEndCapture(stream, &got));
	exec = instantiate(graph);
	run(exec, stream);
	ck_assert_uint_eq(word_at(turns), 3);
	ck_assert_uint_eq(word_at(steps), 5);
}

/* As programs do that gather their steps in graphs. */
TEST(conditions, nodes_in_bodies_are_changed)
{
	CUgraphConditionalHandle handle;
	CUgraphNode node, count;
	CUgraph graph, body;
	CUdeviceptr words[2];
	CUgraphExec exec;
	CUstream stream;

	driver_open();
	stream = new_stream();
	words[0] = device_words(1, 0);
	words[1] = device_words(1, 0);
	graph = new_graph();
	handle = new_handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
	add_condition(graph, NULL, handle, CU_GRAPH_COND_TYPE_WHILE, 1, &body);
	count = add_count(body, NULL, 0, words[0], 1);
	node = add_decide(body, &count, handle, words[0], 4);
	exec = instantiate(graph);
	for (uint32_t i = 0; i < 6; i++) {
		CUdeviceptr word = words[i % 2];
		uint32_t by = 1, below = 4 * (i + 1);
		void *counts[] = {&word, &by}, *decides[] = {&handle, &word, &below};
		CUDA_KERNEL_NODE_PARAMS params = kernel_params("count_up", 1, 1, counts);

		ck_cuda(cuGraphExecKernelNodeSetParams_v2(exec, count, &params));
		params = kernel_params("decide", 1, 1, decides);
		ck_cuda(cuGraphExecKernelNodeSetParams_v2(exec, node, &params));
		run(exec, stream);
		ck_assert_uint_eq(word_at(word), below);
	}
}

TEST(conditions, what_cannot_be_is_refused)
{
	CUgraphConditionalHandle handle;
	CUgraph graph, second, clone, bodies[3];
	CUgraphNode node;
	CUcontext context;

	driver_open();
	ck_cuda(cuCtxGetCurrent(&context));
	graph = new_graph();
	second = new_graph();
	ck_assert_int_eq(
		cuGraphConditionalHandleCreate(NULL, graph, context, 0, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(
		cuGraphConditionalHandleCreate(&handle, graph, context, 0, 2), CUDA_ERROR_INVALID_VALUE);
	handle = new_handle(graph, 0, 0);
	ck_assert_int_eq(try_condition(graph, NULL, handle, CU_GRAPH_COND_TYPE_WHILE, 2, &node, bodies),
		CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(try_condition(graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 3, &node, bodies),
		CUDA_ERROR_INVALID_VALUE);
	ck_cuda(try_condition(graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 1, &node, bodies));
	ck_assert_int_ne(cuGraphClone(&clone, graph), CUDA_SUCCESS);
	ck_assert_int_ne(cuGraphAddChildGraphNode(&node, second, NULL, 0, graph), CUDA_SUCCESS);
}

TEST(conditions, bodies_are_the_device_s_alone)
{
	CUDA_HOST_NODE_PARAMS host = {tell, NULL};
	CUgraphConditionalHandle handle;
	CUgraph graph, body;
	CUgraphExec exec;
	CUgraphNode node;

	driver_open();
	graph = new_graph();
	handle = new_handle(graph, 0, 0);
	add_condition(graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 1, &body);
	ck_cuda(cuGraphAddHostNode(&node, body, NULL, 0, &host));
	ck_assert_int_eq(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
}

/* ---- moves and faults: the service alone ---- */

/* Each launch fills a row as often as a loop says, and says how often that was. */
static int looping(int progress, int orders)
{
	CUgraphConditionalHandle handle;
	CUgraph graph, body;
	CUgraphNode node, count;
	CUdeviceptr word;
	CUgraphExec exec;
	CUstream stream;

	setenv("FRMPS_RECOVERY", "replay", 1);
	driver_open();
	stream = new_stream();
	word = device_words(WORDS, 0);
	graph = new_graph();
	handle = new_handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
	node = add_set(graph, NULL, 0, word, 0);
	add_condition(graph, &node, handle, CU_GRAPH_COND_TYPE_WHILE, 1, &body);
	count = add_count(body, NULL, 0, word, 1);
	node = add_decide(body, &count, handle, word, 1);
	exec = instantiate(graph);
	for (uint32_t round = 1; !ordered(orders, false); round++) {
		uint32_t below = 1 + round % 9;
		void *arguments[] = {&handle, &word, &below};
		CUDA_KERNEL_NODE_PARAMS params = kernel_params("decide", 1, 1, arguments);

		ck_cuda(cuGraphExecKernelNodeSetParams_v2(exec, node, &params));
		run(exec, stream);
		if (word_at(word) != below)
			return 2;
		report(progress);
	}
	return 0;
}

/* A kernel in the body of a loop that has no end writes to nowhere. */
static int crash_in_a_loop(int unused)
{
	CUdeviceptr address = 16;
	void *arguments[] = {&address};
	CUDA_KERNEL_NODE_PARAMS params;
	CUgraph graph, body;
	CUgraphNode node;
	CUresult r;

	(void)unused;
	driver_open();
	graph = new_graph();
	add_condition(graph, NULL, new_handle(graph, 1, CU_GRAPH_COND_ASSIGN_DEFAULT),
		CU_GRAPH_COND_TYPE_WHILE, 1, &body);
	params = kernel_params("crash_write", 1, 1, arguments);
	ck_cuda(cuGraphAddKernelNode_v2(&node, body, NULL, 0, &params));
	ck_cuda(cuGraphLaunch(instantiate(graph), NULL));
	r = cuCtxSynchronize();
	return r == CUDA_ERROR_ILLEGAL_ADDRESS ? 0 : 1;
}

TEST(faults, conditions_outlast_somebody_elses_fault)
{
	expect_outlasts_faults(&service, looping, crash_in_a_loop, 2);
}

/* Killed with launches under way: a graph that is repeated begins with its first values. */
TEST(faults, conditions_outlast_their_executors)
{
	expect_outlasts_executors(&service, looping, 4);
}

int main(void)
{
	Suite *suite = suite_create("conditions");
	TCase *tests = tcase_create("conditions"), *faults = tcase_create("faults");

	tcase_set_timeout(tests, 120);
	tcase_add_unchecked_fixture(tests, common_service_start, common_service_stop);
	suite_add(tests, "conditions");
	suite_add_tcase(suite, tests);
	if (!is_native()) {
		tcase_set_timeout(faults, 240);
		suite_add(faults, "faults");
		suite_add_tcase(suite, faults);
	}
	return suite_run(suite);
}
