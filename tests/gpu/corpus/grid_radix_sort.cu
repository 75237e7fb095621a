// A radix sort of many blocks in one cooperative kernel: counts, a scan over the grid and the
// moves, a digit at a time.

#include "check.h"

#include <algorithm>
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

const int digits = 16, blocks = 64, threads = 64, workers = blocks * threads;

__global__ void sort(uint32_t *from, uint32_t *to, int count, unsigned *counts)
{
	cg::grid_group grid = cg::this_grid();
	int worker = (int)grid.thread_rank(), share = (count + workers - 1) / workers;
	int begin = min(worker * share, count), end = min(begin + share, count);

	for (int shift = 0; shift < 32; shift += 4) {
		unsigned mine[digits] = {};

		for (int i = begin; i < end; i++)
			mine[from[i] >> shift & 15]++;
		for (int d = 0; d < digits; d++)
			counts[d * workers + worker] = mine[d];
		grid.sync();
		if (worker == 0) { // one thread adds up what all have counted
			unsigned sum = 0;

			for (int i = 0; i < digits * workers; i++) {
				unsigned count_here = counts[i];
				counts[i] = sum;
				sum += count_here;
			}
		}
		grid.sync();
		for (int d = 0; d < digits; d++)
			mine[d] = counts[d * workers + worker];
		for (int i = begin; i < end; i++)
			to[mine[from[i] >> shift & 15]++] = from[i];
		grid.sync();
		uint32_t *other = from;
		from = to;
		to = other;
	}
}

int main()
{
	for (int count : {1, 1000, 1 << 18}) {
		std::vector<uint32_t> words = random_words(count);
		buffer<uint32_t> from(words), to(count);
		buffer<unsigned> counts(digits * workers);
		void *arguments[] = {&from.at, &to.at, &count, &counts.at};

		CHECK(cudaLaunchCooperativeKernel((void *)sort, blocks, threads, arguments, 0, 0));
		std::sort(words.begin(), words.end());
		EXPECT(from.read() == words);
		report("sorted", words);
	}
	return 0;
}
