// Profiler start and stop around work, and twice each, in runtime and driver: harmless.

#include "check.h"

#include <cudaProfiler.h>
#include <cuda_profiler_api.h>

__global__ void bump(int *word)
{
	atomicAdd(word, 1);
}

int main()
{
	buffer<int> word(1);

	for (int i = 0; i < 3; i++) {
		printf("start %s", name_of(cudaProfilerStart()));
		bump<<<1, 32>>>(word);
		CHECK(cudaGetLastError());
		printf(", stop %s", name_of(cudaProfilerStop()));
		printf(", stop %s\n", name_of(cudaProfilerStop()));
	}
	printf("driver: %s, ", name_of(cuProfilerStart()));
	printf("%s\n", name_of(cuProfilerStop()));
	printf("word %d\n", word.read()[0]);
	return 0;
}
