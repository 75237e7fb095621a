// A cooperative launch: all blocks meet several times within one kernel; one grid that does not fit
// is refused.

#include "check.h"

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

/* Prefix sums by doubling: each round reads what all blocks wrote in the round before. */
__global__ void double_up(uint32_t *a, uint32_t *b, int count)
{
	cg::grid_group grid = cg::this_grid();

	for (int distance = 1; distance < count; distance *= 2) {
		for (int i = (int)grid.thread_rank(); i < count; i += (int)grid.size())
			b[i] = a[i] + (i >= distance ? a[i - distance] : 0);
		grid.sync();
		uint32_t *other = a;
		a = b;
		b = other;
	}
}

int main()
{
	int count = 1 << 16, blocks, processors, cooperative;
	std::vector<uint32_t> words = random_words(count), sums;
	buffer<uint32_t> a(words), b(count);
	void *arguments[] = {&a.at, &b.at, &count};

	CHECK(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, 0));
	CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
	CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, double_up, 256, 0));
	printf("cooperative %d, blocks per processor %d\n", cooperative, blocks);
	CHECK(cudaLaunchCooperativeKernel((void *)double_up, processors, 256, arguments, 0, 0));
	sums = a.read(); // sixteen rounds: the result is in the first again
	for (int i = 1; i < count; i++)
		words[i] += words[i - 1];
	EXPECT(sums == words);
	report("sums", sums);
	printf("too many: %s\n", name_of(cudaLaunchCooperativeKernel(
					 (void *)double_up, processors * blocks + 1, 256, arguments, 0, 0)));
	printf("last: %s\n", name_of(cudaGetLastError()));
	return 0;
}
