// A second pair of hands for large copies between ordinary memory and the arena: one processor
// moves less than the link to the device carries. One thread per process, made by the first large
// copy; it waits for the next piece on the processor for a short time and then sleeps.

#ifndef FRMPS_CLIENT_STAGE_PORTER_H
#define FRMPS_CLIENT_STAGE_PORTER_H

#include <stdint.h>

/* Pieces below this are not worth the hand-over. */
#define PORTER_LEAST (UINT64_C(256) << 10)

typedef void porter_copy_fn(void *dst, const void *src, uint64_t bytes);

/**
 * Copies with two threads if the other one is free, else alone. Returns when all is copied. The
 * ranges do not overlap. Any thread; several at once.
 */
void porter_copy(porter_copy_fn *copy, void *dst, const void *src, uint64_t bytes);

#endif
