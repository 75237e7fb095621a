// Layered textures of two dimensions and cubemaps: layers apart from one another, sampling by
// direction.

#include "check.h"

__global__ void layers(cudaTextureObject_t texture, float *out, int width, int height)
{
	int x = threadIdx.x, y = blockIdx.x, layer = blockIdx.y;

	out[(layer * height + y) * width + x] = tex2DLayered<float>(texture, x + 0.75f, y + 0.5f, layer);
}

__global__ void faces(cudaTextureObject_t texture, float *out, int count)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < count)
		out[i] = texCubemap<float>(texture, i % 17 - 8.2f, i % 29 - 14.1f, i % 23 - 11.3f);
}

static cudaTextureObject_t make(cudaArray_t *array, cudaExtent extent, int height, unsigned flags,
	const std::vector<float> &values, int normalized)
{
	cudaChannelFormatDesc format = cudaCreateChannelDesc<float>(), seen;
	cudaMemcpy3DParms copy = {};
	cudaResourceDesc resource = {};
	cudaTextureDesc description = {};
	cudaTextureObject_t texture;
	unsigned seen_flags;

	CHECK(cudaMalloc3DArray(array, &format, extent, flags));
	copy.srcPtr = make_cudaPitchedPtr((void *)values.data(), extent.width * 4, extent.width, height);
	copy.dstArray = *array;
	copy.extent = extent;
	copy.kind = cudaMemcpyHostToDevice;
	CHECK(cudaMemcpy3D(&copy));
	CHECK(cudaArrayGetInfo(&seen, &extent, &seen_flags, *array));
	printf("array %zu x %zu x %zu, flags %u, %d bits\n", extent.width, extent.height, extent.depth,
		seen_flags, seen.x);
	resource.resType = cudaResourceTypeArray;
	resource.res.array.array = *array;
	description.filterMode = cudaFilterModeLinear;
	description.addressMode[0] = description.addressMode[1] = description.addressMode[2] =
		cudaAddressModeClamp;
	description.normalizedCoords = normalized;
	CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
	return texture;
}

int main()
{
	const int width = 100, height = 40, depth = 7, side = 64, count = 50000;
	cudaTextureObject_t texture;
	cudaArray_t array;
	buffer<float> out(count);

	texture = make(&array, make_cudaExtent(width, height, depth), height, cudaArrayLayered,
		random_floats(width * height * depth), 0);
	layers<<<dim3(height, depth), width>>>(texture, out, width, height);
	CHECK(cudaGetLastError());
	report("layers", out.read());
	CHECK(cudaDestroyTextureObject(texture));
	CHECK(cudaFreeArray(array));
	texture = make(&array, make_cudaExtent(side, side, 6), side, cudaArrayCubemap,
		random_floats(side * side * 6), 1);
	faces<<<(count + 255) / 256, 256>>>(texture, out, count);
	CHECK(cudaGetLastError());
	report("faces", out.read());
	CHECK(cudaDestroyTextureObject(texture));
	CHECK(cudaFreeArray(array));
	return 0;
}
