// Asynchronous copies from global to shared memory: cuda::memcpy_async with a pipeline of several
// stages, and cp.async itself.

#include "check.h"

#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/pipeline>
#include <cuda_pipeline.h>

namespace cg = cooperative_groups;

const int width = 256, stages = 3;

__global__ void in_stages(const uint32_t *in, uint32_t *out, int batches)
{
	__shared__ alignas(16) uint32_t part[stages][width];
	__shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, stages> state;
	cg::thread_block block = cg::this_thread_block();
	auto pipeline = cuda::make_pipeline(block, &state);
	const uint32_t *mine = in + blockIdx.x * batches * width;
	uint32_t sum = 0;

	for (int next = 0, batch = 0; batch < batches; batch++) {
		for (; next < batches && next < batch + stages; next++) {
			pipeline.producer_acquire();
			cuda::memcpy_async(block, part[next % stages], mine + next * width,
				cuda::aligned_size_t<16>(width * sizeof(uint32_t)), pipeline);
			pipeline.producer_commit();
		}
		pipeline.consumer_wait();
		block.sync();
		sum = sum * 31 + part[batch % stages][(threadIdx.x * 7 + batch) % width];
		pipeline.consumer_release();
	}
	out[blockIdx.x * width + threadIdx.x] = sum;
}

__global__ void by_primitives(const uint32_t *in, uint32_t *out, int batches)
{
	__shared__ uint32_t part[2][width];
	const uint32_t *mine = in + blockIdx.x * batches * width + threadIdx.x;
	uint32_t sum = 0;

	__pipeline_memcpy_async(&part[0][threadIdx.x], mine, sizeof(uint32_t));
	__pipeline_commit();
	for (int batch = 0; batch < batches; batch++) {
		if (batch + 1 < batches)
			__pipeline_memcpy_async(&part[(batch + 1) % 2][threadIdx.x],
				mine + (batch + 1) * width, sizeof(uint32_t));
		__pipeline_commit();
		__pipeline_wait_prior(1);
		__syncthreads();
		sum = sum * 31 + part[batch % 2][(threadIdx.x * 7 + batch) % width];
		__syncthreads();
	}
	out[blockIdx.x * width + threadIdx.x] = sum;
}

int main()
{
	const int blocks = 64, batches = 20;
	std::vector<uint32_t> words = random_words(blocks * batches * width), model(blocks * width, 0);
	buffer<uint32_t> in(words), out(model.size());

	for (int block = 0; block < blocks; block++)
		for (int thread = 0; thread < width; thread++)
			for (int batch = 0; batch < batches; batch++)
				model[block * width + thread] = model[block * width + thread] * 31 +
								words[(block * batches + batch) * width +
									(thread * 7 + batch) % width];
	in_stages<<<blocks, width>>>(in, out, batches);
	CHECK(cudaGetLastError());
	EXPECT(out.read() == model);
	CHECK(cudaMemset(out, 0, out.bytes()));
	by_primitives<<<blocks, width>>>(in, out, batches);
	CHECK(cudaGetLastError());
	EXPECT(out.read() == model);
	report("mixed", model);
	return 0;
}
