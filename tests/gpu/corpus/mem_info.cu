// Free and total memory: they follow allocation and freeing, and an allocation beyond them is
// refused and does no harm.
//
// alone: it compares how much memory is free

#include "check.h"

int main()
{
	const size_t size = (size_t)1 << 30;
	size_t before, during, after, total;
	void *large, *all;

	CHECK(cudaFree(nullptr));
	CHECK(cudaMemGetInfo(&before, &total));
	printf("sane: %s\n", before > size && before <= total ? "yes" : "no");
	CHECK(cudaMalloc(&large, size));
	CHECK(cudaMemset(large, 0xab, size));
	CHECK(cudaMemGetInfo(&during, &total));
	printf("less by the size: %s\n",
		before - during >= size && before - during < size + (64 << 20) ? "yes" : "no");
	printf("all of it: %s\n", name_of(cudaMalloc(&all, total)));
	printf("last: %s\n", name_of(cudaGetLastError()));
	printf("more than an address: %s\n", name_of(cudaMalloc(&all, ~(size_t)0)));
	cudaGetLastError();
	CHECK(cudaFree(large));
	CHECK(cudaMemGetInfo(&after, &total));
	printf("back again: %s\n", after + (64 << 20) > before ? "yes" : "no");
	for (int i = 0; i < 200; i++) { // a cycle that would fill the device if memory leaked
		CHECK(cudaMalloc(&large, size));
		CHECK(cudaFree(large));
	}
	CHECK(cudaMalloc(&large, 0));
	printf("no bytes: %s\n", large == nullptr ? "no address" : "an address");
	return 0;
}
