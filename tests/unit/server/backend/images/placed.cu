// placed.cubin: nvcc -arch=sm_90 -cubin placed.cu. What the service's own loader has to place: constants, tables of
// jumps and of addresses, shared memory, bounds.

struct wide {
	char bytes[20];
};

__constant__ int steps[4] = {3, 5, 7, 11};
__device__ int counts[16];
__device__ int firsts[3] = {100, 200, 300};

extern "C" __global__ void __launch_bounds__(128) plain(int *out, short number, wide w)
{
	__shared__ int tally[64];

	tally[threadIdx.x & 63] = number + w.bytes[3];
	__syncthreads();
	out[threadIdx.x] = tally[63 - (threadIdx.x & 63)];
}

extern "C" __global__ void slots(int *out)
{
	counts[threadIdx.x & 15] = firsts[threadIdx.x % 3];
	out[threadIdx.x] = counts[threadIdx.x & 7];
}

extern "C" __global__ void constants(int *out)
{
	out[threadIdx.x] = steps[threadIdx.x & 3];
}

extern "C" __global__ void jumps(int *out, int n)
{
	int t = threadIdx.x, r;

	switch ((t + n) % 9) {
	case 0: r = __sinf(t) * 100; break;
	case 1: r = t * t; break;
	case 2: r = __popc(t) + 7; break;
	case 3: r = __clz(t); break;
	case 4: r = t ^ n; break;
	case 5: r = __brev(t) >> 20; break;
	case 6: r = t / 3 + n % 7; break;
	case 7: r = __expf(t * 0.01f) * 50; break;
	default: r = -t;
	}
	out[t] = r;
}
