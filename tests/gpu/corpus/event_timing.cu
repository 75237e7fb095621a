// Times between events: order and additivity, and what unrecorded and unfinished events say. No
// time is printed.

#include "check.h"

__global__ void hold(const int *gate)
{
	spin_until(gate, 1);
}

__global__ void work()
{
	spin_for(3000000);
}

int main()
{
	cudaEvent_t event[4], never;
	cudaStream_t stream;
	float first, second, both, none = 0;
	int *gate;

	CHECK(cudaHostAlloc(&gate, sizeof(int), cudaHostAllocMapped));
	*(volatile int *)gate = 1;
	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaEventCreate(&never));
	for (auto &each : event)
		CHECK(cudaEventCreate(&each));
	hold<<<1, 1, 0, stream>>>(gate);
	work<<<1, 1, 0, stream>>>();
	CHECK(cudaGetLastError());
	CHECK(cudaStreamSynchronize(stream));
	for (int i = 0; i < 3; i++) {
		CHECK(cudaEventRecord(event[i], stream));
		if (i < 2)
			work<<<1, 1, 0, stream>>>();
		CHECK(cudaGetLastError());
	}
	CHECK(cudaEventSynchronize(event[2]));
	CHECK(cudaEventElapsedTime(&first, event[0], event[1]));
	CHECK(cudaEventElapsedTime(&second, event[1], event[2]));
	CHECK(cudaEventElapsedTime(&both, event[0], event[2]));
	printf("each at least 2.9 ms: %s\n", first > 2.9f && second > 2.9f ? "yes" : "no");
	printf("each below 1 s: %s\n", first < 1000 && second < 1000 ? "yes" : "no");
	printf("they add up: %s\n",
		both - first - second < 0.1f && first + second - both < 0.1f ? "yes" : "no");
	CHECK(cudaEventElapsedTime(&both, event[2], event[0]));
	printf("backwards: %s\n", both < 0 ? "negative" : "not negative");
	printf("never recorded: %s\n", name_of(cudaEventElapsedTime(&none, event[0], never)));
	printf("last error: %s\n", name_of(cudaGetLastError()));
	*(volatile int *)gate = 0;
	hold<<<1, 1, 0, stream>>>(gate);
	CHECK(cudaGetLastError());
	CHECK(cudaEventRecord(event[3], stream));
	printf("unfinished: %s\n", name_of(cudaEventElapsedTime(&none, event[0], event[3])));
	printf("query: %s\n", name_of(cudaEventQuery(event[3])));
	printf("last error: %s\n", name_of(cudaGetLastError()));
	*(volatile int *)gate = 1;
	CHECK(cudaEventSynchronize(event[3]));
	printf("query: %s\n", name_of(cudaEventQuery(event[3])));
	return 0;
}
