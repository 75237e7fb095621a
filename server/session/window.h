// Addresses of a domain's sessions. Program and executors use the same addresses, so each session
// has its own: its own window, from the begin of the session to its end, and further windows for
// reservations, of the requested sizes. Windows lie from 0x100000000000 to the end of the user's
// half of a 47-bit address space, 104 TiB without the parts that are never used. A session's own
// window is a field of the grid there, of 256 GiB; bits say which fields are free in a process.
// Pure.
//
// Each device of a service has a part of the grid, and takes fields of other parts only when its
// own is full: a program maps one device's memory at the same addresses on another one.
//
// Invariants: windows do not overlap; between a further window and its neighbours is a gap of
// WINDOW_GAP, unless the program has chosen the place.

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
/* Fields in use: processes have their own things in the others (window.c). */
#define WINDOW_USABLE 416u
#define WINDOW_NONE   UINT64_C(0)
/* Size granule of further windows. Where a program has chosen the place, a window begins at a
 * multiple of this granule; else with a field. */
#define WINDOW_GRAIN (UINT64_C(2) << 20)
/* An access beyond the end of a window does not reach the next window. */
#define WINDOW_GAP (UINT64_C(4) << 30)
/* Fields that further windows leave for sessions to come. */
#define WINDOW_SPARE 16u
/* Windows of a domain, when a further window is taken. */
#define WINDOW_MOST 4096u

struct window {
	uint64_t start, end;
	uint32_t users; /* a session, and executors that still have its memory there */
};

struct window_set {
	struct window *at; /* by address */
	uint32_t count, room;
	uint32_t next;		/* field where the search starts: a freed field is not reused at once */
	uint32_t first, fields; /* of the device's part */
};

/** @device: its number among the service's devices; @devices: how many these are */
void window_set_init(struct window_set *set, unsigned device, unsigned devices);
void window_set_deinit(struct window_set *set);

/** Takes a field that is free in both; WINDOW_NONE if there is none. @free_windows: as in Hello;
 * may be short. */
uint64_t window_take(struct window_set *set, const struct wire_u64s *free_windows);

/**
 * Takes a further window whose fields are free in the program.
 * @wish: checked (check.h); with an address: only there
 * Return: WINDOW_NONE if no place is free, or too little would be left
 */
uint64_t window_take_further(struct window_set *set, const struct wire_window *wish);

/** True if a window of an earlier life of the daemon is possible: it lies in the grid, and is in
 * the set with the same bounds or overlaps no window of the set. WINDOW_NONE is fine. */
bool window_is_possible(const struct window_set *set, uint64_t address, uint64_t bytes);
/** True for a field, as window_take() gives, and for WINDOW_NONE. */
bool window_is_field(uint64_t address);

/** Adds a user to a window of the set, or to a window of an earlier life of the daemon, which is
 * added; WINDOW_NONE is fine. */
void window_hold(struct window_set *set, uint64_t address, uint64_t bytes);
/** Removes a user from a window, and with the last user the window; WINDOW_NONE is fine. */
void window_give(struct window_set *set, uint64_t address);

/** Moves one use of a window to another set. */
void window_pass(struct window_set *from, struct window_set *to, uint64_t address);

/** Users of the window that begins there. */
uint32_t window_users(const struct window_set *set, uint64_t address);

#endif
