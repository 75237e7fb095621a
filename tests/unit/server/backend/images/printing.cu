// What printing.cubin is made of: nvcc -arch=sm_90 -cubin printing.cu

#include <cstdio>

extern "C" __global__ void prints(int number)
{
	printf("number %d\n", number);
}

extern "C" __global__ void does_not(int *number)
{
	++*number;
}
