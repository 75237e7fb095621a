// Sums of a large array: in shared memory, by shuffles, and with cooperative groups; integers,
// floats in a fixed order.

#include "check.h"

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

template <class T> __global__ void by_shared_memory(const T *in, T *out, int count)
{
	__shared__ T part[256];
	T sum = 0;

	for (int i = blockIdx.x * 256 + threadIdx.x; i < count; i += gridDim.x * 256)
		sum += in[i];
	part[threadIdx.x] = sum;
	__syncthreads();
	for (int step = 128; step > 0; step /= 2) {
		if (threadIdx.x < step)
			part[threadIdx.x] += part[threadIdx.x + step];
		__syncthreads();
	}
	if (threadIdx.x == 0)
		out[blockIdx.x] = part[0];
}

template <class T> __global__ void by_shuffles(const T *in, T *out, int count)
{
	__shared__ T part[8];
	T sum = 0;

	for (int i = blockIdx.x * 256 + threadIdx.x; i < count; i += gridDim.x * 256)
		sum += in[i];
	for (int step = 16; step > 0; step /= 2)
		sum += __shfl_down_sync(0xffffffff, sum, step);
	if (threadIdx.x % 32 == 0)
		part[threadIdx.x / 32] = sum;
	__syncthreads();
	if (threadIdx.x < 8) {
		sum = part[threadIdx.x];
		for (int step = 4; step > 0; step /= 2)
			sum += __shfl_down_sync(0xff, sum, step);
		if (threadIdx.x == 0)
			out[blockIdx.x] = sum;
	}
}

template <class T> __global__ void by_groups(const T *in, T *out, int count)
{
	cg::thread_block block = cg::this_thread_block();
	cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
	__shared__ T part[8];
	T sum = 0;

	for (int i = blockIdx.x * 256 + threadIdx.x; i < count; i += gridDim.x * 256)
		sum += in[i];
	sum = cg::reduce(warp, sum, cg::plus<T>());
	if (warp.thread_rank() == 0)
		part[warp.meta_group_rank()] = sum;
	block.sync();
	if (block.thread_rank() == 0) {
		for (int i = 1; i < 8; i++)
			sum += part[i];
		out[blockIdx.x] = sum;
	}
}

template <class T> static void run(const char *label, const std::vector<T> &values)
{
	const int blocks = 300, count = (int)values.size();
	void (*kernels[])(const T *, T *, int) = {by_shared_memory<T>, by_shuffles<T>, by_groups<T>};
	buffer<T> in(values), parts(blocks), sum(1);

	for (auto kernel : kernels) {
		kernel<<<blocks, 256>>>(in, parts, count);
		kernel<<<1, 256>>>(parts, sum, blocks);
		CHECK(cudaGetLastError());
		report(label, sum.read());
	}
}

int main()
{
	std::vector<uint32_t> words = random_words(3000001);
	std::vector<double> doubles;
	uint32_t sum = 0;

	for (uint32_t word : words) {
		sum += word;
		doubles.push_back((double)word / 1000);
	}
	report("model", std::vector<uint32_t>(1, sum));
	run("words", words);
	run("floats", random_floats(1234567));
	run("doubles", doubles);
	return 0;
}
