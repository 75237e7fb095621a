// CUB: sorting, scans, sums, histograms and run lengths of the whole device; block-wide forms
// inside a kernel.

#include "check.h"

#include <cub/cub.cuh>

/* Asks how much scratch memory an operation needs, provides it, and runs the operation. */
#define WITH_SCRATCH(operation, ...)                                                                         \
	do {                                                                                                 \
		size_t size_ = 0;                                                                            \
		CHECK(operation(nullptr, size_, __VA_ARGS__));                                               \
		buffer<char> scratch_(size_ + 1);                                                            \
		CHECK(operation((void *)scratch_.at, size_, __VA_ARGS__));                                   \
		CHECK(cudaDeviceSynchronize());                                                              \
	} while (0)

__global__ void in_blocks(const uint32_t *in, uint32_t *out, uint32_t *sums)
{
	typedef cub::BlockRadixSort<uint32_t, 128, 4> sort;
	typedef cub::BlockReduce<uint32_t, 128> reduce;
	__shared__ union {
		sort::TempStorage sort;
		reduce::TempStorage reduce;
	} shared;
	uint32_t mine[4];

	cub::LoadDirectBlocked(threadIdx.x, in + blockIdx.x * 512, mine);
	sort(shared.sort).Sort(mine);
	__syncthreads();
	uint32_t sum = reduce(shared.reduce).Sum(mine);
	if (threadIdx.x == 0)
		sums[blockIdx.x] = sum;
	cub::StoreDirectBlocked(threadIdx.x, out + blockIdx.x * 512, mine);
}

int main()
{
	const int count = 512 * 1000;
	std::vector<uint32_t> words = random_words(count), sums = words;
	buffer<uint32_t> in(words), out(count), values(count), moved(count), one(2);
	buffer<int> bins(16), runs(1);

	WITH_SCRATCH(cub::DeviceRadixSort::SortPairs, in.at, out.at, values.at, moved.at, count);
	std::vector<uint32_t> sorted = out.read();
	for (int i = 1; i < count; i++)
		EXPECT(sorted[i - 1] <= sorted[i]);
	report("sorted", sorted);
	WITH_SCRATCH(cub::DeviceRadixSort::SortKeysDescending, in.at, out.at, count, 8, 20);
	report("by some bits", out.read());
	WITH_SCRATCH(cub::DeviceScan::InclusiveSum, in.at, out.at, count);
	for (int i = 1; i < count; i++)
		sums[i] += sums[i - 1];
	EXPECT(out.read() == sums);
	report("scan", sums);
	WITH_SCRATCH(cub::DeviceReduce::Sum, in.at, one.at, count);
	WITH_SCRATCH(cub::DeviceReduce::Max, in.at, one.at + 1, count);
	report("sum and largest", one.read());
	WITH_SCRATCH(cub::DeviceHistogram::HistogramEven, in.at, bins.at, 17, 0u, 0xfffffff0u, count);
	report("bins", bins.read());
	in_blocks<<<count / 512, 128>>>(in, out, values);
	CHECK(cudaGetLastError());
	report("sorted in blocks", out.read());
	report("sums of blocks", values.read());
	WITH_SCRATCH(cub::DeviceRunLengthEncode::Encode, values.at, out.at, moved.at, runs.at, count);
	printf("runs %d\n", runs.read()[0]);
	return 0;
}
