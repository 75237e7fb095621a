// Memory from the heap on the device: its limit, allocation by each thread and by a block, freed by
// another kernel, exhaustion.

#include "check.h"

__device__ int *kept[64];

__global__ void by_each(int *out, int size)
{
	int *mine = (int *)malloc(size * sizeof(int)), sum = 0;

	if (mine == nullptr) {
		out[blockIdx.x * blockDim.x + threadIdx.x] = -1;
		return;
	}
	for (int i = 0; i < size; i++)
		mine[i] = threadIdx.x + i;
	for (int i = 0; i < size; i++)
		sum += mine[i];
	free(mine);
	out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

__global__ void keep(int size)
{
	if (threadIdx.x == 0)
		kept[blockIdx.x] = (int *)malloc(size * sizeof(int));
	__syncthreads();
	for (int i = threadIdx.x; kept[blockIdx.x] && i < size; i += blockDim.x)
		kept[blockIdx.x][i] = blockIdx.x * 1000 + i;
}

__global__ void give_back(int *out, int size)
{
	int sum = 0;

	for (int i = 0; kept[threadIdx.x] && i < size; i++)
		sum += kept[threadIdx.x][i];
	free(kept[threadIdx.x]);
	out[threadIdx.x] = sum;
}

__global__ void too_much(int *out)
{
	void *all = malloc((size_t)1 << 40);

	*out = all == nullptr;
	free(all);
}

int main()
{
	size_t limit;
	buffer<int> out(4096);

	CHECK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 64 << 20));
	CHECK(cudaDeviceGetLimit(&limit, cudaLimitMallocHeapSize));
	printf("heap at least as asked: %s\n", limit >= 64 << 20 ? "yes" : "no");
	by_each<<<32, 128>>>(out, 50);
	CHECK(cudaGetLastError());
	std::vector<int> sums = out.read();
	for (int i = 0; i < 4096; i++)
		EXPECT(sums[i] == 50 * (i % 128) + 49 * 50 / 2);
	report("by each", sums);
	keep<<<64, 32>>>(1000);
	give_back<<<1, 64>>>(out, 1000);
	CHECK(cudaGetLastError());
	report("kept", out.read());
	too_much<<<1, 1>>>(out);
	CHECK(cudaGetLastError());
	printf("too much gives nothing: %d\n", out.read()[0]);
	return 0;
}
