// A kernel works on pinned host memory in place, and talks with the host through it while it runs.

#include "check.h"

__global__ void add(const float *a, const float *b, float *sum, int count)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < count)
		sum[i] = a[i] + b[i];
}

__global__ void converse(int *question, volatile int *answer, int rounds)
{
	for (int round = 1; round <= rounds; round++) {
		if (!spin_until(question, round))
			return;
		*answer = 3 * round;
		__threadfence_system();
	}
}

int main()
{
	const int count = 100000, rounds = 200;
	float *a, *device_a;
	int *words;

	CHECK(cudaHostAlloc(&a, 3 * count * sizeof(float), cudaHostAllocMapped));
	CHECK(cudaHostGetDevicePointer(&device_a, a, 0));
	for (int i = 0; i < 2 * count; i++)
		a[i] = (float)i / 3;
	add<<<(count + 255) / 256, 256>>>(device_a, device_a + count, device_a + 2 * count, count);
	CHECK(cudaGetLastError());
	CHECK(cudaDeviceSynchronize());
	for (int i = 0; i < count; i++)
		EXPECT(a[2 * count + i] == a[i] + a[count + i]);
	report("sum", std::vector<float>(a + 2 * count, a + 3 * count));

	CHECK(cudaHostAlloc(&words, 256, cudaHostAllocMapped));
	volatile int *question = words, *answer = words + 32;
	*question = *answer = 0;
	converse<<<1, 1>>>(words, words + 32, rounds);
	CHECK(cudaGetLastError());
	for (int round = 1; round <= rounds; round++) {
		*question = round;
		EXPECT(wait_until([&] { return *answer == 3 * round; }));
	}
	CHECK(cudaDeviceSynchronize());
	printf("conversed, last answer %d\n", *answer);
	CHECK(cudaFreeHost(words));
	CHECK(cudaFreeHost(a));
	return 0;
}
