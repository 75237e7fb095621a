// Cost of a graph launch after changes of its nodes.
//
//   graphs NODES
//
// The graph is a chain of NODES small kernels. Before each launch the program changes no node,
// every tenth, or all, like programs that collect their steps in graphs whose memory moves. The
// program waits once per BURST launches; with "wait" in the name, for each. "change" is the cost of
// a change to the caller, and "submit" of a launch after changes of all nodes.
//
// "captured" is a step of another graph with NODES children: before each launch each child is
// captured again, as a kernel that a library launches with an attribute, and replaces the former.
// This is the cost of a step whose memory moves.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/lib/driver.h"
#include "bench/lib/stats.h"

#define BURST 16u
/* For each kind of change. */
#define SECONDS_MOST 0.3
#define BURSTS_MOST  4096u

static CUstream stream;
static CUfunction spin;
static CUgraphExec exec;
static CUgraphNode *nodes;
static CUdeviceptr out;

/* The part of a step before its launch, for a graph of so many nodes. */
typedef void step_fn(uint32_t count, uint64_t number);

/* Changes every `every`-th node (0: none). */
static void change(uint32_t count, uint32_t every, uint64_t number)
{
	CUdeviceptr place = out + number % 16 * 8;
	uint64_t ns = 0;
	void *arguments[] = {&place, &ns};
	CUDA_KERNEL_NODE_PARAMS params = {.func = spin,
		.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 1,
		.blockDimY = 1,
		.blockDimZ = 1,
		.kernelParams = arguments};

	for (uint32_t i = 0; i < count; i += every)
		driver_check(
			cu.graph_exec_set_kernel(exec, nodes[i], &params), "cuGraphExecKernelNodeSetParams");
}

static void change_none(uint32_t count, uint64_t number)
{
	(void)count;
	(void)number;
}

static void change_some(uint32_t count, uint64_t number)
{
	change(count, 10, number);
}

static void change_all(uint32_t count, uint64_t number)
{
	change(count, 1, number);
}

/* A graph of a single kernel, launched with an attribute. */
static CUgraph capture_one(uint64_t number)
{
	CUdeviceptr place = out + number % 16 * 8;
	uint64_t ns = 0;
	void *arguments[] = {&place, &ns};
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

	/* The bytes behind the value, from the libraries' stacks, vary between calls. */
	memset(&attribute, (int)(number % 16), sizeof(attribute));
	attribute.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
	attribute.value.priority = 0;
	driver_check(cu.capture_begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
	driver_check(cu.launch_ex(&config, spin, arguments, NULL), "cuLaunchKernelEx");
	driver_check(cu.capture_end(stream, &graph), "cuStreamEndCapture");
	return graph;
}

static void capture_all(uint32_t count, uint64_t number)
{
	for (uint32_t i = 0; i < count; i++) {
		CUgraph graph = capture_one(number);

		driver_check(
			cu.graph_exec_set_child(exec, nodes[i], graph), "cuGraphExecChildGraphNodeSetParams");
		driver_check(cu.graph_destroy(graph), "cuGraphDestroy");
	}
}

static void step(step_fn *prepare, uint32_t count, uint64_t number)
{
	prepare(count, number);
	driver_check(cu.graph_launch(exec, stream), "cuGraphLaunch");
}

static void measure(const char *name, uint32_t count, step_fn *prepare, uint32_t burst)
{
	uint64_t begin = now_ns(), number = 0;
	struct samples samples;

	samples_init(&samples, BURSTS_MOST);
	/* The very first change costs more. */
	for (uint32_t i = 0; i < 4; i++)
		step(prepare, count, number++);
	driver_check(cu.stream_sync(stream), "cuStreamSynchronize");
	for (uint32_t i = 0; i < BURSTS_MOST && (double)(now_ns() - begin) < SECONDS_MOST * 1e9; i++) {
		uint64_t from = now_ns();

		for (uint32_t j = 0; j < burst; j++)
			step(prepare, count, number++);
		driver_check(cu.stream_sync(stream), "cuStreamSynchronize");
		samples_add(&samples, (double)(now_ns() - from) / 1000 / burst);
	}
	samples_print(&samples, name, "us");
	samples_deinit(&samples);
}

static void measure_calls(uint32_t count)
{
	uint64_t begin = now_ns();
	struct samples changes, launches;

	samples_init(&changes, BURSTS_MOST);
	samples_init(&launches, BURSTS_MOST);
	for (uint32_t i = 0; i < BURSTS_MOST && (double)(now_ns() - begin) < SECONDS_MOST * 1e9; i++) {
		uint64_t from = now_ns(), changed;

		change_all(count, i);
		changed = now_ns();
		driver_check(cu.graph_launch(exec, stream), "cuGraphLaunch");
		samples_add(&launches, (double)(now_ns() - changed) / 1000);
		samples_add(&changes, (double)(changed - from) / 1000 / count);
		driver_check(cu.stream_sync(stream), "cuStreamSynchronize");
	}
	samples_print(&changes, "change", "us");
	samples_print(&launches, "submit", "us");
	samples_deinit(&changes);
	samples_deinit(&launches);
}

static void make(uint32_t count)
{
	uint64_t ns = 0;
	void *arguments[] = {&out, &ns};
	size_t found = count;
	CUgraph graph;

	driver_check(cu.capture_begin(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
	for (uint32_t i = 0; i < count; i++)
		driver_check(cu.launch(spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL), "cuLaunchKernel");
	driver_check(cu.capture_end(stream, &graph), "cuStreamEndCapture");
	driver_check(cu.graph_nodes(graph, nodes, &found), "cuGraphGetNodes");
	driver_check(cu.graph_instantiate(&exec, graph, 0), "cuGraphInstantiate");
}

static void make_of_children(uint32_t count)
{
	CUgraph graph, child = capture_one(0);

	driver_check(cu.graph_create(&graph, 0), "cuGraphCreate");
	for (uint32_t i = 0; i < count; i++)
		driver_check(cu.graph_add_child(&nodes[i], graph, i ? &nodes[i - 1] : NULL, i > 0, child),
			"cuGraphAddChildGraphNode");
	driver_check(cu.graph_instantiate(&exec, graph, 0), "cuGraphInstantiate");
}

int main(int argc, char **argv)
{
	uint32_t count = argc == 2 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;

	if (!count) {
		fprintf(stderr, "usage: graphs NODES\n");
		return 64;
	}
	driver_open();
	spin = driver_function(driver_module(), "spin");
	driver_check(cu.stream_create(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	driver_check(cu.alloc(&out, 4096), "cuMemAlloc");
	nodes = calloc(count, sizeof(*nodes));
	if (!nodes)
		abort();
	make(count);
	measure("none", count, change_none, BURST);
	measure("some", count, change_some, BURST);
	measure("all", count, change_all, BURST);
	measure("wait_none", count, change_none, 1);
	measure("wait_all", count, change_all, 1);
	measure_calls(count);
	driver_check(cu.graph_exec_destroy(exec), "cuGraphExecDestroy");
	make_of_children(count);
	measure("captured", count, capture_all, BURST);
	return 0;
}
