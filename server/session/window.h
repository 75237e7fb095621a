// Addresses of a domain's sessions. Program and executors use the same ones, so each session has
// some for itself: its own window, from the beginning to its end, and further windows for what it
// reserves, of the size that it asks for. They lie from 0x100000000000 to the end of the user's
// half of a 47-bit address space, 104 TiB without the parts that are never given out. A session's
// own window is a field of the grid there, of 256 GiB; which fields are free in a process is said
// in bits. Pure.
//
// Invariants: windows do not overlap; between a further window and its neighbours is a gap of
// WINDOW_GAP, unless its program has chosen its place.

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
/* Fields that are given out: the others lie where processes have their own things (window.c). */
#define WINDOW_USABLE 416u
#define WINDOW_NONE   UINT64_C(0)
/* Further windows have multiples of this, and begin at one where a program has chosen the place;
 * else with a field. */
#define WINDOW_GRAIN (UINT64_C(2) << 20)
/* What runs over the end of one does not reach the next. */
#define WINDOW_GAP (UINT64_C(4) << 30)
/* Fields that further windows leave for sessions to come. */
#define WINDOW_SPARE 16u
/* Windows of a domain, when a further one is taken. */
#define WINDOW_MOST 4096u

struct window {
	uint64_t start, end;
	uint32_t users; /* a session, and executors that still have its memory there */
};

struct window_set {
	struct window *at; /* by address */
	uint32_t count, room;
	uint32_t next; /* field where the search starts: a freed one is not reused at once */
};

void window_set_deinit(struct window_set *set);

/** Takes a field that is free in both; WINDOW_NONE if there is none. @free_windows: as in Hello;
 * may be short. */
uint64_t window_take(struct window_set *set, const struct wire_u64s *free_windows);

/**
 * Takes a further window whose fields are free in the program.
 * @wish: checked (check.h); with an address: there or nowhere
 * Return: WINDOW_NONE if there is none, or too little would be left
 */
uint64_t window_take_further(struct window_set *set, const struct wire_window *wish);

/** Whether one that an earlier life of the daemon gave out can be one: it lies in the grid, and is
 * in the set as it is or touches none that is. WINDOW_NONE is fine. */
bool window_is_possible(const struct window_set *set, uint64_t address, uint64_t bytes);
/** Whether it is a field, as window_take() gives them, or WINDOW_NONE. */
bool window_is_field(uint64_t address);

/** One user more, of one that there is or that an earlier life of the daemon gave out; WINDOW_NONE
 * is fine. */
void window_hold(struct window_set *set, uint64_t address, uint64_t bytes);
/** A user gives one back, and is the last one or not; WINDOW_NONE is fine. */
void window_give(struct window_set *set, uint64_t address);

/** A user takes one along to another set. */
void window_pass(struct window_set *from, struct window_set *to, uint64_t address);

/** Users of the window that begins there. */
uint32_t window_users(const struct window_set *set, uint64_t address);

#endif
