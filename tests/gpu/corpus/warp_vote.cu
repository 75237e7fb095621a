// Votes and matches within a warp, the mask of active threads in diverged code, and counting of a
// block's threads.

#include "check.h"

__global__ void vote(const uint32_t *in, uint32_t *out)
{
	const unsigned all = 0xffffffff;
	int lane = threadIdx.x, same;
	uint32_t mine = in[lane], *row = out + lane;

	row[0 * 32] = __ballot_sync(all, mine & 1);
	row[1 * 32] = __any_sync(all, mine % 97 == 5);
	row[2 * 32] = __all_sync(all, mine != 0x12345678);
	row[3 * 32] = __match_any_sync(all, mine % 4);
	row[4 * 32] = __match_all_sync(all, 42, &same);
	row[5 * 32] = same;
	row[6 * 32] = __match_all_sync(all, mine, &same);
	row[7 * 32] = same;
	if (lane % 3 == 0)
		row[8 * 32] = __ballot_sync(0x49249249, mine & 2);
	row[9 * 32] = __popc(__ballot_sync(all, mine & 4) & ((1u << lane) - 1));
}

__global__ void count_threads(const uint32_t *in, int *out)
{
	uint32_t mine = in[threadIdx.x % 32] * (threadIdx.x + 1);
	int odd = __syncthreads_count(mine & 1), every = __syncthreads_and(mine != 0),
	    some = __syncthreads_or(mine % 1000 == 7);

	if (threadIdx.x == 0) {
		out[0] = odd;
		out[1] = every;
		out[2] = some;
	}
}

int main()
{
	std::vector<uint32_t> words = random_words(32), back;
	buffer<uint32_t> in(words), out(10 * 32);
	buffer<int> counts(3);
	uint32_t odd = 0;

	vote<<<1, 32>>>(in, out);
	count_threads<<<1, 700>>>(in, counts);
	CHECK(cudaGetLastError());
	back = out.read();
	for (int lane = 0; lane < 32; lane++)
		odd |= (words[lane] & 1) << lane;
	EXPECT(back[17] == odd);
	for (int row = 0; row < 10; row++)
		report("row", std::vector<uint32_t>(back.begin() + row * 32, back.begin() + row * 32 + 32));
	for (int count : counts.read())
		printf("count %d\n", count);
	return 0;
}
