// Histograms of bytes: in shared memory with atomics and merged, and of 64 bins without atomics, a
// row a thread.

#include "check.h"

__global__ void count_bytes(const uint32_t *data, size_t words, unsigned *bins)
{
	__shared__ unsigned part[256];

	part[threadIdx.x] = 0;
	__syncthreads();
	for (size_t i = blockIdx.x * 256 + threadIdx.x; i < words; i += gridDim.x * 256)
		for (int shift = 0; shift < 32; shift += 8)
			atomicAdd(&part[data[i] >> shift & 255], 1u);
	__syncthreads();
	atomicAdd(&bins[threadIdx.x], part[threadIdx.x]);
}

__global__ void count_sixty_four(const uint32_t *data, size_t words, unsigned *rows)
{
	__shared__ uint16_t row[64][64]; // [bin][thread]

	for (int bin = 0; bin < 64; bin++)
		row[bin][threadIdx.x] = 0;
	for (size_t i = blockIdx.x * 64 + threadIdx.x; i < words; i += gridDim.x * 64)
		for (int shift = 2; shift < 32; shift += 8)
			row[data[i] >> shift & 63][threadIdx.x]++;
	__syncthreads();
	unsigned sum = 0;
	for (int thread = 0; thread < 64; thread++)
		sum += row[threadIdx.x][thread];
	rows[blockIdx.x * 64 + threadIdx.x] = sum;
}

int main()
{
	const size_t words = 1 << 20;
	const int blocks = 200;
	std::vector<uint32_t> data = random_words(words);
	std::vector<unsigned> model(256, 0), coarse(64, 0), rows, merged(64, 0);
	buffer<uint32_t> device(data);
	buffer<unsigned> bins(256), parts(blocks * 64);

	for (uint32_t word : data)
		for (int shift = 0; shift < 32; shift += 8) {
			model[word >> shift & 255]++;
			coarse[(word >> shift & 255) >> 2]++;
		}
	count_bytes<<<132, 256>>>(device, words, bins);
	count_sixty_four<<<blocks, 64>>>(device, words, parts);
	CHECK(cudaGetLastError());
	rows = parts.read();
	for (size_t i = 0; i < rows.size(); i++)
		merged[i % 64] += rows[i];
	EXPECT(bins.read() == model && merged == coarse);
	report("bytes", model);
	report("sixty-four", merged);
	return 0;
}
