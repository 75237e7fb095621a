// shaped.cubin: nvcc -arch=sm_90 -cubin shaped.cu. Kernels that demand shapes of their launches.

extern "C" __global__ void __block_size__((32, 2, 1)) one_size(int *out)
{
	*out = 1;
}

extern "C" __global__ void __launch_bounds__(128, 1, 4) small_clusters(int *out)
{
	*out = 2;
}

extern "C" __global__ void __block_size__((64, 1, 1), (2, 1, 1)) counted_in_clusters(int *out)
{
	*out = 3;
}
