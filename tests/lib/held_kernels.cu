// A kernel that may leave something in the context: memory of the device's heap. A program that has
// looked it up cannot be moved into another executor.

#include <cstdint>

extern "C" __global__ void count_up(uint32_t *word, uint32_t by)
{
	/* Never, as the tests have it. The compiler does not know. */
	uint32_t *more = by ? nullptr : static_cast<uint32_t *>(malloc(sizeof(*more)));

	if (more)
		*word = *more;
	if (threadIdx.x == 0)
		atomicAdd(word, by);
}
