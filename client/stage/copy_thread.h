// A second thread for large copies between pageable memory and the arena: a single processor copies
// slower than the link to the device. The first large copy makes the thread, of which a process has
// one. It spins for the next piece for a short time and then sleeps.

#ifndef FRMPS_CLIENT_STAGE_COPY_THREAD_H
#define FRMPS_CLIENT_STAGE_COPY_THREAD_H

#include <stdint.h>

/* Smaller pieces are not worth the hand-over. */
#define COPY_THREAD_LEAST (UINT64_C(256) << 10)

typedef void copy_thread_fn(void *dst, const void *src, uint64_t bytes);

/**
 * Copies with two threads if the copy thread is free, else alone. Returns when all is copied. The
 * ranges do not overlap. Any thread; several at once.
 */
void copy_thread_copy(copy_thread_fn *copy, void *dst, const void *src, uint64_t bytes);

#endif
