// Memory that graphs allocate: nodes, captured allocations, what is counted, what outlives what.
// The tests run against NVIDIA's library as well and must pass there.

#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/graphs.h"
#include "tests/system/program.h"

static CUDA_MEM_ALLOC_NODE_PARAMS alloc_params(size_t bytes)
{
	return (CUDA_MEM_ALLOC_NODE_PARAMS){
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
		.bytesize = bytes,
	};
}

TEST(graph_memory, graphs_have_memory)
{
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = alloc_params(WORDS * 4);
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

/* Nodes have device memory, which is not shared. */
TEST(graph_memory, memory_of_another_kind_is_refused)
{
	CUDA_MEM_ALLOC_NODE_PARAMS host = alloc_params(4096), far = host, none = host, shared = host;
	CUmemoryPool pool;
	CUgraphNode node;
	CUdeviceptr memory;
	CUstream stream;
	CUgraph graph;

	driver_open();
	ck_cuda(cuGraphCreate(&graph, 0));
	host.poolProps.location.type = CU_MEM_LOCATION_TYPE_HOST;
	ck_assert_int_eq(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &host), CUDA_ERROR_NOT_SUPPORTED);
	shared.poolProps.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	ck_assert_int_eq(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &shared), CUDA_ERROR_NOT_SUPPORTED);
	far.poolProps.location.id = 99;
	ck_assert_int_eq(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &far), CUDA_ERROR_INVALID_VALUE);
	none.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
	ck_assert_int_eq(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &none), CUDA_ERROR_INVALID_VALUE);
	none.poolProps = (CUmemPoolProps){.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT}};
	ck_assert_int_eq(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &none), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(node_count(graph), 0);
	/* The capture goes on. */
	stream = new_stream();
	for (int i = 0; i < 2; i++) {
		ck_cuda(cuMemPoolCreate(&pool, i ? &host.poolProps : &shared.poolProps));
		ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
		ck_assert_int_eq(
			cuMemAllocFromPoolAsync(&memory, 4096, pool, stream), CUDA_ERROR_NOT_SUPPORTED);
		ck_cuda(cuStreamEndCapture(stream, &graph));
		ck_assert_uint_eq(node_count(graph), 0);
		ck_cuda(cuMemPoolDestroy(pool));
	}
}

#define LARGE (UINT64_C(256) << 20)

/* The last that knew of it but the program. */
TEST_LOOP(graph_memory_2, memory_that_outlived_its_graph_is_freed, 0, 2)
{
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = alloc_params(LARGE);
	size_t before, after, total;
	CUgraphNode node;
	CUgraphExec exec;
	CUstream stream;
	CUgraph graph;

	driver_open();
	stream = new_stream();
	ck_cuda(cuMemGetInfo_v2(&before, &total));
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &alloc));
	exec = instantiate(graph);
	run(exec, stream);
	ck_cuda(cuGraphExecDestroy(exec));
	ck_cuda(cuGraphDestroy(graph));
	ck_cuda(cuMemGetInfo_v2(&after, &total));
	ck_assert_uint_lt(after, before - LARGE / 2);
	ck_cuda(_i ? cuMemFreeAsync(alloc.dptr, stream) : cuMemFree_v2(alloc.dptr));
	ck_cuda(cuStreamSynchronize(stream));
	ck_cuda(cuMemGetInfo_v2(&after, &total));
	ck_assert_uint_gt(after, before - LARGE / 2);
}

