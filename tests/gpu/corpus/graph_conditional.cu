// A graph with a conditional node, whose kernel says when the loop ends.

#include "check.h"

__global__ void count_down(cudaGraphConditionalHandle handle, int *left, int *turns)
{
	++*turns;
	cudaGraphSetConditional(handle, --*left > 0);
}

int main()
{
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	cudaGraphNode_t node, inner;
	cudaGraphConditionalHandle handle;
	buffer<int> left(std::vector<int>(1, 7)), turns(1);
	int *words[2] = {left, turns};

	CHECK(cudaGraphCreate(&graph, 0));
	CHECK(cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault));
	cudaGraphNodeParams loop = {};
	loop.type = cudaGraphNodeTypeConditional;
	loop.conditional.handle = handle;
	loop.conditional.type = cudaGraphCondTypeWhile;
	loop.conditional.size = 1;
	CHECK(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &loop));
	void *arguments[] = {&handle, &words[0], &words[1]};
	cudaKernelNodeParams body = {};
	body.func = (void *)count_down;
	body.gridDim = body.blockDim = dim3(1);
	body.kernelParams = arguments;
	CHECK(cudaGraphAddKernelNode(&inner, loop.conditional.phGraph_out[0], nullptr, 0, &body));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	CHECK(cudaGraphLaunch(exec, 0));
	CHECK(cudaStreamSynchronize(0));
	EXPECT(turns.read()[0] == 7);
	printf("right\n");
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));
	return 0;
}
