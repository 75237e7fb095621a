// Child graphs, clones, enabling and disabling of nodes, queries of nodes and edges, user objects
// that end with their graph.

#include "check.h"

#include <atomic>

__global__ void append(int *log, int *length, int value)
{
	log[(*length)++] = value;
}

static std::atomic<int> destroyed(0);

static void CUDART_CB count_destroyed(void *)
{
	destroyed++;
}

static cudaGraphNode_t add(cudaGraph_t graph, cudaGraphNode_t after, int *log, int *length, int value)
{
	void *arguments[] = {&log, &length, &value};
	cudaKernelNodeParams params = {};
	cudaGraphNode_t node;

	params.func = (void *)append;
	params.gridDim = params.blockDim = dim3(1);
	params.kernelParams = arguments;
	CHECK(cudaGraphAddKernelNode(&node, graph, after ? &after : nullptr, after ? 1 : 0, &params));
	return node;
}

static void run(const char *label, cudaGraphExec_t exec, buffer<int> &log, buffer<int> &length)
{
	CHECK(cudaMemset(length, 0, sizeof(int)));
	CHECK(cudaMemset(log, 0, log.bytes()));
	CHECK(cudaGraphLaunch(exec, 0));
	std::vector<int> values = log.read();
	printf("%s:", label);
	for (int i = 0; i < length.read()[0]; i++)
		printf(" %d", values[i]);
	printf("\n");
}

int main()
{
	cudaGraph_t outer, inner, clone;
	cudaGraphExec_t exec, second;
	cudaGraphNode_t first, child, last, found;
	cudaGraphNodeType type;
	cudaUserObject_t object;
	buffer<int> log(64), length(1);
	unsigned enabled;
	size_t count;

	CHECK(cudaGraphCreate(&inner, 0));
	add(inner, add(inner, nullptr, log, length, 10), log, length, 11);
	CHECK(cudaGraphCreate(&outer, 0));
	first = add(outer, nullptr, log, length, 1);
	CHECK(cudaGraphAddChildGraphNode(&child, outer, &first, 1, inner));
	last = add(outer, child, log, length, 2);
	CHECK(cudaUserObjectCreate(&object, &destroyed, count_destroyed, 1, cudaUserObjectNoDestructorSync));
	CHECK(cudaGraphRetainUserObject(outer, object, 1, cudaGraphUserObjectMove));
	CHECK(cudaGraphInstantiate(&exec, outer, 0));
	run("child", exec, log, length);
	CHECK(cudaGraphNodeSetEnabled(exec, first, 0));
	CHECK(cudaGraphNodeGetEnabled(exec, first, &enabled));
	run("first disabled", exec, log, length);
	printf("enabled %u\n", enabled);
	CHECK(cudaGraphNodeSetEnabled(exec, first, 1));
	run("enabled again", exec, log, length);

	CHECK(cudaGraphClone(&clone, outer));
	CHECK(cudaGraphNodeFindInClone(&found, last, clone));
	CHECK(cudaGraphDestroyNode(found));
	CHECK(cudaGraphInstantiate(&second, clone, 0));
	run("clone", second, log, length);
	CHECK(cudaGraphNodeGetType(child, &type));
	CHECK(cudaGraphGetNodes(outer, nullptr, &count));
	printf("type %d, nodes %zu", (int)type, count);
	CHECK(cudaGraphGetRootNodes(outer, nullptr, &count));
	printf(", roots %zu", count);
	CHECK(cudaGraphGetEdges(outer, nullptr, nullptr, nullptr, &count));
	printf(", edges %zu\n", count);
	CHECK(cudaGraphExecDestroy(second));
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(inner));
	CHECK(cudaGraphDestroy(clone));
	CHECK(cudaGraphDestroy(outer));
	EXPECT(wait_until([] { return destroyed.load() == 1; }));
	printf("user object destroyed\n");
	return 0;
}
