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

uint32_t window_take(struct window_set *set, const struct wire_u64s *free_windows)
{
	for (uint32_t i = 0; i < WINDOW_COUNT; i++) {
		uint32_t window = (set->next + i) % WINDOW_COUNT;

		if (is_set(set->used, WINDOW_COUNT / 64, window) ||
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
