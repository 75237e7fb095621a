// Adds two vectors: allocation, copies both ways, one launch.

#include "check.h"

__global__ void add(const float *a, const float *b, float *sum, size_t count)
{
	size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;

	if (i < count)
		sum[i] = a[i] + b[i];
}

int main()
{
	const size_t count = 1000003;
	std::vector<float> a = random_floats(count, 1), b = random_floats(count, 2), sum;
	buffer<float> device_a(a), device_b(b), device_sum(count);

	add<<<(unsigned)((count + 255) / 256), 256>>>(device_a, device_b, device_sum, count);
	CHECK(cudaGetLastError());
	sum = device_sum.read();
	for (size_t i = 0; i < count; i++)
		EXPECT(sum[i] == a[i] + b[i]);
	report("sum", sum);
	return 0;
}
