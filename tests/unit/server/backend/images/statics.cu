// What the statics.* are made of:
//   nvcc -arch=sm_90 -cubin -o statics.cubin statics.cu
//   nvcc -arch=sm_90 -cubin -DHEAP -o statics_heap.cubin statics.cu
//   nvcc -arch=sm_90 -cubin -DNONE -o statics_none.cubin statics.cu
//   nvcc -arch=sm_90 -cubin -DKERNELS -o statics_kernels.cubin statics.cu
//   nvcc -arch=sm_75 -cubin -o statics_75.cubin statics.cu
//   nvcc -arch=sm_100 -cubin -o statics_100.cubin statics.cu
//   nvcc -fatbin -gencode arch=compute_80,code=sm_80
//        -gencode arch=compute_90,code=[sm_90,compute_90]
//        --compress-mode=none -o statics.fatbin statics.cu
//   the same with -Xfatbin -compress-all and
//        --compress-mode=speed -o statics_lz4.fatbin, --compress-mode=size -o statics_zstd.fatbin
// and, linked from two parts:
//   nvcc -arch=sm_90 -dc -o one.o statics.cu; nvcc -arch=sm_90 -dc -DPART -o two.o statics.cu
//   nvcc -arch=sm_90 -dlink -cubin -o statics_linked.cubin one.o two.o

#include <cassert>
#include <cstdio>

static __device__ unsigned own = 7;

#ifdef PART
extern __device__ unsigned counter;

extern "C" __global__ void counts_too(unsigned *out)
{
	printf("number %u\n", own);
	*out = ++own + atomicAdd(&counter, 1);
}
#elif defined KERNELS
extern "C" __global__ void counts(unsigned *out)
{
	*out = ++own;
}

extern "C" __global__ void does_not(unsigned *out)
{
	++*out;
}

extern "C" __global__ void complains(unsigned *out)
{
	assert(*out < 4);
	printf("number %u\n", *out);
}
#elif defined NONE
/* Only the program's side could reach it, and it would look it up. */
__device__ unsigned untouched = 3;
__constant__ unsigned setting;

extern "C" __global__ void complains(unsigned *out)
{
	assert(*out < 4);
	printf("number %u\n", *out + setting);
}
#else
__device__ unsigned counter;
__device__ unsigned table[4] = {1, 2, 3, 4};
__device__ unsigned untouched;
__device__ unsigned pointed;
__device__ unsigned *pointer = &pointed;
__constant__ unsigned setting;

extern "C" __global__ void counts(unsigned *out)
{
	static unsigned inner;

	*out = atomicAdd(&counter, setting) + ++own + ++inner;
}

extern "C" __global__ void complains(unsigned *out)
{
	assert(*out < 4);
	printf("number %u\n", table[*out]);
	++*pointer;
#ifdef HEAP
	out = static_cast<unsigned *>(malloc(4));
	free(out);
#endif
}
#endif
