// Streams destroyed while they have work: the call returns at once and the work is done all the
// same.

#include "check.h"

__global__ void hold(const int *gate, int *word)
{
	if (spin_until(gate, 1))
		atomicAdd(word, 1);
}

int main()
{
	buffer<int> word(1);
	int *gate;

	CHECK(cudaHostAlloc(&gate, sizeof(int), cudaHostAllocMapped));
	*(volatile int *)gate = 1;
	hold<<<1, 1>>>(gate, word);
	CHECK(cudaGetLastError());
	CHECK(cudaDeviceSynchronize());
	*(volatile int *)gate = 0;
	for (int i = 0; i < 10; i++) {
		cudaStream_t stream;

		CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
		hold<<<1, 1, 0, stream>>>(gate, word);
		CHECK(cudaGetLastError());
		CHECK(cudaStreamDestroy(stream));
	}
	printf("all destroyed\n");
	*(volatile int *)gate = 1;
	CHECK(cudaDeviceSynchronize());
	printf("done %d\n", word.read()[0]);
	EXPECT(word.read()[0] == 11);
	for (int i = 0; i < 1000; i++) { // streams come and go
		cudaStream_t stream;

		CHECK(cudaStreamCreate(&stream));
		hold<<<1, 1, 0, stream>>>(gate, word);
		CHECK(cudaGetLastError());
		CHECK(cudaStreamDestroy(stream));
	}
	CHECK(cudaDeviceSynchronize());
	printf("done %d\n", word.read()[0]);
	CHECK(cudaFreeHost(gate));
	return 0;
}
