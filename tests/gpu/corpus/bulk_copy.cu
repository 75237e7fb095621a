// Bulk asynchronous copies between global and shared memory without a tensor map, several in flight
// on one barrier.

#include "check.h"

#include <cuda/barrier>

using barrier = cuda::barrier<cuda::thread_scope_block>;
namespace cde = cuda::device::experimental;

const int width = 1024;

__global__ void add_three(const uint32_t *in, uint32_t *out, int rows)
{
	__shared__ alignas(128) uint32_t part[3][width];
	__shared__ barrier arrived;
	barrier::arrival_token token;

	if (threadIdx.x == 0) {
		init(&arrived, blockDim.x);
		cde::fence_proxy_async_shared_cta();
	}
	__syncthreads();
	if (threadIdx.x == 0) {
		for (int i = 0; i < 3; i++)
			cde::cp_async_bulk_global_to_shared(
				part[i], in + (blockIdx.x + i * 7) % rows * width, sizeof(part[i]), arrived);
		token = cuda::device::barrier_arrive_tx(arrived, 1, sizeof(part));
	} else {
		token = arrived.arrive();
	}
	arrived.wait(std::move(token));
	for (int i = threadIdx.x; i < width; i += blockDim.x)
		part[0][i] += part[1][i] * 3 + part[2][i] * 5;
	cde::fence_proxy_async_shared_cta();
	__syncthreads();
	if (threadIdx.x == 0) {
		cde::cp_async_bulk_shared_to_global(out + blockIdx.x * width, part[0], sizeof(part[0]));
		cde::cp_async_bulk_commit_group();
		cde::cp_async_bulk_wait_group_read<0>();
	}
	__syncthreads();
}

int main()
{
	const int rows = 300;
	std::vector<uint32_t> words = random_words(rows * width), model(words.size());
	buffer<uint32_t> in(words), out(words.size());

	for (int row = 0; row < rows; row++)
		for (int i = 0; i < width; i++)
			model[row * width + i] = words[row * width + i] +
						 words[(row + 7) % rows * width + i] * 3 +
						 words[(row + 14) % rows * width + i] * 5;
	add_three<<<rows, 256>>>(in, out, rows);
	CHECK(cudaGetLastError());
	EXPECT(out.read() == model);
	report("rows", model);
	return 0;
}
