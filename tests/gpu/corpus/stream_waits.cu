// A token goes round a ring of streams by events alone; waits for unrecorded events and for
// re-recorded ones.

#include "check.h"

__global__ void step(int *log, int *next, int stamp)
{
	log[(*next)++] = stamp; // no atomics: the streams' waits alone put the steps in order
}

int main()
{
	const int streams = 8, rounds = 100;
	cudaStream_t stream[streams];
	cudaEvent_t done[streams], unused;
	buffer<int> log(streams * rounds), next(1);

	CHECK(cudaEventCreateWithFlags(&unused, cudaEventDisableTiming));
	for (int i = 0; i < streams; i++) {
		CHECK(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
		CHECK(cudaEventCreateWithFlags(&done[i], cudaEventDisableTiming));
		CHECK(cudaStreamWaitEvent(stream[i], unused, 0));
	}
	for (int round = 0; round < rounds; round++)
		for (int i = 0; i < streams; i++) {
			if (round > 0 || i > 0)
				CHECK(cudaStreamWaitEvent(stream[i], done[(i + streams - 1) % streams], 0));
			step<<<1, 1, 0, stream[i]>>>(log, next, round * streams + i);
			CHECK(cudaEventRecord(done[i], stream[i]));
		}
	CHECK(cudaGetLastError());
	std::vector<int> order = log.read();
	for (int i = 0; i < streams * rounds; i++)
		EXPECT(order[i] == i);
	report("order", order);
	for (int i = 0; i < streams; i++) {
		CHECK(cudaEventDestroy(done[i]));
		CHECK(cudaStreamDestroy(stream[i]));
	}
	return 0;
}
