// The library that plugin_dlopen.cu loads and unloads: a kernel with a variable, and its own copy
// of the runtime.

#include <cuda_runtime.h>

__device__ int counter = 100;

__global__ void count(int by)
{
	atomicAdd(&counter, by);
}

/* Adds to the library's counter on the device and returns its value, or a negative error. */
extern "C" int plugin_count(int by)
{
	int value;

	count<<<1, 32>>>(by);
	cudaError_t error = cudaGetLastError();
	if (error == cudaSuccess)
		error = cudaMemcpyFromSymbol(&value, counter, sizeof(value));
	return error == cudaSuccess ? value : -(int)error;
}

/* Allocates device memory that the program goes on using. */
extern "C" void *plugin_allocate(size_t size)
{
	void *memory;

	return cudaMalloc(&memory, size) == cudaSuccess ? memory : nullptr;
}
