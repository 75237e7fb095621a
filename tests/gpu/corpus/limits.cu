// Limits of the device: their first values, changes, and a kernel whose recursion needs the larger
// stack.

#include "check.h"

__device__ int sum_to(int n, const int *ones)
{
	volatile int room[64];

	for (int i = 0; i < 64; i++)
		room[i] = n + i;
	return n == 0 ? 0 : room[n % 64] - n % 64 - n + n + sum_to(n - ones[0], ones);
}

__global__ void recurse(int n, const int *ones, int *out)
{
	*out = sum_to(n, ones);
}

int main()
{
	const cudaLimit limits[] = {cudaLimitStackSize, cudaLimitPrintfFifoSize, cudaLimitMallocHeapSize,
		cudaLimitDevRuntimePendingLaunchCount, cudaLimitMaxL2FetchGranularity,
		cudaLimitPersistingL2CacheSize};
	buffer<int> ones(std::vector<int>(1, 1)), out(1);
	size_t value;

	for (cudaLimit limit : limits) {
		CHECK(cudaDeviceGetLimit(&value, limit));
		printf("limit %d: %zu\n", (int)limit, value);
	}
	CHECK(cudaDeviceSetLimit(cudaLimitStackSize, 16384));
	CHECK(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 4 << 20));
	CHECK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 16 << 20));
	CHECK(cudaDeviceSetLimit(cudaLimitMaxL2FetchGranularity, 64));
	for (cudaLimit limit : limits) {
		CHECK(cudaDeviceGetLimit(&value, limit));
		printf("limit %d: %zu\n", (int)limit, value);
	}
	recurse<<<1, 1>>>(30, ones, out); // some 9 KiB of stack
	CHECK(cudaGetLastError());
	printf("sum %d\n", out.read()[0]);
	EXPECT(out.read()[0] == 465);
	printf("unknown limit: %s\n", name_of(cudaDeviceGetLimit(&value, (cudaLimit)99)));
	printf("a stack of 1 TiB: %s\n", name_of(cudaDeviceSetLimit(cudaLimitStackSize, (size_t)1 << 40)));
	return 0;
}
