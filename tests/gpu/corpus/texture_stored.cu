// Texture and surface objects whose handles lie in device memory: a kernel picks one of many, some
// of them destroyed and made anew meanwhile; what surfaces wrote is seen by textures over the same
// arrays.

#include "check.h"

struct objects {
	cudaTextureObject_t texture;
	cudaSurfaceObject_t surface;
};

__global__ void write(const objects *all, int round)
{
	surf2Dwrite((float)(blockIdx.x * 1000 + threadIdx.x + round), all[blockIdx.x].surface,
		(int)(threadIdx.x % 16 * sizeof(float)), threadIdx.x / 16);
}

__global__ void read(const objects *all, float *out)
{
	out[blockIdx.x * blockDim.x + threadIdx.x] =
		tex2D<float>(all[blockIdx.x].texture, threadIdx.x % 16 + 0.5f, threadIdx.x / 16 + 0.5f);
}

static cudaTextureObject_t texture_of(cudaArray_t array, bool normalized)
{
	cudaResourceDesc resource = {};
	cudaTextureDesc description = {};
	cudaTextureObject_t texture;

	resource.resType = cudaResourceTypeArray;
	resource.res.array.array = array;
	description.normalizedCoords = normalized;
	CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
	return texture;
}

int main()
{
	const int count = 40;
	cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
	std::vector<cudaArray_t> arrays(count);
	std::vector<objects> all(count);
	buffer<float> out(count * 256);

	for (int i = 0; i < count; i++) {
		cudaResourceDesc resource = {};

		CHECK(cudaMallocArray(&arrays[i], &format, 16, 16, cudaArraySurfaceLoadStore));
		resource.resType = cudaResourceTypeArray;
		resource.res.array.array = arrays[i];
		CHECK(cudaCreateSurfaceObject(&all[i].surface, &resource));
		all[i].texture = texture_of(arrays[i], false);
	}
	buffer<objects> stored(all);
	for (int round = 0; round < 3; round++) {
		for (int i = round; i < count; i += 7) {
			CHECK(cudaDestroyTextureObject(all[i].texture));
			/* Another one comes between. */
			cudaTextureObject_t other = texture_of(arrays[i], true);
			all[i].texture = texture_of(arrays[i], false);
			EXPECT(all[i].texture != other);
			CHECK(cudaDestroyTextureObject(other));
		}
		CHECK(cudaMemcpy(stored, all.data(), stored.bytes(), cudaMemcpyHostToDevice));
		write<<<count, 256>>>(stored, round);
		read<<<count, 256>>>(stored, out);
		CHECK(cudaGetLastError());
		std::vector<float> back = out.read();
		for (int i = 0; i < count * 256; i++)
			EXPECT(back[i] == (float)(i / 256 * 1000 + i % 256 + round));
		report("round", back);
	}
	for (int i = 0; i < count; i++) {
		CHECK(cudaFreeArray(arrays[i]));
		CHECK(cudaDestroyTextureObject(all[i].texture));
		CHECK(cudaDestroySurfaceObject(all[i].surface));
	}
	return 0;
}
