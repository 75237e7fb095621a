// After a fault a process resets its device: what the reset returns and what works then, in a child
// process.
//
// alone: it faults on purpose

#include "check.h"

__global__ void far_away(int *at)
{
	at[(size_t)1 << 40] = 1;
}

__global__ void right(int *at)
{
	*at = 7;
}

static int fault_and_reset()
{
	int *word, value = 0;

	CHECK(cudaMalloc(&word, 64));
	far_away<<<1, 1>>>(word);
	printf("wait: %s\n", name_of(cudaDeviceSynchronize()));
	cudaError_t reset = cudaDeviceReset();
	printf("reset: %s\n", name_of(reset));
	printf("last: %s\n", name_of(cudaGetLastError()));
	cudaError_t allocated = cudaMalloc(&word, 64);
	printf("allocation: %s\n", name_of(allocated));
	if (allocated != cudaSuccess)
		return 4;
	right<<<1, 1>>>(word);
	printf("launch: %s\n", name_of(cudaGetLastError()));
	printf("copy: %s\n", name_of(cudaMemcpy(&value, word, sizeof(int), cudaMemcpyDeviceToHost)));
	printf("value %d\n", value);
	return 5;
}

int main()
{
	printf("status %d\n", in_child(fault_and_reset));
	return 0;
}