/* Nobody could before: it ran. */
TEST(graph_memory, a_trim_frees_what_a_destroyed_graph_ran_with)
{
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = alloc_params(LARGE);
	size_t before, after, total;
	CUgraphNode node;
	CUgraphExec exec;
	uint32_t *gate;
	CUstream stream;
	CUgraph graph;

	driver_open();
	stream = new_stream();
	gate = shared_word();
	ck_cuda(cuMemGetInfo_v2(&before, &total));
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &alloc));
	ck_cuda(cuGraphAddMemFreeNode(&node, graph, &node, 1, alloc.dptr));
	exec = instantiate(graph);
	ck_cuda(launch_spin(gate, 1, stream));
	ck_cuda(cuGraphLaunch(exec, stream));
	ck_cuda(cuGraphExecDestroy(exec));
	ck_cuda(cuGraphDestroy(graph));
	__atomic_store_n(gate, 1, __ATOMIC_RELEASE);
	ck_cuda(cuStreamSynchronize(stream));
	ck_cuda(cuDeviceGraphMemTrim(0));
	ck_cuda(cuMemGetInfo_v2(&after, &total));
	ck_assert_uint_gt(after, before - LARGE / 2);
}

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
TEST_LOOP(graph_memory_3, graph_memory_is_counted, 0, 2)
{
	const uint64_t counted = graph_sizes[_i].counted;
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = alloc_params(graph_sizes[_i].asked);
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

/* Not freed in the graph: the program's, until it frees it. */
TEST(graph_memory_3, memory_outlives_a_launch)
{
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = alloc_params(WORDS * 4);
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

/* Two nodes allocate; while one's memory is not free, the other's stays so. */
TEST(graph_memory_3, a_refused_launch_allocates_nothing)
{
	CUDA_MEM_ALLOC_NODE_PARAMS alloc[2];
	CUgraphNode nodes[2];
	CUgraphExec exec;
	CUgraph graph;
	CUstream stream;

	driver_open();
	stream = new_stream();
	ck_cuda(cuGraphCreate(&graph, 0));
	for (int i = 0; i < 2; i++) {
		alloc[i] = alloc_params(WORDS * 4);
		ck_cuda(cuGraphAddMemAllocNode(&nodes[i], graph, NULL, 0, &alloc[i]));
	}
	exec = instantiate(graph);
	for (int i = 0; i < 2; i++) {
		run(exec, stream);
		ck_cuda(cuMemFree_v2(alloc[i].dptr));
		ck_assert_int_eq(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
		ck_assert_int_eq(cuMemFree_v2(alloc[i].dptr), CUDA_ERROR_INVALID_VALUE);
		ck_cuda(cuMemFree_v2(alloc[1 - i].dptr));
	}
	run(exec, stream);
}

/* An event that is gone is noticed behind the nodes' memory. */
TEST(graph_memory_3, a_launch_that_fails_at_once_changes_no_memory)
{
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = alloc_params(WORDS * 4), other = alloc_params(WORDS * 4);
	CUgraphExec exec, first;
	CUgraphNode nodes[3];
	CUgraph graph;
	CUstream stream;
	CUevent event;

	if (is_native())
		return;
	driver_open();
	stream = new_stream();
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphAddMemAllocNode(&nodes[0], graph, NULL, 0, &other));
	first = instantiate(graph);
	run(first, stream);
	event = new_event();
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphAddEventRecordNode(&nodes[0], graph, NULL, 0, event));
	ck_cuda(cuGraphAddMemAllocNode(&nodes[1], graph, &nodes[0], 1, &alloc));
	add_fill(graph, &nodes[1], 1, alloc.dptr, 3);
	ck_cuda(cuGraphAddMemFreeNode(&nodes[2], graph, &nodes[0], 1, other.dptr));
	exec = instantiate(graph);
	ck_cuda(cuEventDestroy_v2(event));
	ck_assert_int_ne(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
	ck_assert_int_eq(cuMemFree_v2(alloc.dptr), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuGraphLaunch(first, stream), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(cuGraphExecEventRecordNodeSetEvent(exec, nodes[0], new_event()));
	run(exec, stream);
	expect_words(alloc.dptr, WORDS, 3);
	ck_cuda(cuMemFree_v2(alloc.dptr));
	run(first, stream);
	ck_cuda(cuMemFree_v2(other.dptr));
}

TEST(graph_memory_3, stream_ordered_memory_becomes_nodes)
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

TEST(graph_memory_3, nothing_is_taken_out_of_graphs_with_memory)
{
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = alloc_params(WORDS * 4);
	CUgraphNode nodes[3];
	size_t edges = 0;
	CUgraph graph;

	driver_open();
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphAddMemAllocNode(&nodes[0], graph, NULL, 0, &alloc));
	nodes[1] = add_fill(graph, &nodes[0], 1, alloc.dptr, 12);
	nodes[2] = add_fill(graph, &nodes[1], 1, alloc.dptr, 13);
	for (int i = 0; i < 3; i++)
		ck_assert_int_ne(cuGraphDestroyNode(nodes[i]), CUDA_SUCCESS);
	ck_assert_int_ne(cuGraphRemoveDependencies_v2(graph, &nodes[1], &nodes[2], NULL, 1), CUDA_SUCCESS);
	ck_assert_uint_eq(node_count(graph), 3);
	ck_cuda(cuGraphGetEdges_v2(graph, NULL, NULL, NULL, &edges));
	ck_assert_uint_eq(edges, 2);
	run(instantiate(graph), new_stream());
	expect_words(alloc.dptr, WORDS, 13);
}

/* What a call is refused with is said on standard error. */
static CUresult add_moved(CUgraph parent, CUgraph child, char *ret_text, size_t size)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_GRAPH,
		.graph = {.graph = child, .ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE}};
	int file = memfd_create("text", MFD_CLOEXEC), before = dup(STDERR_FILENO);
	CUgraphNode node;
	ssize_t length;
	CUresult r;

	ck_assert_int_ge(dup2(file, STDERR_FILENO), 0);
	r = cuGraphAddNode_v2(&node, parent, NULL, NULL, 0, &params);
	ck_assert_int_ge(dup2(before, STDERR_FILENO), 0);
	length = pread(file, ret_text, size - 1, 0);
	ck_assert_int_ge(length, 0);
	ret_text[length] = '\0';
	close(file);
	close(before);
	return r;
}

