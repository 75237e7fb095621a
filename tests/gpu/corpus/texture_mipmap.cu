// A mipmapped array whose levels are made through surfaces, each from the one before, and sampled
// between levels.

#include "check.h"

__global__ void fill(cudaSurfaceObject_t surface, int side)
{
	int x = threadIdx.x, y = blockIdx.x;

	surf2Dwrite((float)(x * 37 % 101) + (float)(y * 53 % 97), surface, x * 4, y);
}

__global__ void halve(cudaSurfaceObject_t from, cudaSurfaceObject_t to)
{
	int x = threadIdx.x, y = blockIdx.x;
	float sum = 0;

	for (int i = 0; i < 4; i++)
		sum += surf2Dread<float>(from, (2 * x + i % 2) * 4, 2 * y + i / 2);
	surf2Dwrite(sum / 4, to, x * 4, y);
}

__global__ void sample(cudaTextureObject_t texture, float *out, int side, float level)
{
	out[blockIdx.x * side + threadIdx.x] =
		tex2DLod<float>(texture, (threadIdx.x + 0.4f) / side, (blockIdx.x + 0.7f) / side, level);
}

int main()
{
	const int side = 128, levels = 5;
	cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
	cudaMipmappedArray_t pyramid;
	cudaSurfaceObject_t surface[levels];
	cudaResourceDesc resource = {};
	cudaTextureDesc description = {};
	cudaTextureObject_t texture;
	buffer<float> out(side * side);

	CHECK(cudaMallocMipmappedArray(
		&pyramid, &format, make_cudaExtent(side, side, 0), levels, cudaArraySurfaceLoadStore));
	for (int level = 0; level < levels; level++) {
		int length = side >> level;

		resource.resType = cudaResourceTypeArray;
		CHECK(cudaGetMipmappedArrayLevel(&resource.res.array.array, pyramid, level));
		CHECK(cudaCreateSurfaceObject(&surface[level], &resource));
		if (level == 0)
			fill<<<side, side>>>(surface[0], side);
		else
			halve<<<length, length>>>(surface[level - 1], surface[level]);
		CHECK(cudaGetLastError());
	}
	resource = {};
	resource.resType = cudaResourceTypeMipmappedArray;
	resource.res.mipmap.mipmap = pyramid;
	description.normalizedCoords = 1;
	description.filterMode = description.mipmapFilterMode = cudaFilterModeLinear;
	description.addressMode[0] = description.addressMode[1] = cudaAddressModeWrap;
	description.maxMipmapLevelClamp = levels - 1;
	CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
	for (float level : {0.0f, 0.5f, 1.0f, 2.25f, 4.0f, 9.0f}) {
		sample<<<side, side>>>(texture, out, side, level);
		CHECK(cudaGetLastError());
		printf("level %.2f: ", level);
		report("samples", out.read());
	}
	CHECK(cudaDestroyTextureObject(texture));
	for (auto each : surface)
		CHECK(cudaDestroySurfaceObject(each));
	CHECK(cudaFreeMipmappedArray(pyramid));
	return 0;
}
