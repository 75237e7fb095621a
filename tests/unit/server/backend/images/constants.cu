// What the constants*.cubin are made of:
//   nvcc -arch=sm_90 -cubin -o constants.cubin constants.cu
//   nvcc -arch=sm_75 -cubin -o constants_75.cubin constants.cu
//   nvcc -arch=sm_90 -cubin -DKNOWN -o constants_known.cubin constants.cu
//   nvcc -arch=sm_75 -cubin -DKNOWN -o constants_known_75.cubin constants.cu
//   nvcc -arch=sm_90 -rdc=true -dlink -cubin -DFUNCTIONS -o constants_linked.cubin constants.cu

__device__ unsigned pointed = 5;
__constant__ unsigned scale = 3;
__constant__ unsigned table[16] = {11, 12, 13, 14};
__constant__ unsigned char flag = 9;
__constant__ unsigned *pointer = &pointed;
__device__ const unsigned *begins = &table[2];

extern "C" __global__ void use(unsigned *out, unsigned i)
{
	*out = scale * table[i] + flag + *pointer + *begins;
}

#ifdef KNOWN
extern "C" __global__ void know(const unsigned **out)
{
	*out = table;
}
#endif

#ifdef FUNCTIONS
__device__ unsigned twice(unsigned i)
{
	return 2 * i;
}

__device__ unsigned thrice(unsigned i)
{
	return 3 * i;
}

__constant__ unsigned (*functions[2])(unsigned) = {twice, thrice};

extern "C" __global__ void call(unsigned *out, unsigned i)
{
	*out = functions[i](i);
}
#endif
