// The grid of address windows: 448 windows of 256 GiB from 0x100000000000 to the end of the user's
// half of a 47-bit address space. Each session of a domain has one; program and executors use it at
// the same address. Pure.

#ifndef FRMPS_SERVER_SESSION_WINDOW_H
#define FRMPS_SERVER_SESSION_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/wire.h"

#define WINDOW_GRID_BASE    UINT64_C(0x100000000000)
#define WINDOW_BYTES	    (UINT64_C(256) << 30)
#define WINDOW_DEVICE_BYTES (UINT64_C(192) << 30)
#define WINDOW_HOST_BYTES   (UINT64_C(64) << 30)
#define WINDOW_COUNT	    448u
/* Windows that are given out: the others lie where processes have their own things (window.c). */
#define WINDOW_USABLE 416u
#define WINDOW_NONE   UINT32_MAX
/* Windows that further ones of a session (window_take_run()) leave for others. */
#define WINDOW_SPARE 128u

struct window_set {
	uint8_t users[WINDOW_COUNT]; /* a session, and executors that still have pinned memory there */
	uint32_t next;		     /* where the search starts: a freed window is not reused at once */
};

/** Takes a window that is free in both; WINDOW_NONE if there is none. @free_windows: as in Hello;
 * may be short. */
uint32_t window_take(struct window_set *set, const struct wire_u64s *free_windows);
/** A user of a window that an earlier life of the daemon gave out; WINDOW_NONE is fine. */
void window_adopt(struct window_set *set, uint32_t window);
/** A user gives a window back, and is the last one or not; WINDOW_NONE is fine. */
void window_give(struct window_set *set, uint32_t window);

/**
 * Takes windows side by side that are free in both; WINDOW_NONE if there are none, or too few would
 * be left.
 * Return: the lowest.
 */
uint32_t window_take_run(struct window_set *set, uint32_t count, const struct wire_u64s *free_windows);
/** Whether a range is made of windows of the grid: for what was not taken here. */
bool window_run_is_real(uint64_t address, uint64_t bytes);
/** Whether nobody has any of them. They are real. */
bool window_run_is_free(const struct window_set *set, uint32_t first, uint32_t count);
/** The same windows once more, in another life of the daemon. What is not in the grid is no window,
 * here and in window_give_run(). */
void window_take_again(struct window_set *set, uint32_t first, uint32_t count);
/** Gives them back. */
void window_give_run(struct window_set *set, uint32_t first, uint32_t count);

static inline uint32_t window_at(uint64_t address)
{
	return (uint32_t)((address - WINDOW_GRID_BASE) / WINDOW_BYTES);
}

static inline uint64_t window_base(uint32_t window)
{
	return WINDOW_GRID_BASE + window * WINDOW_BYTES;
}

#endif
