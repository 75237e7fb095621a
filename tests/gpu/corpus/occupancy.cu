// The occupancy calculator: blocks per processor, best block sizes, shared memory left, for several
// kernels, shapes and preferences.

#include "check.h"

__global__ void light(int *out)
{
	*out = 1;
}

__global__ void heavy(float *out)
{
	float value[48];

	for (int i = 0; i < 48; i++)
		value[i] = out[i * 32 + threadIdx.x];
	for (int round = 0; round < 100; round++)
		for (int i = 0; i < 48; i++)
			value[i] = value[i] * value[(i + 17) % 48] + (float)round;
	for (int i = 0; i < 48; i++)
		out[i * 32 + threadIdx.x] = value[i];
}

__global__ void sharing(int *out)
{
	__shared__ int all[8192];

	all[threadIdx.x] = *out;
	__syncthreads();
	*out = all[(threadIdx.x + 1) % blockDim.x];
}

/* Shared memory that a block of so many threads asks for. */
static __host__ __device__ size_t shared_bytes(int threads)
{
	return (size_t)threads * 64;
}

template <class K> static void describe(const char *name, K kernel)
{
	int blocks, grid, block;
	size_t bytes;

	for (int threads : {32, 96, 256, 1024}) {
		printf("%s, %d threads:", name, threads);
		for (size_t dynamic : {0, 1000, 16384, 40000}) {
			CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
				&blocks, kernel, threads, dynamic));
			printf(" %d", blocks);
		}
		CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
			&blocks, kernel, threads, 0, cudaOccupancyDisableCachingOverride));
		printf(", %d, left ", blocks);
		if (cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, kernel, 2, threads) == cudaSuccess)
			printf("%zu\n", bytes);
		else // two of them do not fit
			printf("%s\n", name_of(cudaGetLastError()));
	}
	CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &block, kernel, 0, 0));
	printf("%s: grid %d, block %d", name, grid, block);
	CHECK(cudaOccupancyMaxPotentialBlockSizeVariableSMem(&grid, &block, kernel, shared_bytes, 512));
	printf("; with 64 bytes a thread: grid %d, block %d\n", grid, block);
}

template <class K> static void describe_preferences(const char *name, K kernel)
{
	for (int percent : {0, 8, 50, 100}) {
		CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, percent));
		printf("%d %% of ", percent);
		describe(name, kernel);
	}
}

int main()
{
	int blocks;

	describe("light", light);
	describe("heavy", heavy);
	describe("sharing", sharing);
	describe_preferences("light", light);
	describe_preferences("sharing", sharing);
	printf("too large: %s",
		name_of(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, light, 2048, 0)));
	printf(", %s\n", name_of(cudaGetLastError()));
	return 0;
}
