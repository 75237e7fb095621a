// Three-dimensional allocations and copies, whole and with offsets, and memset of a volume.

#include "check.h"

__global__ void weigh(cudaPitchedPtr volume, int width, int height, int depth)
{
	int x = threadIdx.x, y = blockIdx.x, z = blockIdx.y;

	if (x < width && y < height && z < depth) {
		char *slice = (char *)volume.ptr + volume.pitch * volume.ysize * z;
		((int *)(slice + volume.pitch * y))[x] += x + 100 * y + 10000 * z;
	}
}

int main()
{
	const int width = 60, height = 31, depth = 17;
	const cudaExtent extent = make_cudaExtent(width * sizeof(int), height, depth);
	std::vector<int> host(width * height * depth, 5), back(host.size());
	cudaPitchedPtr volume, second;
	cudaMemcpy3DParms copy = {};

	CHECK(cudaMalloc3D(&volume, extent));
	CHECK(cudaMalloc3D(&second, extent));
	printf("pitch %zu, xsize %zu, ysize %zu\n", volume.pitch, volume.xsize, volume.ysize);
	copy.srcPtr = make_cudaPitchedPtr(host.data(), width * sizeof(int), width, height);
	copy.dstPtr = volume;
	copy.extent = extent;
	copy.kind = cudaMemcpyHostToDevice;
	CHECK(cudaMemcpy3D(&copy));
	weigh<<<dim3(height, depth), 64>>>(volume, width, height, depth);
	CHECK(cudaGetLastError());
	CHECK(cudaMemset3D(second, 0x22, extent));
	copy = {};
	copy.srcPtr = volume;
	copy.srcPos = make_cudaPos(10 * sizeof(int), 3, 2);
	copy.dstPtr = second;
	copy.dstPos = make_cudaPos(20 * sizeof(int), 5, 4);
	copy.extent = make_cudaExtent(30 * sizeof(int), 20, 10);
	copy.kind = cudaMemcpyDeviceToDevice;
	CHECK(cudaMemcpy3DAsync(&copy, 0));
	for (const cudaPitchedPtr &from : {volume, second}) {
		copy = {};
		copy.srcPtr = from;
		copy.dstPtr = make_cudaPitchedPtr(back.data(), width * sizeof(int), width, height);
		copy.extent = extent;
		copy.kind = cudaMemcpyDeviceToHost;
		CHECK(cudaMemcpy3D(&copy));
		report("volume", back);
	}
	for (int z = 0; z < depth; z++)
		for (int y = 0; y < height; y++)
			for (int x = 0; x < width; x++) {
				bool inside = x >= 20 && x < 50 && y >= 5 && y < 25 && z >= 4 && z < 14;
				int model =
					inside ? 5 + (x - 10) + 100 * (y - 2) + 10000 * (z - 2) : 0x22222222;

				EXPECT(back[(z * height + y) * width + x] == model);
			}
	CHECK(cudaFree(volume.ptr));
	CHECK(cudaFree(second.ptr));
	return 0;
}
