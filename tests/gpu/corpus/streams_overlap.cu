// Chunks of pinned memory go in, through a kernel and out again in several streams; the result
// is the same with any number of them.

#include "check.h"

__global__ void stir(uint32_t *data, size_t count)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
		i += (size_t)gridDim.x * blockDim.x)
		for (int round = 0; round < 100; round++)
			data[i] = data[i] * 1664525u + 1013904223u;
}

static std::vector<uint32_t> run(const std::vector<uint32_t> &input, int streams)
{
	const int chunks = 32;
	const size_t part = input.size() / chunks;
	std::vector<cudaStream_t> stream(streams);
	uint32_t *in, *out;
	buffer<uint32_t> device(input.size());

	CHECK(cudaMallocHost(&in, device.bytes()));
	CHECK(cudaMallocHost(&out, device.bytes()));
	memcpy(in, input.data(), device.bytes());
	for (auto &each : stream)
		CHECK(cudaStreamCreateWithFlags(&each, cudaStreamNonBlocking));
	for (int chunk = 0; chunk < chunks; chunk++) {
		cudaStream_t s = stream[chunk % streams];
		size_t at = chunk * part;

		CHECK(cudaMemcpyAsync(device + at, in + at, part * 4, cudaMemcpyHostToDevice, s));
		stir<<<16, 128, 0, s>>>(device + at, part);
		CHECK(cudaMemcpyAsync(out + at, device + at, part * 4, cudaMemcpyDeviceToHost, s));
	}
	CHECK(cudaGetLastError());
	for (auto each : stream) {
		CHECK(cudaStreamSynchronize(each));
		CHECK(cudaStreamDestroy(each));
	}
	std::vector<uint32_t> result(out, out + input.size());
	CHECK(cudaFreeHost(in));
	CHECK(cudaFreeHost(out));
	return result;
}

int main()
{
	std::vector<uint32_t> input = random_words(1 << 21), model = input;

	for (uint32_t &word : model)
		for (int round = 0; round < 100; round++)
			word = word * 1664525u + 1013904223u;
	EXPECT(run(input, 1) == model);
	EXPECT(run(input, 4) == model);
	EXPECT(run(input, 13) == model);
	report("stirred", model);
	return 0;
}
