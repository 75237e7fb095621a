// See carveout.h.

#include "client/state/carveout.h"

#include <stddef.h>

uint64_t carveout_bytes(uint64_t most, int percent, uint64_t block)
{
	/* In KiB. A device has those up to its most. */
	static const uint16_t sizes[] = {8, 16, 32, 64, 100, 132, 164, 196};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
		uint64_t bytes = (uint64_t)sizes[i] << 10;

		if (bytes < most && bytes >= block && 100 * bytes >= (uint64_t)percent * most)
			return bytes;
	}
	return most;
}
