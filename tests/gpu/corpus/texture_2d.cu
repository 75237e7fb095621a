// Textures over two-dimensional arrays: the address modes, point and linear filtering, normalized
// coordinates, gathers.

#include "check.h"

__global__ void sample(cudaTextureObject_t texture, float4 *out, int width, float scale)
{
	int x = threadIdx.x, y = blockIdx.x;
	float u = (x * 1.3f - 20) * scale, v = (y * 0.9f - 10) * scale;
	float4 value = {tex2D<float>(texture, u, v), 0, 0, 0};

	value.y = tex2DLod<float>(texture, u, v, 0);
	value.z = tex2DGrad<float>(texture, u, v, make_float2(0, 0), make_float2(0, 0));
	out[y * width + x] = value;
}

__global__ void gather(cudaTextureObject_t texture, float4 *out, int width)
{
	out[blockIdx.x * width + threadIdx.x] =
		tex2Dgather<float4>(texture, threadIdx.x + 0.5f, blockIdx.x + 0.5f, 0);
}

int main()
{
	const int width = 128, height = 64;
	const cudaTextureAddressMode modes[] = {
		cudaAddressModeWrap, cudaAddressModeClamp, cudaAddressModeMirror, cudaAddressModeBorder};
	cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
	std::vector<float> image = random_floats(width * height);
	buffer<float4> out(width * height);
	cudaResourceDesc resource = {};
	cudaTextureDesc description, back;
	cudaTextureObject_t texture;
	cudaArray_t array;

	CHECK(cudaMallocArray(&array, &format, width, height, cudaArrayTextureGather));
	CHECK(cudaMemcpy2DToArray(
		array, 0, 0, image.data(), width * 4, width * 4, height, cudaMemcpyHostToDevice));
	resource.resType = cudaResourceTypeArray;
	resource.res.array.array = array;
	for (cudaTextureAddressMode mode : modes)
		for (cudaTextureFilterMode filter : {cudaFilterModePoint, cudaFilterModeLinear})
			for (int normalized : {0, 1}) {
				description = {};
				description.addressMode[0] = description.addressMode[1] = mode;
				description.filterMode = filter;
				description.normalizedCoords = normalized;
				description.borderColor[0] = 0.25f;
				CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
				CHECK(cudaGetTextureObjectTextureDesc(&back, texture));
				sample<<<height, width>>>(texture, out, width, normalized ? 1.0f / 64 : 1.0f);
				CHECK(cudaGetLastError());
				printf("mode %d %d %d: ", (int)back.addressMode[0], (int)back.filterMode,
					back.normalizedCoords);
				report("samples", out.read());
				CHECK(cudaDestroyTextureObject(texture));
			}
	description = {};
	CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
	gather<<<height, width>>>(texture, out, width);
	CHECK(cudaGetLastError());
	report("gathered", out.read());
	CHECK(cudaDestroyTextureObject(texture));
	CHECK(cudaFreeArray(array));
	return 0;
}
