// called.cubin: nvcc -arch=sm_90 -rdc=true -cubin called.cu -o part.cubin; nvlink -arch=sm_90 part.cubin -o called.cubin.
// What the device linker makes of calls: functions with sections of their own, called by their addresses.

__device__ int depths[4];

__device__ __noinline__ int descend(int n)
{
	return n < 2 ? 1 : descend(n - 1) + depths[n & 3];
}

extern "C" __global__ void calls(int *out)
{
	out[threadIdx.x] = descend(out[threadIdx.x] & 7);
}