/* There is one such memory; copies of the graph would share it. */
TEST(graph_memory_3, graphs_with_memory_are_no_children)
{
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = alloc_params(WORDS * 4);
	CUgraph graph, parent, child, clone;
	CUgraphNode node, inside;
	char text[1024];
	CUdeviceptr p;
	CUstream stream;

	driver_open();
	stream = new_stream();
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphCreate(&parent, 0));
	ck_cuda(cuGraphAddChildGraphNode(&node, parent, NULL, 0, graph));
	ck_cuda(cuGraphChildGraphNodeGetGraph(node, &child));
	ck_assert_int_ne(cuGraphAddMemAllocNode(&inside, child, NULL, 0, &alloc), CUDA_SUCCESS);
	ck_cuda(cuGraphAddMemAllocNode(&inside, graph, NULL, 0, &alloc));
	ck_assert_int_ne(cuGraphAddMemFreeNode(&inside, child, NULL, 0, alloc.dptr), CUDA_SUCCESS);
	ck_assert_int_ne(cuGraphAddChildGraphNode(&inside, parent, NULL, 0, graph), CUDA_SUCCESS);
	ck_assert_int_ne(cuGraphClone(&clone, graph), CUDA_SUCCESS);
	ck_assert_uint_eq(node_count(parent), 1);
	/* The driver can move it. What becomes of a capture that is to allocate there is not
	 * known. */
	if (is_native())
		return;
	ck_assert_int_eq(add_moved(parent, graph, text, sizeof(text)), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_ptr_nonnull(strstr(text, "child graphs with memory nodes are not supported"));
	ck_assert_uint_eq(node_count(parent), 1);
	ck_cuda(cuStreamBeginCaptureToGraph(stream, child, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
	ck_assert_int_eq(cuMemAllocAsync(&p, WORDS * 4, stream), CUDA_ERROR_NOT_SUPPORTED);
	end_broken(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	ck_assert_uint_eq(node_count(child), 0);
}

/* What others do at that time may wait for this very thread. Memory that was freed behind such work
 * stays. */
TEST(graph_memory_3, graphs_with_memory_come_and_go_beside_work_that_waits)
{
	CUDA_MEM_ALLOC_NODE_PARAMS inside = alloc_params(WORDS * 4), left = alloc_params(WORDS * 4);
	CUgraphExec closed, open;
	CUstream waiting, stream;
	CUdeviceptr out, next;
	CUgraphNode nodes[2];
	CUgraph graph;
	uint32_t *word;

	driver_open();
	kernel("fill");
	waiting = new_stream();
	stream = new_stream();
	out = device_words(WORDS, 0);
	word = shared_word();
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphAddMemAllocNode(&nodes[0], graph, NULL, 0, &inside));
	nodes[1] = add_fill(graph, &nodes[0], 1, inside.dptr, 5);
	ck_cuda(cuGraphAddMemFreeNode(&nodes[0], graph, &nodes[1], 1, inside.dptr));
	closed = instantiate(graph);
	ck_cuda(cuGraphDestroy(graph));
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphAddMemAllocNode(&nodes[0], graph, NULL, 0, &left));
	add_fill(graph, &nodes[0], 1, left.dptr, 7);
	open = instantiate(graph);
	ck_cuda(cuGraphDestroy(graph));
	run(closed, stream);
	run(open, stream);
	ck_cuda(cuStreamWaitValue32_v2(waiting, (CUdeviceptr)(uintptr_t)word, 1, CU_STREAM_WAIT_VALUE_GEQ));
	ck_cuda(cuMemcpyDtoDAsync_v2(out, left.dptr, WORDS * 4, waiting));
	ck_cuda(cuMemFreeAsync(left.dptr, waiting));
	ck_cuda(cuGraphExecDestroy(closed));
	ck_cuda(cuGraphExecDestroy(open));
	ck_assert_int_eq(cuStreamQuery(waiting), CUDA_ERROR_NOT_READY);
	ck_cuda(cuMemAlloc_v2(&next, WORDS * 4));
	ck_assert(next + WORDS * 4 <= left.dptr || left.dptr + WORDS * 4 <= next);
	ck_cuda(fill(stream, next, 9, WORDS));
	ck_cuda(cuStreamSynchronize(stream));
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	ck_cuda(cuStreamSynchronize(waiting));
	expect_words(out, WORDS, 7);
	ck_cuda(cuMemFree_v2(next));
}

/* The memory has one address: the next launch must not write what is still read by work in front of
 * the free. */
TEST(graph_memory_3, a_launch_waits_for_the_free_before_it)
{
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = alloc_params(WORDS * 4);
	CUstream stream, reader, other;
	CUdeviceptr out, elsewhere;
	CUgraphNode node;
	CUgraphExec exec;
	CUgraph graph;
	uint32_t *word;

	driver_open();
	kernel("fill");
	stream = new_stream();
	reader = new_stream();
	other = new_stream();
	out = device_words(WORDS, 0);
	elsewhere = device_words(WORDS, 0);
	word = shared_word();
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &alloc));
	add_fill(graph, &node, 1, alloc.dptr, 7);
	exec = instantiate(graph);
	run(exec, stream);
	ck_cuda(cuMemsetD32_v2(alloc.dptr, 9, WORDS));
	ck_cuda(cuStreamWaitValue32_v2(reader, (CUdeviceptr)(uintptr_t)word, 1, CU_STREAM_WAIT_VALUE_GEQ));
	ck_cuda(cuMemcpyDtoDAsync_v2(out, alloc.dptr, WORDS * 4, reader));
	ck_cuda(cuMemFreeAsync(alloc.dptr, reader));
	ck_cuda(cuGraphLaunch(exec, stream));
	/* Time for the launch, if it took any. */
	for (int i = 0; i < 4; i++) {
		ck_cuda(fill(other, elsewhere, 1, WORDS));
		ck_cuda(cuStreamSynchronize(other));
	}
	ck_assert_int_eq(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	ck_cuda(cuStreamSynchronize(stream));
	ck_cuda(cuStreamSynchronize(reader));
	expect_words(out, WORDS, 9);
	expect_words(alloc.dptr, WORDS, 7);
	ck_cuda(cuMemFree_v2(alloc.dptr));
}

