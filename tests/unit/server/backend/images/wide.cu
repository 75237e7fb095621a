// wide.cubin: nvcc -arch=sm_90 -cubin wide.cu. A kernel with more parameters than 4096 bytes, which compilers describe in
// another form, beside one with fewer.

struct most {
	unsigned char bytes[32000];
};

struct page {
	int words[1000];
};

extern "C" __global__ void widest(const __grid_constant__ most m, short number, int *out)
{
	out[threadIdx.x] = m.bytes[threadIdx.x] + number;
}

extern "C" __global__ void narrow(const __grid_constant__ page p, int *out)
{
	out[threadIdx.x] = p.words[threadIdx.x];
}
