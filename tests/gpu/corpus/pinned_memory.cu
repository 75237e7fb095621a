// Pinned host memory of every kind: plain, portable, mapped, write-combined; flags, sizes, copies
// both ways.

#include "check.h"

__global__ void twice(uint32_t *data, size_t count)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
		i += (size_t)gridDim.x * blockDim.x)
		data[i] *= 2;
}

int main()
{
	const unsigned kinds[] = {cudaHostAllocDefault, cudaHostAllocPortable, cudaHostAllocMapped,
		cudaHostAllocWriteCombined,
		cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined};
	const size_t sizes[] = {4, 100, 4096, 1000000, 40000000};
	uint32_t *host, *seen;
	unsigned flags;

	for (unsigned kind : kinds)
		for (size_t size : sizes) {
			std::vector<uint32_t> model = random_words(size / 4), back(size / 4);
			buffer<uint32_t> device(size / 4);

			CHECK(cudaHostAlloc(&host, size, kind));
			memcpy(host, model.data(), size);
			CHECK(cudaMemcpyAsync(device, host, size, cudaMemcpyHostToDevice));
			twice<<<32, 256>>>(device, size / 4);
			CHECK(cudaGetLastError());
			CHECK(cudaMemcpyAsync(host, device, size, cudaMemcpyDeviceToHost));
			CHECK(cudaStreamSynchronize(0));
			memcpy(back.data(), host, size);
			for (size_t i = 0; i < back.size(); i++)
				EXPECT(back[i] == 2 * model[i]);
			CHECK(cudaHostGetFlags(&flags, host));
			CHECK(cudaHostGetDevicePointer(&seen, host, 0));
			printf("kind %u, size %zu: flags %u, one address %s\n", kind, size, flags,
				seen == host ? "yes" : "no");
			CHECK(cudaFreeHost(host));
		}
	int word;
	printf("not pinned: %s\n", name_of(cudaHostGetFlags(&flags, &word)));
	printf("not pinned: %s\n", name_of(cudaFreeHost(&word)));
	printf("nothing: %s\n", name_of(cudaFreeHost(nullptr)));
	cudaGetLastError();
	printf("unknown kind: %s\n", name_of(cudaHostAlloc(&host, 16, 0x100)));
	cudaGetLastError();
	return 0;
}