/* Two would write to the same memory, each on its stream. */
TEST(graph_memory_3, graphs_with_memory_are_instantiated_once_at_a_time)
{
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = alloc_params(WORDS * 4);
	CUgraph graph, other;
	CUgraphExec exec, second;
	CUgraphNode node;
	CUstream stream;

	driver_open();
	stream = new_stream();
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &alloc));
	ck_cuda(cuGraphCreate(&other, 0));
	ck_cuda(cuGraphAddMemFreeNode(&node, other, NULL, 0, alloc.dptr));
	for (int i = 0; i < 2; i++) {
		CUgraph one = i ? other : graph;

		exec = instantiate(one);
		ck_assert_int_eq(cuGraphInstantiateWithFlags(&second, one, 0), CUDA_ERROR_NOT_SUPPORTED);
		run(exec, stream);
		ck_cuda(cuGraphExecDestroy(exec));
		exec = instantiate(one);
		ck_cuda(cuGraphDestroy(one));
		ck_cuda(cuGraphExecDestroy(exec));
	}
}

/* Allocates, fills, and frees what it is told to. */
static CUgraph filling_graph(uint64_t bytes, uint32_t value, bool frees, CUdeviceptr *ret_at)
{
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = alloc_params(bytes);
	CUgraphNode nodes[3];
	CUgraph graph;

	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphAddMemAllocNode(&nodes[0], graph, NULL, 0, &alloc));
	nodes[1] = add_fill(graph, &nodes[0], 1, alloc.dptr, value);
	if (frees)
		ck_cuda(cuGraphAddMemFreeNode(&nodes[2], graph, &nodes[1], 1, alloc.dptr));
	*ret_at = alloc.dptr;
	return graph;
}

