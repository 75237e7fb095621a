// Kernels that print, for a GPU: those of host_print.c.

#include <cassert>
#include <cstdint>
#include <cstdio>

extern "C" {
__global__ void say(uint32_t program, uint32_t first, uint32_t lines)
{
	for (uint32_t i = 0; i < lines; i++)
		printf("program %u says %u\n", program, first + i);
}

__global__ void insist(uint32_t value, uint32_t most)
{
	assert(value <= most);
}
}
