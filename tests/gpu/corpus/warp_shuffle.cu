// Exchange of registers within a warp: index, up, down, xor, of several types, in parts of a warp;
// warp-wide reductions.

#include "check.h"

__global__ void exchange(const uint32_t *in, uint32_t *out)
{
	const unsigned all = 0xffffffff;
	int lane = threadIdx.x;
	uint32_t mine = in[lane], *row = out + lane;
	double wide = (double)mine * 0.25;

	row[0 * 32] = __shfl_sync(all, mine, 5);
	row[1 * 32] = __shfl_sync(all, mine, lane * 3 + 1);
	row[2 * 32] = __shfl_up_sync(all, mine, 3);
	row[3 * 32] = __shfl_down_sync(all, mine, 7);
	row[4 * 32] = __shfl_xor_sync(all, mine, 21);
	row[5 * 32] = __shfl_down_sync(all, mine, 2, 8);
	row[6 * 32] = (uint32_t)__shfl_xor_sync(all, wide, 1);
	row[7 * 32] = __reduce_add_sync(all, mine);
	row[8 * 32] = __reduce_min_sync(all, mine);
	row[9 * 32] = __reduce_max_sync(all, mine);
	row[10 * 32] = __reduce_and_sync(all, mine | 0x11);
	row[11 * 32] = __reduce_or_sync(all, mine & 0x0f);
	row[12 * 32] = __reduce_xor_sync(all, mine);
	row[13 * 32] = (uint32_t)__reduce_min_sync(all, (int)mine);
	if (lane < 16)
		row[14 * 32] = __reduce_add_sync(0xffff, mine);
	for (int distance = 16; distance > 0; distance /= 2)
		mine += __shfl_xor_sync(all, mine, distance);
	row[15 * 32] = mine;
}

int main()
{
	std::vector<uint32_t> words = random_words(32), back;
	buffer<uint32_t> in(words), out(16 * 32);
	uint32_t sum = 0;

	exchange<<<1, 32>>>(in, out);
	CHECK(cudaGetLastError());
	back = out.read();
	for (uint32_t word : words)
		sum += word;
	for (int lane = 0; lane < 32; lane++) {
		EXPECT(back[lane] == words[5] && back[32 + lane] == words[(lane * 3 + 1) % 32]);
		EXPECT(back[4 * 32 + lane] == words[lane ^ 21]);
		EXPECT(back[7 * 32 + lane] == sum && back[15 * 32 + lane] == sum);
	}
	for (int row = 0; row < 16; row++)
		report("row", std::vector<uint32_t>(back.begin() + row * 32, back.begin() + row * 32 + 32));
	return 0;
}
