// Programmatic dependent launch: kernels that start before the one in front of them has ended and
// wait for it inside.

#include "check.h"

__global__ void stage(const uint32_t *in, uint32_t *out, int count, uint32_t add)
{
	cudaTriggerProgrammaticLaunchCompletion();
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	uint32_t factor = add * 2 + 1; // what does not depend on the kernel in front

	cudaGridDependencySynchronize();
	if (i < count)
		out[i] = in[i] * factor + add;
}

int main()
{
	const int count = 100000, stages = 60;
	std::vector<uint32_t> model = random_words(count);
	buffer<uint32_t> first(model), second(count);
	cudaLaunchAttribute attribute = {};
	cudaLaunchConfig_t config = {};
	cudaStream_t stream;

	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	attribute.val.programmaticStreamSerializationAllowed = 1;
	config.gridDim = dim3((count + 255) / 256);
	config.blockDim = dim3(256);
	config.stream = stream;
	config.attrs = &attribute;
	config.numAttrs = 1;
	for (uint32_t s = 0; s < stages; s++) {
		CHECK(cudaLaunchKernelEx(&config, stage, (const uint32_t *)(s % 2 ? second : first).at,
			(s % 2 ? first : second).at, count, s));
		for (auto &value : model)
			value = value * (s * 2 + 1) + s;
	}
	CHECK(cudaStreamSynchronize(stream));
	EXPECT(first.read() == model);
	report("stages", model);
	return 0;
}
