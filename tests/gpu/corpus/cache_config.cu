// Cache preferences of the device and of a kernel, shared-memory carve-outs: accepted, remembered,
// without effect on results.

#include "check.h"

__global__ void rotate(const int *in, int *out)
{
	__shared__ int all[256];

	all[threadIdx.x] = in[threadIdx.x];
	__syncthreads();
	out[threadIdx.x] = all[(threadIdx.x + 1) % 256];
}

int main()
{
	const cudaFuncCache configurations[] = {cudaFuncCachePreferNone, cudaFuncCachePreferShared,
		cudaFuncCachePreferL1, cudaFuncCachePreferEqual};
	std::vector<int> ramp(256);
	cudaFuncCache now;
	cudaFuncAttributes attributes;

	for (int i = 0; i < 256; i++)
		ramp[i] = i;
	buffer<int> in(ramp), out(256);
	for (cudaFuncCache configuration : configurations) {
		CHECK(cudaDeviceSetCacheConfig(configuration));
		CHECK(cudaDeviceGetCacheConfig(&now));
		CHECK(cudaFuncSetCacheConfig(rotate, configuration));
		rotate<<<1, 256>>>(in, out);
		CHECK(cudaGetLastError());
		printf("device %d, last value %d\n", (int)now, out.read()[255]);
	}
	for (int carve_out : {0, 50, 100, -1}) {
		CHECK(cudaFuncSetAttribute(
			rotate, cudaFuncAttributePreferredSharedMemoryCarveout, carve_out));
		CHECK(cudaFuncGetAttributes(&attributes, rotate));
		rotate<<<1, 256>>>(in, out);
		CHECK(cudaGetLastError());
		printf("carve-out %d, first value %d\n", attributes.preferredShmemCarveout, out.read()[0]);
	}
	printf("101 percent: %s\n",
		name_of(cudaFuncSetAttribute(rotate, cudaFuncAttributePreferredSharedMemoryCarveout, 101)));
	return 0;
}
