// Recursion that needs more stack than a context has at first: the program asks for it, before its
// first kernel and once more for a deeper one.

#include "check.h"
#include "descend.h"

__global__ void recurse(unsigned *out, unsigned *seed, unsigned depth)
{
	out[threadIdx.x] = descend(seed + threadIdx.x, depth);
}

static unsigned expected(unsigned seed, unsigned depth)
{
	unsigned value = seed + 7;

	for (unsigned d = 1; d <= depth; d++)
		value = value * 3 + seed + d * 31 + d % 32;
	return value;
}

static void run(size_t stack, unsigned depth)
{
	constexpr int threads = 64;
	unsigned *out, *seed, wrong = 0;
	size_t there = 0;

	CHECK(cudaDeviceSetLimit(cudaLimitStackSize, stack));
	CHECK(cudaDeviceGetLimit(&there, cudaLimitStackSize));
	CHECK(cudaMallocManaged(&out, threads * sizeof(*out)));
	CHECK(cudaMallocManaged(&seed, threads * sizeof(*seed)));
	for (int i = 0; i < threads; i++)
		seed[i] = i * 17;
	recurse<<<1, threads>>>(out, seed, depth);
	CHECK(cudaGetLastError());
	CHECK(cudaDeviceSynchronize());
	for (int i = 0; i < threads; i++)
		wrong += out[i] != expected(i * 17, depth);
	printf("stack of %zu, asked for %zu: %u levels, %u wrong\n", there, stack, depth, wrong);
	CHECK(cudaFree(out));
	CHECK(cudaFree(seed));
}

int main()
{
	run(64 << 10, 200);
	run(192 << 10, 800);
	return 0;
}
