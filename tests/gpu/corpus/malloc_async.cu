// Stream-ordered allocation: a chain in one stream, memory handed from stream to stream by events,
// reuse of freed memory.

#include "check.h"

__global__ void fill(int *data, int count, int value)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
		data[i] = value;
}

__global__ void add_up(const int *data, int count, unsigned long long *sum)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
		atomicAdd(sum, (unsigned long long)data[i]);
}

int main()
{
	const int count = 300000;
	cudaStream_t first, second;
	cudaEvent_t ready, done;
	buffer<unsigned long long> sum(2);
	int *data;

	CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
	CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
	CHECK(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming));
	CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
	for (int round = 1; round <= 50; round++) {
		CHECK(cudaMallocAsync(&data, count * sizeof(int), first));
		fill<<<32, 256, 0, first>>>(data, count, round);
		add_up<<<32, 256, 0, first>>>(data, count, sum);
		CHECK(cudaGetLastError());
		CHECK(cudaEventRecord(ready, first));
		CHECK(cudaStreamWaitEvent(second, ready, 0));
		add_up<<<32, 256, 0, second>>>(data, count, sum + 1);
		CHECK(cudaGetLastError());
		if (round % 2) {
			CHECK(cudaFreeAsync(data, second));
		} else {
			CHECK(cudaEventRecord(done, second));
			CHECK(cudaStreamWaitEvent(first, done, 0));
			CHECK(cudaFreeAsync(data, first));
		}
	}
	CHECK(cudaStreamSynchronize(first));
	CHECK(cudaStreamSynchronize(second));
	for (auto each : sum.read()) {
		printf("sum %llu\n", each);
		EXPECT(each == 300000ull * (50 * 51 / 2));
	}
	CHECK(cudaMallocAsync(&data, 64, first));
	CHECK(cudaStreamSynchronize(first));
	CHECK(cudaFree(data)); // the other way of freeing is allowed
	CHECK(cudaFreeAsync(nullptr, first));
	return 0;
}
