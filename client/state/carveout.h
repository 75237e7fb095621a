// How much of a multiprocessor's memory is shared memory, by the preference of a kernel. Pure
// arithmetic.

#ifndef FRMPS_CLIENT_STATE_CARVEOUT_H
#define FRMPS_CLIENT_STATE_CARVEOUT_H

#include <stdint.h>

/**
 * Bytes of the smallest size that is the preferred part of the most, and holds a block.
 * @most: bytes that a multiprocessor can have; @percent: 0 to 100; @block: bytes
 */
uint64_t carveout_bytes(uint64_t most, int percent, uint64_t block);

#endif
