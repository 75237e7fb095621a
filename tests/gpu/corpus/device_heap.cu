// A heap of kernels that is larger than what a context has at first: 64 MiB are taken from one of
// 96, in pieces, by threads that see each other's. And as much as does not fit.

#include "check.h"

constexpr int pieces = 64;
constexpr size_t bytes = 1 << 20;

__device__ unsigned *piece[pieces];

__global__ void take()
{
	unsigned *mine = (unsigned *)malloc(bytes);

	piece[blockIdx.x] = mine;
	for (size_t i = 0; mine && i < bytes / 4; i += 1024)
		mine[i] = blockIdx.x * 1000003u + (unsigned)i;
}

__global__ void give_back(unsigned *missing, unsigned *wrong)
{
	unsigned *other = piece[(blockIdx.x + 1) % pieces];

	if (!other)
		atomicAdd(missing, 1);
	for (size_t i = 0; other && i < bytes / 4; i += 1024)
		if (other[i] != (blockIdx.x + 1) % pieces * 1000003u + (unsigned)i)
			atomicAdd(wrong, 1);
}

__global__ void release()
{
	free(piece[blockIdx.x]);
}

__global__ void too_much(unsigned *refused)
{
	void *much = malloc(size_t(200) << 20);

	*refused = much == nullptr;
	free(much);
}

int main()
{
	buffer<unsigned> counts(3);
	size_t heap = 0;

	CHECK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, size_t(96) << 20));
	CHECK(cudaDeviceGetLimit(&heap, cudaLimitMallocHeapSize));
	printf("heap at least as large as asked for: %s\n", heap >= size_t(96) << 20 ? "yes" : "no");
	CHECK(cudaMemset(counts, 0, 3 * sizeof(unsigned)));
	for (int round = 0; round < 3; round++) {
		take<<<pieces, 1>>>();
		give_back<<<pieces, 1>>>(counts, counts + 1);
		release<<<pieces, 1>>>();
		CHECK(cudaGetLastError());
		CHECK(cudaDeviceSynchronize());
	}
	too_much<<<1, 1>>>(counts + 2);
	CHECK(cudaGetLastError());
	CHECK(cudaDeviceSynchronize());
	auto values = counts.read();
	printf("missing %u, wrong %u, too much refused: %u\n", values[0], values[1], values[2]);
	printf("once kernels have run: %s\n", name_of(cudaDeviceSetLimit(cudaLimitMallocHeapSize, size_t(256) << 20)));
	return 0;
}
