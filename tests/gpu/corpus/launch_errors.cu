// Launches that are refused at once: dimensions, shared memory, functions, clusters, cooperation.
// None of them stays.

#include "check.h"

__global__ void nothing(int)
{
}

static void show(const char *label)
{
	cudaError_t error = cudaGetLastError();

	printf("%s: %s (%s)\n", label, name_of(error), cudaGetErrorString(error));
	CHECK(cudaDeviceSynchronize());
}

int main()
{
	int value = 0;
	void *arguments[] = {&value};
	cudaLaunchAttribute attribute = {};
	cudaLaunchConfig_t config = {};

	CHECK(cudaFree(nullptr));
	nothing<<<0, 32>>>(0);
	show("no blocks");
	nothing<<<1, 0>>>(0);
	show("no threads");
	nothing<<<1, 1025>>>(0);
	show("1025 threads");
	nothing<<<1, dim3(1, 1, 65)>>>(0);
	show("65 threads deep");
	nothing<<<dim3(1, 65536), 1>>>(0);
	show("65536 blocks high");
	nothing<<<dim3(1, 1, 65536), 1>>>(0);
	show("65536 blocks deep");
	nothing<<<1, 1, 64 * 1024>>>(0);
	show("64 KiB of shared memory");
	nothing<<<1, 1, (size_t)1 << 33>>>(0);
	show("8 GiB of shared memory");
	printf("returned: %s\n", name_of(cudaLaunchKernel((void *)main, dim3(1), dim3(1), arguments, 0, 0)));
	show("a host function");
	printf("returned: %s\n",
		name_of(cudaLaunchKernel((void *)nullptr, dim3(1), dim3(1), arguments, 0, 0)));
	show("no function");
	printf("returned: %s\n", name_of(cudaLaunchCooperativeKernel(
					 (void *)nothing, dim3(1 << 20), dim3(1024), arguments, 0, 0)));
	show("a cooperative giant");
	attribute.id = cudaLaunchAttributeClusterDimension;
	attribute.val.clusterDim = {3, 1, 1};
	config.gridDim = dim3(8);
	config.blockDim = dim3(32);
	config.attrs = &attribute;
	config.numAttrs = 1;
	printf("returned: %s\n", name_of(cudaLaunchKernelEx(&config, nothing, 0)));
	show("clusters of 3 in 8 blocks");
	config.gridDim = dim3(64);
	attribute.val.clusterDim = {32, 1, 1};
	printf("returned: %s\n", name_of(cudaLaunchKernelEx(&config, nothing, 0)));
	show("clusters of 32");
	nothing<<<1, 1>>>(0);
	show("a right one");
	printf("driver, no blocks: ");
	cudaFunction_t function;
	CHECK(cudaGetFuncBySymbol(&function, (const void *)nothing));
	printf("%s\n", name_of(cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr)));
	printf("driver, no function: ");
	printf("%s\n", name_of(cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr)));
	return 0;
}
