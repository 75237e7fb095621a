// One event recorded again and again, waits that hold to the record they saw, events destroyed
// while they are pending.

#include "check.h"

__global__ void hold(const int *gate, int *word, int value)
{
	*word = spin_until(gate, 1) ? value : -1;
}

__global__ void copy(const int *from, int *to)
{
	*to = *from;
}

int main()
{
	cudaStream_t first, second;
	cudaEvent_t event;
	buffer<int> words(4);
	int *gate;

	CHECK(cudaHostAlloc(&gate, sizeof(int), cudaHostAllocMapped));
	CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
	CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
	CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	*(volatile int *)gate = 1;
	for (int i = 0; i < 1000; i++) {
		hold<<<1, 1, 0, first>>>(gate, words, i);
		CHECK(cudaGetLastError());
		CHECK(cudaEventRecord(event, first));
		CHECK(cudaStreamWaitEvent(second, event, 0));
		copy<<<1, 1, 0, second>>>(words, words + 1);
		CHECK(cudaGetLastError());
		CHECK(cudaEventRecord(event, second));
		CHECK(cudaStreamWaitEvent(first, event, 0));
	}
	CHECK(cudaEventSynchronize(event));
	printf("word %d\n", words.read()[1]);
	EXPECT(words.read()[1] == 999);

	/* The second stream waits for the first record only; the event is recorded again behind a
	 * kernel that waits. */
	CHECK(cudaEventRecord(event, first));
	CHECK(cudaStreamWaitEvent(second, event, 0));
	*(volatile int *)gate = 0;
	hold<<<1, 1, 0, first>>>(gate, words + 2, 5);
	CHECK(cudaGetLastError());
	CHECK(cudaEventRecord(event, first));
	CHECK(cudaStreamSynchronize(second));
	printf("event: %s\n", name_of(cudaEventQuery(event)));
	CHECK(cudaStreamWaitEvent(second, event, 0));
	copy<<<1, 1, 0, second>>>(words + 2, words + 3);
	CHECK(cudaGetLastError());
	CHECK(cudaEventDestroy(event)); // pending, and awaited by a stream
	printf("second: %s\n", name_of(cudaStreamQuery(second)));
	*(volatile int *)gate = 1;
	CHECK(cudaStreamSynchronize(second));
	printf("word %d\n", words.read()[3]);
	EXPECT(words.read()[3] == 5);
	for (int i = 0; i < 5000; i++) { // events by the thousand
		CHECK(cudaEventCreate(&event));
		CHECK(cudaEventRecord(event, first));
		CHECK(cudaEventDestroy(event));
	}
	CHECK(cudaStreamSynchronize(first));
	CHECK(cudaFreeHost(gate));
	return 0;
}
