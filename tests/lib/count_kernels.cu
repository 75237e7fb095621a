// count_kernels.c for a GPU.

#include <cstdint>

extern "C" __global__ void count_up(uint32_t *word, uint32_t by)
{
	atomicAdd(word, by);
}

/* The same, with more local memory than a context has at first. */
extern "C" __global__ void count_up_deep(uint32_t *word, uint32_t by)
{
	volatile uint32_t frame[1536];

	for (uint32_t i = 0; i < 1536; i++)
		frame[(i + by) % 1536] = i;
	if (threadIdx.x == 0)
		atomicAdd(word, frame[0] == 1536 - by ? by : 0);
}
