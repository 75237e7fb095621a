// Events of every kind: without timing, with blocking waits, for other processes; fresh ones;
// refused flags.

#include "check.h"

__global__ void work()
{
	spin_for(100000);
}

int main()
{
	const unsigned kinds[] = {cudaEventDefault, cudaEventBlockingSync, cudaEventDisableTiming,
		cudaEventBlockingSync | cudaEventDisableTiming,
		cudaEventDisableTiming | cudaEventInterprocess, cudaEventInterprocess, 0x40};
	cudaEvent_t event, other;
	float ms;

	CHECK(cudaEventCreate(&other));
	CHECK(cudaEventRecord(other));
	for (unsigned flags : kinds) {
		cudaError_t made = cudaEventCreateWithFlags(&event, flags);

		printf("flags %u: %s", flags, name_of(made));
		if (made != cudaSuccess) {
			printf(", last %s\n", name_of(cudaGetLastError()));
			continue;
		}
		printf(", fresh %s", name_of(cudaEventQuery(event)));
		CHECK(cudaEventSynchronize(event));
		work<<<1, 1>>>();
		CHECK(cudaGetLastError());
		CHECK(cudaEventRecordWithFlags(event, 0, cudaEventRecordDefault));
		CHECK(cudaEventSynchronize(event));
		printf(", query %s", name_of(cudaEventQuery(event)));
		printf(", time %s\n", name_of(cudaEventElapsedTime(&ms, other, event)));
		cudaGetLastError();
		CHECK(cudaEventDestroy(event));
	}
	printf("wait flags: %s\n", name_of(cudaStreamWaitEvent(0, other, 0x10)));
	cudaGetLastError();
	printf("no event: %s\n", name_of(cudaEventRecord(nullptr)));
	printf("no event: %s\n", name_of(cudaEventQuery(nullptr)));
	cudaGetLastError();
	CHECK(cudaDeviceSynchronize());
	return 0;
}
