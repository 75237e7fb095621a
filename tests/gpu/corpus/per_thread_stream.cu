// The default stream of each thread: one thread's is held by a kernel while another thread's goes
// on.
//
// options: -rdc=true --default-stream per-thread

#include "check.h"

#include <thread>

__global__ void hold(const int *gate, int *opened)
{
	*opened = spin_until(gate, 1);
}

__global__ void scale(int *data, int by)
{
	data[threadIdx.x] *= by;
}

int main()
{
	int *gate, *opened;
	buffer<int> mine(std::vector<int>(64, 3)), shared(std::vector<int>(64, 1));

	CHECK(cudaHostAlloc(&gate, 2 * sizeof(int), cudaHostAllocMapped));
	gate[0] = 1;
	gate[1] = 0;
	opened = gate + 1;
	hold<<<1, 1>>>(gate, opened); // both kernels are loaded before one waits
	scale<<<1, 64>>>(mine, 1);
	CHECK(cudaGetLastError());
	CHECK(cudaDeviceSynchronize());
	*(volatile int *)gate = 0;
	*opened = 0;
	std::thread holder([&] {
		hold<<<1, 1>>>(gate, opened);
		CHECK(cudaGetLastError());
	});
	holder.join();
	scale<<<1, 64>>>(mine, 7);
	CHECK(cudaGetLastError());
	CHECK(cudaStreamSynchronize(0));
	printf("mine finished, the other waits: %s\n", *(volatile int *)opened == 0 ? "yes" : "no");
	*(volatile int *)gate = 1;
	CHECK(cudaDeviceSynchronize());
	printf("opened %d, mine %d\n", *opened, mine.read()[0]);
	/* The legacy stream waits for those of all threads, and they for it. */
	std::vector<std::thread> threads;
	for (int by = 2; by < 5; by++)
		threads.emplace_back([&, by] {
			scale<<<1, 64, 0, cudaStreamLegacy>>>(shared, by);
			CHECK(cudaGetLastError());
		});
	for (auto &thread : threads)
		thread.join();
	scale<<<1, 64, 0, cudaStreamPerThread>>>(shared, 5);
	CHECK(cudaGetLastError());
	CHECK(cudaStreamSynchronize(cudaStreamPerThread));
	printf("shared %d\n", shared.read()[63]);
	CHECK(cudaFreeHost(gate));
	return 0;
}
