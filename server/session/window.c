// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// The window allocator. See window.h.

#include "server/session/window.h"

#include <stdbool.h>

static bool is_set(const uint64_t *words, uint32_t count, uint32_t bit)
{
	return bit / 64 < count && (words[bit / 64] >> bit % 64 & 1);
}

/* Where executables, libraries and stacks of Linux processes lie (x86-64 and arm64 with 48 bits): the driver
 * gives no such address in an executor, even where it is free in the client. */
static bool is_crowded(uint32_t window)
{
	uint64_t base = window_base(window);

	return (base >= UINT64_C(0x540000000000) && base < UINT64_C(0x580000000000)) ||
	       base >= UINT64_C(0x7c0000000000);
}

uint32_t window_take(struct window_set *set, const struct wire_u64s *free_windows)
{
	for (uint32_t i = 0; i < WINDOW_COUNT; i++) {
		uint32_t window = (set->next + i) % WINDOW_COUNT;

		if (is_crowded(window) || is_set(set->used, WINDOW_COUNT / 64, window) ||
			!is_set(free_windows->at, free_windows->count, window))
			continue;
		set->used[window / 64] |= UINT64_C(1) << window % 64;
		set->next = (window + 1) % WINDOW_COUNT;
		return window;
	}
	return WINDOW_NONE;
}

void window_give(struct window_set *set, uint32_t window)
{
	if (window != WINDOW_NONE)
		set->used[window / 64] &= ~(UINT64_C(1) << window % 64);
}
