// Atomic operations of every kind on device and shared memory: integers of both widths, floats,
// doubles, halves, compare-and-swap.

#include "check.h"

#include <cuda_fp16.h>

struct cells {
	unsigned add, sub, exchange, min, max, inc, dec, both, either, xored, swapped, in_shared, low;
	unsigned long long wide, wide_max, wide_and;
	int signed_min, signed_max;
	float floating;
	double precise;
	__half2 halves;
};

__global__ void operate(cells *c)
{
	__shared__ unsigned local;
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x, seen, now;

	if (threadIdx.x == 0)
		local = 0;
	__syncthreads();
	atomicAdd(&local, i % 7);
	atomicAdd(&c->add, i);
	atomicSub(&c->sub, i);
	atomicExch(&c->exchange, 99u);
	atomicMin(&c->min, i * 2654435761u);
	atomicMax(&c->max, i * 2654435761u);
	atomicInc(&c->inc, 1000u);
	atomicDec(&c->dec, 777u);
	atomicAnd(&c->both, ~(1u << (i % 13)));
	atomicOr(&c->either, 1u << (i % 17));
	atomicXor(&c->xored, i * 40503u);
	atomicAdd(&c->wide, (unsigned long long)i << 20);
	atomicMax(&c->wide_max, (unsigned long long)i * 1000003);
	atomicAnd(&c->wide_and, ~(1ull << (i % 60)));
	atomicMin(&c->signed_min, (int)(i * 40503u) - 2000000000);
	atomicMax(&c->signed_max, -(int)i - 5);
	atomicAdd(&c->floating, 0.5f); // exact in any order
	atomicAdd(&c->precise, 0.25);
	atomicAdd(&c->halves, __floats2half2_rn(i < 512 ? 1.0f : 0.0f, i < 1024 ? 0.5f : 0.0f));
	if (i % 16 == 0) {
		seen = c->swapped;
		do {
			now = seen;
			seen = atomicCAS(&c->swapped, now, now + 3);
		} while (seen != now);
	}
	__syncthreads();
	if (threadIdx.x == 0)
		atomicAdd(&c->in_shared, local);
}

int main()
{
	cells first = {}, c;
	cells *device;

	first.min = 0xffffffff;
	first.both = 0xffffffff;
	first.wide_and = ~0ull;
	first.signed_min = 2147483647;
	first.signed_max = -2147483647;
	CHECK(cudaMalloc(&device, sizeof(cells)));
	CHECK(cudaMemcpy(device, &first, sizeof(cells), cudaMemcpyHostToDevice));
	operate<<<256, 256>>>(device);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpy(&c, device, sizeof(cells), cudaMemcpyDeviceToHost));
	printf("add %u, sub %u, exchange %u, min %u, max %u\n", c.add, c.sub, c.exchange, c.min, c.max);
	printf("inc %u, dec %u, and %x, or %x, xor %x\n", c.inc, c.dec, c.both, c.either, c.xored);
	printf("wide %llu, max %llu, and %llx\n", c.wide, c.wide_max, c.wide_and);
	printf("signed %d %d, float %g, double %g\n", c.signed_min, c.signed_max, c.floating, c.precise);
	printf("halves %g %g\n", __half2float(__low2half(c.halves)), __half2float(__high2half(c.halves)));
	printf("compare-and-swap %u, shared %u\n", c.swapped, c.in_shared);
	EXPECT(c.swapped == 3 * 4096 && c.floating == 32768 && c.add == 65535u * 32768u);
	CHECK(cudaFree(device));
	return 0;
}
