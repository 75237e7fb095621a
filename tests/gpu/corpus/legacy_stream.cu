// The legacy default stream waits for blocking streams and they for it; a non-blocking stream goes
// past both.

#include "check.h"

__global__ void hold(const int *gate, int *value)
{
	*value = spin_until(gate, 1) ? 41 : -1;
}

__global__ void follow(const int *from, int *to)
{
	*to = *from + 1;
}

int main()
{
	int *gate;
	cudaStream_t blocking, second, apart;
	buffer<int> chain(4), alone(2);

	CHECK(cudaHostAlloc(&gate, sizeof(int), cudaHostAllocMapped));
	CHECK(cudaStreamCreate(&blocking));
	CHECK(cudaStreamCreate(&second));
	CHECK(cudaStreamCreateWithFlags(&apart, cudaStreamNonBlocking));
	*(volatile int *)gate = 1;
	hold<<<1, 1, 0, blocking>>>(gate, chain); // every kernel is loaded before one waits
	follow<<<1, 1, 0, apart>>>(alone, alone + 1);
	CHECK(cudaGetLastError());
	CHECK(cudaDeviceSynchronize());
	*(volatile int *)gate = 0;

	hold<<<1, 1, 0, blocking>>>(gate, chain);
	follow<<<1, 1>>>(chain, chain + 1);
	follow<<<1, 1, 0, second>>>(chain + 1, chain + 2);
	follow<<<1, 1, 0, apart>>>(alone, alone + 1);
	CHECK(cudaGetLastError());
	CHECK(cudaStreamSynchronize(apart));
	printf("held: %s\n", name_of(cudaStreamQuery(blocking)));
	printf("legacy: %s\n", name_of(cudaStreamQuery(0)));
	printf("second: %s\n", name_of(cudaStreamQuery(second)));
	printf("apart: %s\n", name_of(cudaStreamQuery(apart)));
	*(volatile int *)gate = 1;
	CHECK(cudaStreamSynchronize(second));
	std::vector<int> values = chain.read();
	printf("chain %d %d %d, alone %d\n", values[0], values[1], values[2], alone.read()[1]);
	EXPECT(values[2] == 43);
	CHECK(cudaFreeHost(gate));
	return 0;
}
