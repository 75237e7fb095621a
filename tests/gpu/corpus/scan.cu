// Prefix sums over many blocks: scans of blocks, of their totals, and the addition of these, in
// three launches.

#include "check.h"

const int width = 512;

__global__ void scan_blocks(const uint32_t *in, uint32_t *out, uint32_t *totals, int count)
{
	__shared__ uint32_t part[2][width];
	int i = blockIdx.x * width + threadIdx.x, from = 0;

	part[0][threadIdx.x] = i < count ? in[i] : 0;
	__syncthreads();
	for (int distance = 1; distance < width; distance *= 2) {
		uint32_t sum = part[from][threadIdx.x];

		if (threadIdx.x >= distance)
			sum += part[from][threadIdx.x - distance];
		from = 1 - from;
		part[from][threadIdx.x] = sum;
		__syncthreads();
	}
	if (i < count)
		out[i] = part[from][threadIdx.x];
	if (threadIdx.x == width - 1)
		totals[blockIdx.x] = part[from][threadIdx.x];
}

__global__ void add_totals(uint32_t *out, const uint32_t *totals, int count)
{
	int i = (blockIdx.x + 1) * width + threadIdx.x;

	if (i < count)
		out[i] += totals[blockIdx.x];
}

static void scan(const uint32_t *in, uint32_t *out, int count)
{
	int blocks = (count + width - 1) / width;
	buffer<uint32_t> totals(blocks), sums(blocks);

	scan_blocks<<<blocks, width>>>(in, out, totals, count);
	CHECK(cudaGetLastError());
	if (blocks == 1)
		return;
	scan(totals, sums, blocks);
	add_totals<<<blocks - 1, width>>>(out, sums, count);
	CHECK(cudaGetLastError());
}

int main()
{
	for (int count : {1, 511, 512, 513, 100000, 3000000}) {
		std::vector<uint32_t> words = random_words(count);
		buffer<uint32_t> in(words), out(count);

		scan(in, out, count);
		for (int i = 1; i < count; i++)
			words[i] += words[i - 1];
		EXPECT(out.read() == words);
		report("scan", words);
	}
	return 0;
}
