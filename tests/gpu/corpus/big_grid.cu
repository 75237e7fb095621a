// Grids with very many blocks in each dimension, every block counted once, and blocks of every
// shape.

#include "check.h"

__global__ void count_blocks(unsigned long long *sums)
{
	if (threadIdx.x + threadIdx.y + threadIdx.z == 0) {
		atomicAdd(&sums[blockIdx.x % 64], 1ull);
		atomicAdd(&sums[64 + blockIdx.x % 64],
			(unsigned long long)blockIdx.x + blockIdx.y * 3ull + blockIdx.z * 7ull);
	}
}

__global__ void count_threads(unsigned *out)
{
	unsigned rank = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;

	atomicAdd(out, rank + 1);
}

int main()
{
	const dim3 grids[] = {
		dim3(30000000), dim3(1, 65535), dim3(1, 1, 65535), dim3(7, 1000, 900), dim3(65537, 3, 5)};
	const dim3 blocks[] = {
		dim3(1024), dim3(1, 1024), dim3(16, 1, 64), dim3(8, 8, 16), dim3(3, 5, 7), dim3(1)};

	for (dim3 grid : grids) {
		buffer<unsigned long long> sums(128);
		unsigned long long total = 0, weight = 0;

		count_blocks<<<grid, 1>>>(sums);
		CHECK(cudaGetLastError());
		std::vector<unsigned long long> values = sums.read();
		for (int i = 0; i < 64; i++) {
			total += values[i];
			weight += values[64 + i];
		}
		printf("grid %u %u %u: %llu blocks, weight %llu\n", grid.x, grid.y, grid.z, total, weight);
		EXPECT(total == (unsigned long long)grid.x * grid.y * grid.z);
	}
	for (dim3 block : blocks) {
		buffer<unsigned> out(1);
		unsigned threads = block.x * block.y * block.z;

		count_threads<<<11, block>>>(out);
		CHECK(cudaGetLastError());
		EXPECT(out.read()[0] == 11 * (threads * (threads + 1) / 2));
		printf("block %u %u %u: %u\n", block.x, block.y, block.z, out.read()[0]);
	}
	return 0;
}
