// Dynamic shared memory beyond 48 KiB: refused before the attribute is set, right up to the
// device's limit after.

#include "check.h"

__global__ void reverse(const uint32_t *in, uint32_t *out, int count)
{
	extern __shared__ uint32_t part[];

	for (int i = threadIdx.x; i < count; i += blockDim.x)
		part[i] = in[blockIdx.x * count + i];
	__syncthreads();
	for (int i = threadIdx.x; i < count; i += blockDim.x)
		out[blockIdx.x * count + i] = part[count - 1 - i];
}

int main()
{
	int most, reserved;
	cudaFuncAttributes attributes;

	CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
	CHECK(cudaDeviceGetAttribute(&reserved, cudaDevAttrReservedSharedMemoryPerBlock, 0));
	printf("most %d, reserved %d\n", most, reserved);
	for (int size : {1024, 48 * 1024, 48 * 1024 + 4, 100 * 1024, most}) {
		const int count = size / 4, blocks = 40;
		std::vector<uint32_t> words = random_words(count * blocks), back;
		buffer<uint32_t> in(words), out(words.size());

		reverse<<<blocks, 512, size>>>(in, out, count);
		cudaError_t before = cudaGetLastError();
		if (before != cudaSuccess) {
			printf("%d bytes: %s\n", size, name_of(before));
			CHECK(cudaFuncSetAttribute(
				reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, size));
			reverse<<<blocks, 512, size>>>(in, out, count);
			CHECK(cudaGetLastError());
		}
		back = out.read();
		for (int block = 0; block < blocks; block++)
			for (int i = 0; i < count; i++)
				EXPECT(back[block * count + i] == words[block * count + count - 1 - i]);
		report("reversed", back);
	}
	CHECK(cudaFuncGetAttributes(&attributes, reverse));
	printf("now %d\n", attributes.maxDynamicSharedSizeBytes);
	printf("beyond: %s\n", name_of(cudaFuncSetAttribute(
				       reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, most + 4)));
	reverse<<<1, 32, most + 4>>>(nullptr, nullptr, 0);
	printf("beyond: %s\n", name_of(cudaGetLastError()));
	CHECK(cudaFuncSetAttribute(reverse, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
	CHECK(cudaFuncGetAttributes(&attributes, reverse));
	printf("carve-out %d\n", attributes.preferredShmemCarveout);
	return 0;
}
