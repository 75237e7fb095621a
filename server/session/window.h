// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// The grid of address windows: 448 windows of 256 GiB from 0x100000000000 to the end of the user's half of a
// 47-bit address space. Each session of a domain has one; client and executors use it at the same address.
// Pure.

#ifndef FRMPS_SERVER_SESSION_WINDOW_H
#define FRMPS_SERVER_SESSION_WINDOW_H

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

struct window_set {
	uint64_t used[WINDOW_COUNT / 64];
	uint32_t next; /* where the search starts: a freed window is not reused at once */
};

/** Takes a window that is free in both; WINDOW_NONE if there is none. @free_windows: as in Hello; may be
 * short. */
uint32_t window_take(struct window_set *set, const struct wire_u64s *free_windows);
/** Gives a window back; WINDOW_NONE is fine. */
void window_give(struct window_set *set, uint32_t window);

static inline uint64_t window_base(uint32_t window)
{
	return WINDOW_GRID_BASE + window * WINDOW_BYTES;
}

#endif
