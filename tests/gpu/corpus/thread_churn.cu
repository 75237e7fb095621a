// Four hundred short threads, each with its own default stream, event and copy: threads come and go
// at a high rate.
//
// options: -rdc=true --default-stream per-thread

#include "check.h"

#include <thread>

__global__ void bump(unsigned *sum, unsigned by)
{
	atomicAdd(sum, by);
}

int main()
{
	buffer<unsigned> sum(1), cells(400);

	for (unsigned group = 0; group < 50; group++) {
		std::vector<std::thread> threads;

		for (unsigned t = 0; t < 8; t++)
			threads.emplace_back([&, group, t] {
				unsigned number = group * 8 + t, back = 0;
				cudaEvent_t event;

				CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
				bump<<<1, 32>>>(sum, number);
				CHECK(cudaGetLastError());
				CHECK(cudaMemcpyAsync(cells + number, &number, 4, cudaMemcpyHostToDevice));
				CHECK(cudaEventRecord(event));
				CHECK(cudaEventSynchronize(event));
				CHECK(cudaMemcpy(&back, cells + number, 4, cudaMemcpyDeviceToHost));
				EXPECT(back == number);
				CHECK(cudaEventDestroy(event));
			});
		for (auto &thread : threads)
			thread.join();
	}
	EXPECT(sum.read()[0] == 32u * (399 * 400 / 2));
	printf("sum %u\n", sum.read()[0]);
	report("cells", cells.read());
	return 0;
}
