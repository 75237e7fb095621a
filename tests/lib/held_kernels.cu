// Kernels that may leave something in the context: memory of the device's heap. A program that has
// looked one up cannot be moved into another executor.

#include <cstdint>

static __device__ uint32_t tally = 1000;

/* Never any, as the tests have it. The compiler does not know. */
static __device__ uint32_t from_heap(uint32_t by)
{
	uint32_t *more = by ? nullptr : static_cast<uint32_t *>(malloc(sizeof(*more)));

	return more ? *more : 0;
}

extern "C" {

__global__ void count_up(uint32_t *word, uint32_t by)
{
	uint32_t more = from_heap(by);

	if (more)
		*word = more;
	if (threadIdx.x == 0)
		atomicAdd(word, by);
}

__global__ void tally_up(uint32_t by)
{
	atomicAdd(&tally, by + from_heap(by));
}

__global__ void read_tally(uint32_t *out)
{
	*out = tally;
}
}
