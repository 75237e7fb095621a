// Kernels with more local memory than a context has at first: of several sizes, beside small ones,
// and with calls that need more of it than the compiler knows.

#include "check.h"
#include "descend.h"

template <unsigned words> __global__ void fill(unsigned *out)
{
	volatile unsigned room[words];
	unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, sum = 0;

	for (unsigned i = 0; i < words; i++)
		room[(i * 7 + thread) % words] = i ^ thread;
	for (unsigned i = 0; i < words; i++)
		sum += room[i] * (i + 1);
	out[thread] = sum;
}

__global__ void fill_and_descend(unsigned *out, unsigned *seed, unsigned depth)
{
	volatile unsigned room[800];
	unsigned sum = 0;

	for (unsigned i = 0; i < 800; i++)
		room[i] = i;
	sum = descend(seed, depth);
	for (unsigned i = 0; i < 800; i++)
		sum += room[i] * i;
	out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

int main()
{
	const unsigned blocks = 264, threads = 128;
	buffer<unsigned> out(blocks * threads), seed(1);

	CHECK(cudaMemset(seed.at, 1, 4));
	fill<16><<<blocks, threads>>>(out.at);
	report("64 bytes", out.read());
	fill<500><<<blocks, threads>>>(out.at);
	report("2000 bytes", out.read());
	fill<1500><<<blocks, threads>>>(out.at);
	report("6000 bytes", out.read());
	fill<300><<<blocks, threads>>>(out.at);
	report("1200 bytes", out.read());
	fill<4000><<<blocks, threads>>>(out.at);
	report("16000 bytes", out.read());
	CHECK(cudaDeviceSetLimit(cudaLimitStackSize, 64 << 10));
	fill_and_descend<<<1, 64>>>(out.at, seed.at, 200);
	report("and calls", out.read());
	CHECK(cudaDeviceSetLimit(cudaLimitStackSize, 128 << 10));
	fill_and_descend<<<1, 64>>>(out.at, seed.at, 500);
	report("deeper", out.read());
	fill<16><<<blocks, threads>>>(out.at);
	report("64 bytes", out.read());
	return 0;
}
