// A kernel that launches 5000 others which cannot end before it has: more than a context has room
// for at first, and as many as the program has asked for.

#include "check.h"

constexpr unsigned launches = 5000;

__global__ void child(unsigned *done, const int *gate)
{
	spin_until(gate, 1);
	atomicAdd(done, 1);
}

__global__ void parent(unsigned *done, unsigned *failed, int *gate)
{
	for (unsigned i = 0; i < launches; i++) {
		child<<<1, 1>>>(done, gate);
		if (cudaGetLastError() != cudaSuccess)
			++*failed;
	}
	__threadfence_system();
	*(volatile int *)gate = 1;
}

int main()
{
	buffer<unsigned> counts(2);
	int *gate;
	size_t pending = 0;

	CHECK(cudaDeviceSetLimit(cudaLimitDevRuntimePendingLaunchCount, launches + 100));
	CHECK(cudaDeviceGetLimit(&pending, cudaLimitDevRuntimePendingLaunchCount));
	printf("room for %zu launches\n", pending);
	CHECK(cudaMalloc(&gate, sizeof(*gate)));
	CHECK(cudaMemset(gate, 0, sizeof(*gate)));
	CHECK(cudaMemset(counts, 0, 2 * sizeof(unsigned)));
	parent<<<1, 1>>>(counts, counts + 1, gate);
	CHECK(cudaGetLastError());
	CHECK(cudaDeviceSynchronize());
	auto values = counts.read();
	printf("done %u, failed %u\n", values[0], values[1]);
	CHECK(cudaFree(gate));
	return 0;
}
