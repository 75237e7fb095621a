// Pointers to functions that a kernel has left in memory: used again after the program was told to go on. See
// kept_pointers.sh.

#include <cstdio>

typedef int (*operation)(int, int);

__device__ __noinline__ int plus(int a, int b)
{
	return a + b;
}

__device__ __noinline__ int times(int a, int b)
{
	return a * b;
}

__global__ void keep(operation *operations, int turned)
{
	operations[turned] = plus;
	operations[1 - turned] = times;
}

__global__ void use(const operation *operations, int *out)
{
	out[threadIdx.x] = operations[threadIdx.x % 2](threadIdx.x, 3);
}

int main()
{
	operation *operations;
	int *out, values[8];

	if (cudaMalloc(&operations, 2 * sizeof(*operations)) || cudaMalloc(&out, sizeof(values)))
		return 1;
	keep<<<1, 1>>>(operations, 1);
	for (int round = 0; round < 2; round++) {
		use<<<1, 8>>>(operations, out);
		cudaError_t error = cudaMemcpy(values, out, sizeof(values), cudaMemcpyDeviceToHost);
		printf("%s:", cudaGetErrorName(error));
		for (int i = 0; !error && i < 8; i++)
			printf(" %d", values[i]);
		printf("\n");
		fflush(stdout);
		if (!round)
			getchar();
	}
	return 0;
}
