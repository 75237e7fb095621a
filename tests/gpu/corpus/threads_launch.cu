// Eight threads launch, copy and allocate at once: in one shared stream, in their own, in the
// default one.

#include "check.h"

#include <thread>

__global__ void bump(unsigned long long *sum, unsigned by)
{
	atomicAdd(sum, (unsigned long long)by);
}

int main()
{
	const int threads = 8, rounds = 300;
	cudaStream_t shared;
	std::vector<std::thread> all;
	buffer<unsigned long long> sums(3);
	unsigned long long model = 0;

	CHECK(cudaStreamCreate(&shared));
	for (int t = 0; t < threads; t++)
		all.emplace_back([&, t] {
			cudaStream_t own;

			CHECK(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
			for (int i = 0; i < rounds; i++) {
				unsigned by = t * 1000 + i;
				int back = 0, value = (int)by;
				int *word;

				bump<<<2, 32, 0, shared>>>(sums, by);
				bump<<<2, 32, 0, own>>>(sums + 1, by);
				bump<<<2, 32>>>(sums + 2, by);
				CHECK(cudaGetLastError());
				if (i % 10)
					continue;
				CHECK(cudaMalloc(&word, sizeof(int)));
				CHECK(cudaMemcpy(word, &value, sizeof(int), cudaMemcpyHostToDevice));
				CHECK(cudaMemcpy(&back, word, sizeof(int), cudaMemcpyDeviceToHost));
				EXPECT(back == value);
				CHECK(cudaFree(word));
			}
			CHECK(cudaStreamSynchronize(own));
			CHECK(cudaStreamDestroy(own));
			CHECK(cudaGetLastError());
		});
	for (auto &thread : all)
		thread.join();
	for (int t = 0; t < threads; t++)
		for (int i = 0; i < rounds; i++)
			model += 64ull * (t * 1000 + i);
	for (auto sum : sums.read()) {
		printf("sum %llu\n", sum);
		EXPECT(sum == model);
	}
	return 0;
}
