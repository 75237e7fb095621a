// Texture objects over linear memory: of single values and vectors, as numbers and normalized, of
// pitched rows with filtering.

#include "check.h"

template <class T> __global__ void fetch(cudaTextureObject_t texture, T *out, int count)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < count)
		out[i] = tex1Dfetch<T>(texture, count - 1 - i);
}

__global__ void sample(cudaTextureObject_t texture, float *out, int width, int height)
{
	int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;

	if (x < width)
		out[y * width + x] = tex2D<float>(texture, x * 0.75f + 0.25f, y * 1.25f - 2.0f);
}

template <class T> static cudaTextureObject_t linear(const buffer<T> &data, cudaTextureReadMode mode)
{
	cudaResourceDesc resource = {}, back = {};
	cudaTextureDesc description = {};
	cudaTextureObject_t texture;

	resource.resType = cudaResourceTypeLinear;
	resource.res.linear.devPtr = data.at;
	resource.res.linear.desc = cudaCreateChannelDesc<T>();
	resource.res.linear.sizeInBytes = data.bytes();
	description.readMode = mode;
	CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
	CHECK(cudaGetTextureObjectResourceDesc(&back, texture));
	EXPECT(back.resType == cudaResourceTypeLinear && back.res.linear.devPtr == data.at);
	return texture;
}

int main()
{
	const int count = 100000, width = 200, height = 90;
	std::vector<float> numbers = random_floats(count);
	std::vector<uint32_t> words = random_words(count);
	std::vector<uint8_t> bytes(words.begin(), words.end());
	std::vector<int4> vectors(count / 4);
	cudaResourceDesc resource = {};
	cudaTextureDesc description = {};
	cudaTextureObject_t texture;
	float *rows;
	size_t pitch;

	memcpy(vectors.data(), words.data(), count * 4);
	buffer<float> device(numbers), out(count);
	buffer<uint8_t> small(bytes);
	buffer<int4> wide(vectors), wide_out(count / 4);
	texture = linear(device, cudaReadModeElementType);
	fetch<<<(count + 255) / 256, 256>>>(texture, out.at, count);
	CHECK(cudaGetLastError());
	std::vector<float> back = out.read();
	for (int i = 0; i < count; i++)
		EXPECT(back[i] == numbers[count - 1 - i]);
	report("floats", back);
	CHECK(cudaDestroyTextureObject(texture));
	texture = linear(small, cudaReadModeNormalizedFloat);
	fetch<<<(count + 255) / 256, 256>>>(texture, out.at, count);
	CHECK(cudaGetLastError());
	report("normalized bytes", out.read());
	CHECK(cudaDestroyTextureObject(texture));
	texture = linear(wide, cudaReadModeElementType);
	fetch<<<(count + 1023) / 1024, 256>>>(texture, wide_out.at, count / 4);
	CHECK(cudaGetLastError());
	report("vectors", wide_out.read());
	CHECK(cudaDestroyTextureObject(texture));

	CHECK(cudaMallocPitch(&rows, &pitch, width * sizeof(float), height));
	CHECK(cudaMemcpy2D(
		rows, pitch, numbers.data(), width * 4, width * 4, height, cudaMemcpyHostToDevice));
	resource.resType = cudaResourceTypePitch2D;
	resource.res.pitch2D.devPtr = rows;
	resource.res.pitch2D.desc = cudaCreateChannelDesc<float>();
	resource.res.pitch2D.width = width;
	resource.res.pitch2D.height = height;
	resource.res.pitch2D.pitchInBytes = pitch;
	description.addressMode[0] = description.addressMode[1] = cudaAddressModeClamp;
	description.filterMode = cudaFilterModeLinear;
	CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
	sample<<<dim3(1, height), 256>>>(texture, out, width, height);
	CHECK(cudaGetLastError());
	report("filtered rows", out.read());
	CHECK(cudaDestroyTextureObject(texture));
	CHECK(cudaFree(rows));
	return 0;
}
