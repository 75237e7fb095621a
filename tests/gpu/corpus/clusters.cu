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
	return 0;
}
