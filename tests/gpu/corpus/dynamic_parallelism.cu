// Kernels that launch kernels: fire-and-forget and tail launches, a quicksort by recursion, a
// stream made on the device.

#include "check.h"

__device__ unsigned leaves;

__global__ void tree(int depth)
{
	if (depth == 0) {
		atomicAdd(&leaves, 1u);
		return;
	}
	if (threadIdx.x < 2)
		tree<<<1, 2, 0, cudaStreamFireAndForget>>>(depth - 1);
}

__global__ void count_leaves(unsigned *out)
{
	*out = leaves;
}

__global__ void root(int depth, unsigned *out)
{
	tree<<<1, 2>>>(depth);
	count_leaves<<<1, 1, 0, cudaStreamTailLaunch>>>(out);
}

__global__ void sort(uint32_t *data, int low, int high, int depth)
{
	if (high - low < 24 || depth == 20) {
		for (int i = low + 1; i <= high; i++)
			for (int k = i; k > low && data[k] < data[k - 1]; k--) {
				uint32_t value = data[k];
				data[k] = data[k - 1];
				data[k - 1] = value;
			}
		return;
	}
	uint32_t pivot = data[(low + high) / 2];
	int i = low, k = high;
	while (i <= k) {
		while (data[i] < pivot)
			i++;
		while (data[k] > pivot)
			k--;
		if (i <= k) {
			uint32_t value = data[i];
			data[i++] = data[k];
			data[k--] = value;
		}
	}
	cudaStream_t stream;
	cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
	if (low < k)
		sort<<<1, 1, 0, stream>>>(data, low, k, depth + 1);
	if (i < high)
		sort<<<1, 1, 0, cudaStreamFireAndForget>>>(data, i, high, depth + 1);
	cudaStreamDestroy(stream);
}

int main()
{
	const int count = 3000;
	std::vector<uint32_t> words = random_words(count), sorted;
	buffer<uint32_t> data(words);
	buffer<unsigned> out(1);

	root<<<1, 1>>>(8, out);
	CHECK(cudaGetLastError());
	printf("leaves %u\n", out.read()[0]);
	EXPECT(out.read()[0] == 512);
	sort<<<1, 1>>>(data, 0, count - 1, 0);
	CHECK(cudaGetLastError());
	sorted = data.read();
	for (int i = 1; i < count; i++)
		EXPECT(sorted[i - 1] <= sorted[i]);
	report("sorted", sorted);
	return 0;
}
