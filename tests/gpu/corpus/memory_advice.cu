// Advice, prefetches and range questions about managed memory; the results of kernels and host stay
// right under all of them.

#include "check.h"

__global__ void add(int *data, int count, int by)
{
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
		data[i] += by;
}

int main()
{
	const int count = 1 << 20;
	const cudaMemLocation device = {cudaMemLocationTypeDevice, 0}, host = {cudaMemLocationTypeHost, 0};
	const cudaMemoryAdvise advice[] = {cudaMemAdviseSetReadMostly, cudaMemAdviseUnsetReadMostly,
		cudaMemAdviseSetPreferredLocation, cudaMemAdviseUnsetPreferredLocation,
		cudaMemAdviseSetAccessedBy, cudaMemAdviseUnsetAccessedBy};
	int *data, model = 0, read_mostly;

	CHECK(cudaMallocManaged(&data, count * sizeof(int)));
	memset(data, 0, count * sizeof(int));
	for (cudaMemoryAdvise each : advice) {
		CHECK(cudaMemAdvise(data, count * sizeof(int), each, device));
		CHECK(cudaMemPrefetchAsync(data, count * sizeof(int), device, 0, 0));
		add<<<64, 256>>>(data, count, (int)each);
		CHECK(cudaGetLastError());
		CHECK(cudaMemPrefetchAsync(data, count * sizeof(int), host, 0, 0));
		CHECK(cudaDeviceSynchronize());
		model += (int)each + 1;
		for (int i = 0; i < count; i++)
			EXPECT(++data[i] == model);
		printf("advice %d: %d\n", (int)each, data[count / 2]);
	}
	CHECK(cudaMemAdvise(data, count * sizeof(int), cudaMemAdviseSetReadMostly, device));
	CHECK(cudaMemRangeGetAttribute(
		&read_mostly, sizeof(int), cudaMemRangeAttributeReadMostly, data, count * sizeof(int)));
	printf("read mostly %d\n", read_mostly);
	printf("no range: %s\n", name_of(cudaMemAdvise(nullptr, 4096, cudaMemAdviseSetReadMostly, device)));
	printf("unknown advice: %s\n", name_of(cudaMemAdvise(data, 4096, (cudaMemoryAdvise)77, device)));
	cudaGetLastError();
	CHECK(cudaFree(data));
	return 0;
}
