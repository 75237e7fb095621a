// The second translation unit of separate_compilation.cu: variables, a function and a kernel that
// the first one uses.

#include "separate.h"

__device__ int shared_counter = 100;
__constant__ int shared_factor = 3;

__device__ int other_function(int value)
{
	atomicAdd(&shared_counter, 1);
	return value * shared_factor + 1;
}

__global__ void other_kernel(int *data)
{
	data[threadIdx.x] += 1000;
}
