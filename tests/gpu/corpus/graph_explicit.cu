// A graph built node by node: kernels, copies in one to three dimensions, fills, host functions,
// ordinary host memory, empty nodes, events; its parameters read back; launched many times.
#include "check.h"

__global__ void add(unsigned *to, const unsigned *from, unsigned factor, int count)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
		to[i] += factor * from[i];
}

static unsigned calls;

static void CUDART_CB count_call(void *sum)
{
	*(unsigned *)sum += ++calls;
}

static cudaGraphNode_t kernel(cudaGraph_t graph, std::vector<cudaGraphNode_t> after, unsigned *to, unsigned *from,
	unsigned factor, int count)
{
	void *arguments[] = {&to, &from, &factor, &count};
	cudaKernelNodeParams params = {};
	cudaGraphNode_t node;

	params.func = (void *)add;
	params.gridDim = dim3(8);
	params.blockDim = dim3(128);
	params.kernelParams = arguments;
	CHECK(cudaGraphAddKernelNode(&node, graph, after.data(), after.size(), &params));
	return node;
}

int main()
{
	const int count = 10000;
	std::vector<unsigned> first = random_words(count), out(count);
	buffer<unsigned> a(count), b(count), c(count);
	unsigned sum = 0, *pinned;
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	cudaGraphNode_t in, fill, copy, back, host, empty, record, box;
	cudaEvent_t event;
	cudaStream_t stream;

	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaEventCreate(&event));
	CHECK(cudaMallocHost(&pinned, count * sizeof(unsigned)));
	CHECK(cudaGraphCreate(&graph, 0));
	CHECK(cudaGraphAddMemcpyNode1D(
		&in, graph, nullptr, 0, a, first.data(), count * sizeof(unsigned), cudaMemcpyHostToDevice));
	cudaMemsetParams set = {};
	set.dst = b.at;
	set.value = 3;
	set.elementSize = 4;
	set.width = count;
	set.height = 1;
	CHECK(cudaGraphAddMemsetNode(&fill, graph, nullptr, 0, &set));
	cudaGraphNode_t sum_node = kernel(graph, {in, fill}, b, a, 5, count);
	CHECK(cudaGraphAddMemcpyNode1D(
		&copy, graph, &sum_node, 1, c, b, count * sizeof(unsigned), cudaMemcpyDeviceToDevice));
	CHECK(cudaGraphAddMemcpyNode1D(
		&back, graph, &copy, 1, pinned, c, count * sizeof(unsigned), cudaMemcpyDeviceToHost));
	cudaHostNodeParams call = {count_call, &sum};
	CHECK(cudaGraphAddHostNode(&host, graph, &back, 1, &call));
	cudaGraphNode_t again = kernel(graph, {host}, c, b, 1, count);
	CHECK(cudaGraphAddEmptyNode(&empty, graph, &again, 1));
	cudaMemcpy3DParms three = {};
	three.srcPtr = make_cudaPitchedPtr(c.at, 100 * sizeof(unsigned), 100 * sizeof(unsigned), 10);
	three.dstPtr = make_cudaPitchedPtr(out.data(), 50 * sizeof(unsigned), 50 * sizeof(unsigned), 8);
	three.extent = make_cudaExtent(50 * sizeof(unsigned), 8, 10);
	three.kind = cudaMemcpyDeviceToHost;
	CHECK(cudaGraphAddMemcpyNode(&box, graph, &empty, 1, &three));
	CHECK(cudaGraphAddEventRecordNode(&record, graph, &box, 1, event));

	cudaKernelNodeParams seen = {};
	CHECK(cudaGraphKernelNodeGetParams(sum_node, &seen));
	printf("kernel %s: grid %u, block %u, factor %u\n", seen.func == (void *)add ? "add" : "another", seen.gridDim.x,
		seen.blockDim.x, *(unsigned *)seen.kernelParams[2]);
	cudaMemsetParams set_seen = {};
	CHECK(cudaGraphMemsetNodeGetParams(fill, &set_seen));
	printf("fill %u of %u bytes, %zu wide\n", set_seen.value, set_seen.elementSize, set_seen.width);
	cudaGraphNodeType type;
	CHECK(cudaGraphNodeGetType(record, &type));
	printf("type %d\n", (int)type);

	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	for (int round = 0; round < 5; round++) {
		first[0] = round;
		CHECK(cudaGraphLaunch(exec, stream));
		CHECK(cudaEventSynchronize(event));
		CHECK(cudaStreamSynchronize(stream));
		report("pinned", std::vector<unsigned>(pinned, pinned + count));
		report("box", std::vector<unsigned>(out.begin(), out.begin() + 4000));
	}
	printf("host function: %u calls, sum %u\n", calls, sum);
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));
	CHECK(cudaFreeHost(pinned));
	return 0;
}
