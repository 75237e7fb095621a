// Cubemaps, layers of cubemaps, and layers with mipmap levels, filled by copies and by surfaces.

#include "check.h"

__global__ void sample_cube(cudaTextureObject_t texture, float *out, int layer)
{
	float a = threadIdx.x * 0.13f - 1.9f, b = blockIdx.x * 0.21f - 3.1f, c = 0.7f - 0.05f * threadIdx.x;

	out[blockIdx.x * blockDim.x + threadIdx.x] =
		layer < 0 ? texCubemap<float>(texture, a, b, c)
			  : texCubemapLayered<float>(texture, a, b, c, layer);
}

__global__ void sample_layers(cudaTextureObject_t texture, float *out, float level)
{
	out[blockIdx.x * blockDim.x + threadIdx.x] = tex2DLayeredLod<float>(texture,
		(threadIdx.x + 0.3f) / blockDim.x, (threadIdx.x * 7 % 32 + 0.6f) / 32, blockIdx.x, level);
}

__global__ void write_layer(cudaSurfaceObject_t surface, int level)
{
	surf2DLayeredwrite(level * 100.0f + blockIdx.x * 10 + threadIdx.x, surface,
		(int)(threadIdx.x * sizeof(float)), blockIdx.y, blockIdx.x);
}

static void copy_in(cudaArray_t array, std::vector<float> &values, int side, int layers)
{
	cudaMemcpy3DParms copy = {};

	copy.srcPtr = make_cudaPitchedPtr(values.data(), side * sizeof(float), side, side);
	copy.dstArray = array;
	copy.extent = make_cudaExtent(side, side, layers);
	copy.kind = cudaMemcpyHostToDevice;
	CHECK(cudaMemcpy3D(&copy));
}

static cudaTextureObject_t texture_of(const cudaResourceDesc &resource)
{
	cudaTextureDesc description = {};
	cudaTextureObject_t texture;

	description.normalizedCoords = 1;
	description.filterMode = description.mipmapFilterMode = cudaFilterModeLinear;
	description.maxMipmapLevelClamp = 8;
	CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
	return texture;
}

int main()
{
	const int side = 32, layers = 3, levels = 4;
	cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
	std::vector<float> values = random_floats(side * side * 12);
	cudaResourceDesc resource = {};
	cudaTextureObject_t texture;
	cudaMipmappedArray_t pyramid;
	cudaArray_t cube;
	buffer<float> out(32 * 32);

	resource.resType = cudaResourceTypeArray;
	for (int faces : {6, 12}) {
		unsigned flags = faces == 6 ? cudaArrayCubemap : cudaArrayCubemap | cudaArrayLayered;

		CHECK(cudaMalloc3DArray(&cube, &format, make_cudaExtent(side, side, faces), flags));
		copy_in(cube, values, side, faces);
		resource.res.array.array = cube;
		texture = texture_of(resource);
		sample_cube<<<32, 32>>>(texture, out, faces == 6 ? -1 : 1);
		CHECK(cudaGetLastError());
		report("cube", out.read());
		CHECK(cudaDestroyTextureObject(texture));
		CHECK(cudaFreeArray(cube));
	}
	CHECK(cudaMallocMipmappedArray(&pyramid, &format, make_cudaExtent(side, side, layers), levels,
		cudaArrayLayered | cudaArraySurfaceLoadStore));
	for (int level = 0; level < levels; level++) {
		cudaSurfaceObject_t surface;
		int width = side >> level;

		CHECK(cudaGetMipmappedArrayLevel(&resource.res.array.array, pyramid, level));
		CHECK(cudaCreateSurfaceObject(&surface, &resource));
		write_layer<<<dim3(layers, width), width>>>(surface, level);
		CHECK(cudaGetLastError());
		CHECK(cudaDestroySurfaceObject(surface));
	}
	resource.resType = cudaResourceTypeMipmappedArray;
	resource.res.mipmap.mipmap = pyramid;
	texture = texture_of(resource);
	for (float level : {0.0f, 1.5f, 3.0f}) {
		sample_layers<<<layers, 64>>>(texture, out, level);
		CHECK(cudaGetLastError());
		report("layers", out.read());
	}
	CHECK(cudaDestroyTextureObject(texture));
	CHECK(cudaFreeMipmappedArray(pyramid));
	return 0;
}
