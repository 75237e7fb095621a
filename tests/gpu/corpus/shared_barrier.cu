// Barriers in shared memory, arrived at and waited for in two steps; groups of threads of several
// sizes; labeled partitions.

#include "check.h"

#include <cooperative_groups.h>
#include <cuda/barrier>

namespace cg = cooperative_groups;

__global__ void hand_over(uint32_t *data, int rounds)
{
	__shared__ cuda::barrier<cuda::thread_scope_block> full, empty;
	__shared__ uint32_t part[128];
	int half = threadIdx.x / 128, mine = threadIdx.x % 128;

	if (threadIdx.x == 0) {
		init(&full, 256);
		init(&empty, 256);
	}
	__syncthreads();
	for (int round = 0; round < rounds; round++)
		if (half == 0) { // the first half makes, the second takes
			empty.arrive_and_wait();
			part[mine] = mine * 1000 + round;
			(void)full.arrive();
		} else {
			(void)empty.arrive();
			full.arrive_and_wait();
			data[mine] = data[mine] * 17 + part[(mine + 1) % 128];
		}
}

__global__ void in_groups(const uint32_t *in, uint32_t *out)
{
	cg::thread_block block = cg::this_thread_block();
	auto four = cg::tiled_partition<4>(block);
	auto sixteen = cg::tiled_partition<16>(block);
	uint32_t mine = in[block.thread_rank()], sum = 0;

	for (int i = 0; i < 4; i++)
		sum += four.shfl(mine, i) * (i + 1);
	sum += sixteen.ballot(mine & 1) + sixteen.any(mine % 13 == 0);
	auto alike = cg::labeled_partition(cg::tiled_partition<32>(block), (int)(mine % 3));
	out[block.thread_rank()] = sum * 100 + (uint32_t)alike.size();
	if (mine % 2) {
		cg::coalesced_group odd = cg::coalesced_threads();

		out[block.thread_rank()] += 7 * odd.thread_rank() + odd.num_threads();
	}
}

int main()
{
	const int rounds = 200;
	buffer<uint32_t> data(128), in(random_words(256)), out(256);
	std::vector<uint32_t> model(128, 0);

	hand_over<<<1, 256>>>(data, rounds);
	in_groups<<<1, 256>>>(in, out);
	CHECK(cudaGetLastError());
	for (int round = 0; round < rounds; round++)
		for (uint32_t i = 0; i < 128; i++)
			model[i] = model[i] * 17 + (i + 1) % 128 * 1000 + round;
	EXPECT(data.read() == model);
	report("handed over", model);
	report("groups", out.read());
	return 0;
}
