// What asserting.cubin is made of: nvcc -arch=sm_90 -cubin asserting.cu

#include <cassert>
#include <cstdio>

extern "C" __global__ void insists(int number, int most)
{
	assert(number <= most);
}

extern "C" __global__ void insists_and_prints(int number, int most)
{
	printf("number %d\n", number);
	assert(number <= most);
}
