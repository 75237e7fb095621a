// How large clusters can be and how many of them fit, with the sizes that need permission.

#include "check.h"

__global__ void kernel(int *out)
{
	extern __shared__ int part[];

	part[threadIdx.x] = (int)blockIdx.x;
	__syncthreads();
	if (out)
		out[blockIdx.x] = part[blockDim.x - 1];
}

int main()
{
	for (int permission : {0, 1}) {
		CHECK(cudaFuncSetAttribute(
			kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, permission));
		for (size_t shared : {4096, 40000}) {
			cudaLaunchAttribute attribute = {};
			cudaLaunchConfig_t config = {};
			int largest, fit;

			attribute.id = cudaLaunchAttributeClusterDimension;
			config.gridDim = dim3(64);
			config.blockDim = dim3(512);
			config.dynamicSmemBytes = shared;
			config.attrs = &attribute;
			CHECK(cudaOccupancyMaxPotentialClusterSize(&largest, kernel, &config));
			printf("permission %d, shared %zu: largest %d;", permission, shared, largest);
			config.numAttrs = 1;
			for (unsigned size = 1; size <= 16; size *= 2) {
				attribute.val.clusterDim = {size, 1, 1};
				cudaError_t error = cudaOccupancyMaxActiveClusters(&fit, kernel, &config);
				if (error == cudaSuccess)
					printf(" %u: %d", size, fit);
				else
					printf(" %u: %s", size, name_of(cudaGetLastError()));
			}
			printf("\n");
			attribute.val.clusterDim = {16, 1, 1};
			int *nowhere = nullptr;
			printf("a launch of 16: %s\n", name_of(cudaLaunchKernelEx(&config, kernel, nowhere)));
			cudaGetLastError();
			CHECK(cudaDeviceSynchronize());
		}
	}
	return 0;
}
