// Thread block clusters: a histogram spread over the shared memory of a cluster's blocks, its size
// fixed or given at launch.

#include "check.h"

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

const int bins = 1024;

static __device__ void count_values(const uint32_t *data, int count, unsigned *histogram)
{
	extern __shared__ unsigned part[];
	cg::cluster_group cluster = cg::this_cluster();
	int blocks = (int)cluster.num_blocks(), share = bins / blocks;

	for (int i = threadIdx.x; i < share; i += blockDim.x)
		part[i] = 0;
	cluster.sync();
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
		int bin = (int)(data[i] % bins);

		atomicAdd(cluster.map_shared_rank(part, bin / share) + bin % share, 1u);
	}
	cluster.sync();
	for (int i = threadIdx.x; i < share; i += blockDim.x)
		atomicAdd(histogram + cluster.block_rank() * share + i, part[i]);
}

__global__ void flexible(const uint32_t *data, int count, unsigned *histogram)
{
	count_values(data, count, histogram);
}

__global__ void __cluster_dims__(2, 1, 1) fixed(const uint32_t *data, int count, unsigned *histogram)
{
	count_values(data, count, histogram);
}

/* The size of clusters that a captured kernel's node has, and one that was added. */
static void print_nodes(const uint32_t *data, int count, unsigned *histogram)
{
	void *arguments[] = {&data, &count, &histogram};
	cudaKernelNodeParams params = {};
	cudaKernelNodeAttrValue value = {};
	cudaGraph_t graph, captured;
	cudaGraphNode_t node;
	cudaStream_t stream;
	size_t one = 1;

	params.func = (void *)fixed;
	params.gridDim = dim3(64);
	params.blockDim = dim3(256);
	params.sharedMemBytes = bins / 2 * sizeof(unsigned);
	params.kernelParams = arguments;
	CHECK(cudaGraphCreate(&graph, 0));
	CHECK(cudaGraphAddKernelNode(&node, graph, NULL, 0, &params));
	CHECK(cudaGraphKernelNodeGetAttribute(node, cudaLaunchAttributeClusterDimension, &value));
	printf("added: clusters of %u\n", value.clusterDim.x);
	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	fixed<<<64, 256, bins / 2 * sizeof(unsigned), stream>>>(data, count, histogram);
	CHECK(cudaStreamEndCapture(stream, &captured));
	CHECK(cudaGraphGetNodes(captured, &node, &one));
	CHECK(cudaGraphKernelNodeGetAttribute(node, cudaLaunchAttributeClusterDimension, &value));
	printf("captured: clusters of %u\n", value.clusterDim.x);
	for (cudaGraph_t each : {graph, captured}) {
		cudaGraphExec_t exec;

		CHECK(cudaGraphInstantiate(&exec, each, 0));
		CHECK(cudaGraphLaunch(exec, stream));
		CHECK(cudaStreamSynchronize(stream));
		CHECK(cudaGraphExecDestroy(exec));
		CHECK(cudaGraphDestroy(each));
	}
	CHECK(cudaStreamDestroy(stream));
}

int main()
{
	const int count = 1 << 20;
	std::vector<uint32_t> data = random_words(count);
	std::vector<unsigned> model(bins, 0);
	buffer<uint32_t> device(data);

	for (uint32_t value : data)
		model[value % bins]++;
	for (unsigned size : {1, 2, 4, 8}) {
		buffer<unsigned> histogram(bins);
		cudaLaunchAttribute attribute = {};
		cudaLaunchConfig_t config = {};

		attribute.id = cudaLaunchAttributeClusterDimension;
		attribute.val.clusterDim = {size, 1, 1};
		config.gridDim = dim3(64);
		config.blockDim = dim3(256);
		config.dynamicSmemBytes = bins / size * sizeof(unsigned);
		config.attrs = &attribute;
		config.numAttrs = 1;
		CHECK(cudaLaunchKernelEx(
			&config, flexible, (const uint32_t *)device.at, count, histogram.at));
		EXPECT(histogram.read() == model);
	}
	buffer<unsigned> histogram(bins);
	fixed<<<64, 256, bins / 2 * sizeof(unsigned)>>>(device, count, histogram);
	CHECK(cudaGetLastError());
	EXPECT(histogram.read() == model);
	report("histogram", model);
	fixed<<<63, 256, bins / 2 * sizeof(unsigned)>>>(device, count, histogram);
	printf("odd grid: %s\n", name_of(cudaGetLastError()));
	buffer<unsigned> twice(bins);
	print_nodes(device, count, twice);
	for (unsigned &value : model)
		value *= 2;
	EXPECT(twice.read() == model);
	return 0;
}
