// jumping.cubin: nvcc -arch=sm_90 -rdc=true -cubin jumping.cu -o part.cubin; nvlink -arch=sm_90 part.cubin -o jumping.cubin.
// A function with a table of jumps, called by kernels whose parameters have different sizes.

__device__ __noinline__ int choose(int way, int value)
{
	switch (way) {
	case 0:
		return value * 3;
	case 1:
		return value ^ 77;
	case 2:
		return value - 9;
	case 3:
		return __popc(value);
	case 4:
		return value * value;
	case 5:
		return value / 7;
	case 6:
		return __clz(value);
	default:
		return value << 3;
	}
}

extern "C" __global__ void few(int *out)
{
	out[threadIdx.x] = choose(threadIdx.x & 7, out[threadIdx.x]);
}

extern "C" __global__ void many(int *out, double a, double b, double c, double d, double e, double f)
{
	out[threadIdx.x] = choose((threadIdx.x + 3) & 7, out[threadIdx.x]) + (int)(a + b + c + d + e + f);
}

extern "C" __global__ void without(int *out, double a, double b, double c, double d, double e, double f, double g, double h)
{
	out[threadIdx.x] = (int)(a + b + c + d + e + f + g + h);
}
