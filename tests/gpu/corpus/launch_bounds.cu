// Kernels with launch bounds: their attributes, a launch within them and one beyond.

#include "check.h"

__global__ void __launch_bounds__(128, 4) narrow(float *data)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	for (int round = 0; round < 10; round++)
		data[i] = data[i] * 1.5f + (float)round;
}

__global__ void __launch_bounds__(1024) wide(float *data)
{
	data[blockIdx.x * blockDim.x + threadIdx.x] += 1;
}

int main()
{
	buffer<float> data(random_floats(1024 * 16));
	cudaFuncAttributes attributes;

	CHECK(cudaFuncGetAttributes(&attributes, narrow));
	printf("narrow: at most %d threads\n", attributes.maxThreadsPerBlock);
	CHECK(cudaFuncGetAttributes(&attributes, wide));
	printf("wide: at most %d threads\n", attributes.maxThreadsPerBlock);
	narrow<<<128, 128>>>(data);
	CHECK(cudaGetLastError());
	wide<<<16, 1024>>>(data);
	CHECK(cudaGetLastError());
	report("data", data.read());
	narrow<<<1, 129>>>(data);
	printf("129 threads: %s\n", name_of(cudaGetLastError()));
	wide<<<1, dim3(32, 32, 2)>>>(data);
	printf("2048 threads: %s\n", name_of(cudaGetLastError()));
	report("unchanged", data.read());
	return 0;
}