static CUresult update(CUgraphExec exec, CUgraph graph)
{
	CUgraphExecUpdateResultInfo info;

	return cuGraphExecUpdate_v2(exec, graph, &info);
}

/* Whatever the sizes are, also before a launch and while memory is allocated. */
TEST(graph_memory_3, an_update_brings_other_memory)
{
	CUdeviceptr at[3];
	CUgraph graphs[3];
	CUgraphExec exec;
	CUstream stream;

	driver_open();
	stream = new_stream();
	for (uint32_t i = 0; i < 3; i++)
		graphs[i] = filling_graph(WORDS * 4 << i * 4, 10 + i, false, &at[i]);
	exec = instantiate(graphs[0]);
	ck_cuda(update(exec, graphs[1]));
	run(exec, stream);
	expect_words(at[1], WORDS, 11);
	ck_assert_int_eq(cuMemFree_v2(at[0]), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(update(exec, graphs[1]));
	ck_assert_int_eq(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
	ck_cuda(update(exec, graphs[2]));
	run(exec, stream);
	expect_words(at[2], WORDS, 12);
	expect_words(at[1], WORDS, 11);
	ck_cuda(cuMemFree_v2(at[1]));
	ck_cuda(update(exec, graphs[0]));
	for (int i = 0; i < 3; i++)
		ck_cuda(cuGraphDestroy(graphs[i]));
	run(exec, stream);
	expect_words(at[0], WORDS, 10);
	expect_words(at[2], WORDS, 12);
	ck_cuda(cuMemFree_v2(at[0]));
	ck_cuda(cuMemFree_v2(at[2]));
	run(exec, stream);
	ck_cuda(cuGraphExecDestroy(exec));
}

/* Captured in each round, as frameworks do it. */
TEST(graph_memory_3, graphs_with_memory_are_captured_anew)
{
	CUdeviceptr word, inside;
	CUgraphExec exec = NULL;
	CUresult r = CUDA_SUCCESS;
	uint32_t value = 0;
	CUstream stream;
	CUgraph graph;

	driver_open();
	stream = new_stream();
	word = device_words(WORDS, 0);
	for (uint32_t i = 1; i <= 4; i++) {
		ck_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
		ck_cuda(cuMemAllocAsync(&inside, i << 20, stream));
		ck_cuda(fill(stream, inside, i, WORDS));
		ck_cuda(cuMemcpyDtoDAsync_v2(word, inside, WORDS * 4, stream));
		ck_cuda(cuMemFreeAsync(inside, stream));
		ck_cuda(cuStreamEndCapture(stream, &graph));
		if (!exec)
			exec = instantiate(graph);
		else
			r = update(exec, graph);
		/* The driver looks for the memory of the copy before it is there. */
		ck_assert(r == CUDA_SUCCESS || is_native());
		value = r == CUDA_SUCCESS ? i : value;
		ck_cuda(cuGraphDestroy(graph));
		for (int k = 0; k < 3; k++)
			ck_cuda(cuGraphLaunch(exec, stream));
		ck_cuda(cuStreamSynchronize(stream));
		expect_words(word, WORDS, value);
	}
}

TEST(graph_memory_3, an_update_brings_no_memory_of_another_executable_graph)
{
	CUdeviceptr at[2];
	CUgraph graphs[2];
	CUgraphExec execs[2], third;
	CUstream stream;

	driver_open();
	stream = new_stream();
	for (uint32_t i = 0; i < 2; i++) {
		graphs[i] = filling_graph(WORDS * 4, i, true, &at[i]);
		execs[i] = instantiate(graphs[i]);
	}
	ck_assert_int_eq(update(execs[0], graphs[1]), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(update(execs[1], graphs[0]), CUDA_ERROR_NOT_SUPPORTED);
	for (int i = 0; i < 2; i++) {
		ck_cuda(update(execs[i], graphs[i]));
		run(execs[i], stream);
	}
	ck_cuda(cuGraphExecDestroy(execs[1]));
	ck_cuda(update(execs[0], graphs[1]));
	ck_assert_int_eq(cuGraphInstantiateWithFlags(&third, graphs[1], 0), CUDA_ERROR_NOT_SUPPORTED);
	third = instantiate(graphs[0]);
	run(execs[0], stream);
	run(third, stream);
}

TEST(graph_memory_3, a_launch_frees_what_is_allocated)
{
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = alloc_params(WORDS * 4), inside = alloc_params(WORDS * 4);
	CUgraph graph, other;
	CUgraphExec exec, frees;
	CUgraphNode nodes[3];
	CUstream stream;

	driver_open();
	stream = new_stream();
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphAddMemAllocNode(&nodes[0], graph, NULL, 0, &alloc));
	add_fill(graph, &nodes[0], 1, alloc.dptr, 3);
	exec = instantiate(graph);
	ck_cuda(cuGraphCreate(&other, 0));
	ck_cuda(cuGraphAddMemAllocNode(&nodes[0], other, NULL, 0, &inside));
	ck_cuda(cuGraphAddMemFreeNode(&nodes[1], other, &nodes[0], 1, inside.dptr));
	ck_cuda(cuGraphAddMemFreeNode(&nodes[2], other, NULL, 0, alloc.dptr));
	frees = instantiate(other);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(cuGraphLaunch(frees, stream), CUDA_ERROR_INVALID_VALUE);
		run(exec, stream);
		expect_words(alloc.dptr, WORDS, 3);
		run(frees, stream);
	}
	run(exec, stream);
	ck_cuda(cuMemFree_v2(alloc.dptr));
	ck_assert_int_eq(cuGraphLaunch(frees, stream), CUDA_ERROR_INVALID_VALUE);
}

TEST(graph_memory_3, a_graph_frees_memory_once)
{
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = alloc_params(WORDS * 4);
	CUgraphNode nodes[2], again;
	CUgraph graph;

	driver_open();
	ck_cuda(cuGraphCreate(&graph, 0));
	ck_cuda(cuGraphAddMemAllocNode(&nodes[0], graph, NULL, 0, &alloc));
	ck_cuda(cuGraphAddMemFreeNode(&nodes[1], graph, &nodes[0], 1, alloc.dptr));
	ck_assert_int_eq(
		cuGraphAddMemFreeNode(&again, graph, &nodes[1], 1, alloc.dptr), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(node_count(graph), 2);
	ck_cuda(cuGraphDestroy(graph));
}

/* Memory of graphs is given back once: with the context, or with the graph. */
TEST(graph_memory_5, graphs_outlive_their_context)
{
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = alloc_params(WORDS * 4);
	uint32_t from[WORDS] = {0}, *pinned[4];
	CUdeviceptr out, memory[4];
	CUcontext first, second;
	CUgraphExec exec;
	CUgraphNode node;
	unsigned flags;
	CUgraph graph;

	if (is_native())
		return;
	driver_open();
	ck_cuda(cuCtxCreate_v2(&first, 0, 0));
	out = device_words(WORDS, 0);
	ck_cuda(cuGraphCreate(&graph, 0));
	add_copy(graph, NULL, 0, copy_params(out, 0, NULL, from, WORDS * 4));
	ck_cuda(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &alloc));
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

/* Return: the thread's time for a launch with so many allocations and frees, in ns: the shortest of
 * some */
static uint64_t launch_ns(uint32_t count)
{
	CUDA_MEM_ALLOC_NODE_PARAMS alloc = alloc_params(512);
	uint64_t shortest = UINT64_MAX;
	struct timespec begin, end;
	CUgraphNode node = NULL;
	CUgraphExec exec;
	CUstream stream;
	CUgraph graph;

	stream = new_stream();
	ck_cuda(cuGraphCreate(&graph, 0));
	for (uint32_t i = 0; i < count; i++) {
		ck_cuda(cuGraphAddMemAllocNode(&node, graph, node ? &node : NULL, node ? 1 : 0, &alloc));
		ck_cuda(cuGraphAddMemFreeNode(&node, graph, &node, 1, alloc.dptr));
	}
	exec = instantiate(graph);
	for (int i = 0; i < 5; i++) {
		uint64_t ns;

		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
		ck_cuda(cuGraphLaunch(exec, stream));
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
		ck_cuda(cuStreamSynchronize(stream));
		ns = (uint64_t)(end.tv_sec - begin.tv_sec) * 1000000000 + (uint64_t)end.tv_nsec -
		     (uint64_t)begin.tv_nsec;
		shortest = ns < shortest ? ns : shortest;
	}
	ck_cuda(cuGraphExecDestroy(exec));
	ck_cuda(cuGraphDestroy(graph));
	return shortest;
}

/* Ten times as many nodes take about ten times as long; a hundred times would be quadratic. */
TEST(graph_memory_4, a_launch_takes_no_longer_for_a_node_where_there_are_many)
{
	uint64_t few, many;

	driver_open();
	few = launch_ns(500);
	many = launch_ns(5000);
	ck_assert_uint_lt(many, 60 * few);
}

int main(void)
{
	Suite *suite = suite_create("graph_memory");
	TCase *tests = tcase_create("graph_memory");

	tcase_set_timeout(tests, 120);
	tcase_add_unchecked_fixture(tests, common_service_start, common_service_stop);
	suite_add(tests, "graph_memory");
	/* The driver keeps it for other graphs. */
	if (!is_native())
		suite_add(tests, "graph_memory_2");
	suite_add(tests, "graph_memory_3");
	if (!is_native())
		suite_add(tests, "graph_memory_4");
	suite_add(tests, "graph_memory_5");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
