// The device is reset and used again: memory is gone, variables are as at the start, new streams
// and events work.
//
// alone: it compares how much memory is free

#include "check.h"

__device__ int counter = 10;
__constant__ int factor = 2;

__global__ void bump(int *out)
{
	counter += factor;
	*out = counter;
}

int main()
{
	unsigned flags;
	int active;
	size_t free_before, free_after, total;

	CHECK(cudaMemGetInfo(&free_before, &total));
	for (int round = 0; round < 3; round++) {
		int *out, value, large = 5;
		void *bulk;
		cudaStream_t stream;
		cudaEvent_t event;

		CHECK(cudaMalloc(&out, sizeof(int)));
		CHECK(cudaMalloc(&bulk, 512 << 20)); // never freed: the reset does it
		CHECK(cudaStreamCreate(&stream));
		CHECK(cudaEventCreate(&event));
		bump<<<1, 1, 0, stream>>>(out);
		CHECK(cudaGetLastError());
		CHECK(cudaMemcpyToSymbolAsync(
			factor, &large, sizeof(int), 0, cudaMemcpyHostToDevice, stream));
		bump<<<1, 1, 0, stream>>>(out);
		CHECK(cudaGetLastError());
		CHECK(cudaEventRecord(event, stream));
		CHECK(cudaEventSynchronize(event));
		CHECK(cudaMemcpy(&value, out, sizeof(int), cudaMemcpyDeviceToHost));
		printf("round %d: %d\n", round, value);
		EXPECT(value == 17);
		CHECK(cudaDeviceReset());
		CHECK(cuDevicePrimaryCtxGetState(0, &flags, &active));
		printf("active after reset: %d\n", active);
	}
	CHECK(cudaMemGetInfo(&free_after, &total));
	printf("memory is back: %s\n", free_after + (256 << 20) > free_before ? "yes" : "no");
	return 0;
}
