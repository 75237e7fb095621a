// Atomics of system scope on pinned host memory: kernels of two streams and a host thread reads
// meanwhile.

#include "check.h"

#include <atomic>
#include <cuda/atomic>
#include <thread>

__global__ void bump(
	unsigned *word, unsigned long long *wide, cuda::atomic<int, cuda::thread_scope_system> *counter)
{
	atomicAdd_system(word, 1u);
	atomicAdd_system(wide, 3ull);
	atomicMax_system(word + 1, blockIdx.x * blockDim.x + threadIdx.x);
	counter->fetch_add(2, cuda::std::memory_order_relaxed);
}

int main()
{
	const unsigned rounds = 20000;
	unsigned *words;
	cudaStream_t stream[2];

	CHECK(cudaHostAlloc(&words, 4096, cudaHostAllocMapped));
	memset(words, 0, 4096);
	auto *wide = (unsigned long long *)(words + 64);
	auto *counter = (cuda::atomic<int, cuda::thread_scope_system> *)(words + 128);
	for (auto &each : stream)
		CHECK(cudaStreamCreateWithFlags(&each, cudaStreamNonBlocking));
	for (auto each : stream)
		for (int i = 0; i < 5; i++)
			bump<<<32, 64, 0, each>>>(words, wide, counter);
	CHECK(cudaGetLastError());
	std::thread host([&] {
		for (unsigned i = 0; i < rounds; i++) {
			__atomic_fetch_add(words + 32, 1u, __ATOMIC_RELAXED); // a word of its own
			counter->load();
		}
	});
	host.join();
	for (auto each : stream)
		CHECK(cudaStreamSynchronize(each));
	printf("word %u, highest %u, wide %llu, counter %d, host %u\n", words[0], words[1], *wide,
		counter->load(), words[32]);
	EXPECT(words[0] == 20480 && *wide == 61440 && counter->load() == 40960);
	CHECK(cudaFreeHost(words));
	return 0;
}
