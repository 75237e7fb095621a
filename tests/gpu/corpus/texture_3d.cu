// Textures over three-dimensional arrays, of floats and of vectors of bytes, with linear filtering.

#include "check.h"

template <class Out> __global__ void sample(cudaTextureObject_t texture, Out *out, int size)
{
	int x = threadIdx.x, y = blockIdx.x, z = blockIdx.y;

	out[(z * size + y) * size + x] =
		tex3D<Out>(texture, (x + 0.3f) / size, (y + 0.6f) / size, (z + 0.9f) / size);
}

template <class In, class Out>
static void run(const char *label, const std::vector<In> &volume, int size, cudaTextureReadMode mode)
{
	cudaChannelFormatDesc format = cudaCreateChannelDesc<In>();
	cudaExtent extent = make_cudaExtent(size, size, size);
	cudaMemcpy3DParms copy = {};
	cudaResourceDesc resource = {};
	cudaTextureDesc description = {};
	cudaTextureObject_t texture;
	cudaArray_t array;
	buffer<Out> out(volume.size());

	CHECK(cudaMalloc3DArray(&array, &format, extent, 0));
	copy.srcPtr = make_cudaPitchedPtr((void *)volume.data(), size * sizeof(In), size, size);
	copy.dstArray = array;
	copy.extent = extent;
	copy.kind = cudaMemcpyHostToDevice;
	CHECK(cudaMemcpy3D(&copy));
	resource.resType = cudaResourceTypeArray;
	resource.res.array.array = array;
	for (int i = 0; i < 3; i++)
		description.addressMode[i] = cudaAddressModeWrap;
	description.filterMode = cudaFilterModeLinear;
	description.readMode = mode;
	description.normalizedCoords = 1;
	CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
	sample<<<dim3(size, size), size>>>(texture, out.at, size);
	CHECK(cudaGetLastError());
	report(label, out.read());
	CHECK(cudaDestroyTextureObject(texture));
	CHECK(cudaFreeArray(array));
}

int main()
{
	const int size = 32;
	std::vector<uint32_t> words = random_words(size * size * size);
	std::vector<uchar4> colors(words.size());

	memcpy(colors.data(), words.data(), words.size() * 4);
	run<float, float>("floats", random_floats(words.size()), size, cudaReadModeElementType);
	run<uchar4, float4>("colors", colors, size, cudaReadModeNormalizedFloat);
	return 0;
}
