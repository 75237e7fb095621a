// Many copies in one call: the batch arrives whole and in stream order, from pinned and from device
// memory.

#include "check.h"

int main()
{
	const size_t parts = 40, size = 1000;
	std::vector<uint32_t> words = random_words(parts * size);
	buffer<uint32_t> device(words.size()), second(words.size());
	std::vector<const void *> sources;
	std::vector<void *> targets;
	std::vector<size_t> sizes;
	cudaMemcpyAttributes attributes = {};
	size_t first = 0;
	cudaStream_t stream;
	uint32_t *pinned;

	CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	CHECK(cudaMallocHost(&pinned, device.bytes()));
	memcpy(pinned, words.data(), device.bytes());
	for (size_t part = 0; part < parts; part++) { // the parts change places
		sources.push_back(pinned + part * size);
		targets.push_back(device + (parts - 1 - part) * size);
		sizes.push_back(size * sizeof(uint32_t));
	}
	attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
	CHECK(cudaMemcpyBatchAsync(
		targets.data(), sources.data(), sizes.data(), parts, &attributes, &first, 1, stream));
	for (size_t part = 0; part < parts; part++) { // and back
		sources[part] = device + part * size;
		targets[part] = second + (parts - 1 - part) * size;
	}
	CHECK(cudaMemcpyBatchAsync(
		targets.data(), sources.data(), sizes.data(), parts, &attributes, &first, 1, stream));
	CHECK(cudaStreamSynchronize(stream));
	EXPECT(second.read() == words);
	report("turned", device.read());
	CHECK(cudaFreeHost(pinned));
	return 0;
}
