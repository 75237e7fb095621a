// Variables in managed memory: program and kernels use them by name, in turns, with a plain variable
// of the device beside them.

#include "check.h"

struct record {
	int id;
	double weight;
};

__device__ __managed__ int counter = 5;
__device__ __managed__ float table[1000];
__device__ __managed__ record first = {3, 0.5};
__device__ int step = 7;

__global__ void work(int by)
{
	if (threadIdx.x == 0) {
		atomicAdd(&counter, by);
		first.weight += step;
		first.id++;
	}
	table[threadIdx.x] += threadIdx.x + step;
}

int main()
{
	cudaPointerAttributes attributes;
	float host[1000];
	int *address;

	printf("at first %d %d %g\n", counter, first.id, first.weight);
	for (int i = 0; i < 1000; i++)
		table[i] = 1;
	for (int round = 0; round < 3; round++) {
		work<<<1, 1000>>>(2);
		printf("%s\n", name_of(cudaDeviceSynchronize()));
		printf("round %d: %d %d %g %g %g\n", round, counter, first.id, first.weight, table[0], table[999]);
		counter *= 10;
		table[999] = 0;
	}
	printf("%s\n", name_of(cudaMemcpyFromSymbol(host, table, sizeof(host))));
	printf("copied %g %g\n", host[1], host[998]);
	host[5] = 77;
	printf("%s\n", name_of(cudaMemcpyToSymbol(table, host, sizeof(host))));
	printf("written %g\n", table[5]);
	printf("%s\n", name_of(cudaGetSymbolAddress((void **)&address, counter)));
	printf("same address %d\n", address == &counter);
	printf("%s\n", name_of(cudaPointerGetAttributes(&attributes, &counter)));
	printf("managed %d\n", attributes.type == cudaMemoryTypeManaged);
	return counter == 7220 ? 0 : 1;
}
