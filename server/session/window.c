// The window allocator. See window.h.

#include "server/session/window.h"

#include "server/log.h"

static bool is_set(const uint64_t *words, uint32_t count, uint32_t bit)
{
	return bit / 64 < count && (words[bit / 64] >> bit % 64 & 1);
}

/* Where executables, libraries and stacks of Linux processes lie (x86-64 and arm64 with 48 bits):
 * the driver gives no such address in an executor, even where it is free in the program. */
static bool is_crowded(uint32_t window)
{
	uint64_t base = window_base(window);

	return (base >= UINT64_C(0x540000000000) && base < UINT64_C(0x580000000000)) ||
	       base >= UINT64_C(0x7c0000000000);
}

static bool is_free(const struct window_set *set, uint32_t window)
{
	return !is_crowded(window) && !set->users[window];
}

uint32_t window_take(struct window_set *set, const struct wire_u64s *free_windows)
{
	for (uint32_t i = 0; i < WINDOW_COUNT; i++) {
		uint32_t window = (set->next + i) % WINDOW_COUNT;

		if (!is_free(set, window) || !is_set(free_windows->at, free_windows->count, window))
			continue;
		set->users[window] = 1;
		set->next = (window + 1) % WINDOW_COUNT;
		return window;
	}
	return WINDOW_NONE;
}

void window_adopt(struct window_set *set, uint32_t window)
{
	if (window >= WINDOW_COUNT)
		return;
	set->users[window]++;
	if (set->next <= window)
		set->next = (window + 1) % WINDOW_COUNT;
}

void window_give(struct window_set *set, uint32_t window)
{
	if (window >= WINDOW_COUNT)
		return;
	log_bug_on(!set->users[window]);
	set->users[window]--;
}

static bool is_free_run(
	const struct window_set *set, uint32_t first, uint32_t count, const struct wire_u64s *free_windows)
{
	for (uint32_t i = first; i < first + count; i++)
		if (!is_free(set, i) || !is_set(free_windows->at, free_windows->count, i))
			return false;
	return true;
}

/* The highest free run that ends below a window. */
static uint32_t find_run(
	const struct window_set *set, uint32_t below, uint32_t count, const struct wire_u64s *free_windows)
{
	for (uint32_t first = below >= count ? below - count + 1 : 0; first-- > 0;)
		if (is_free_run(set, first, count, free_windows))
			return first;
	return WINDOW_NONE;
}

/* From the top, where sessions come last, and of the lower half first: there the driver honours
 * every wish, and processes have little of their own. The same question has the same answer. */
uint32_t window_take_run(struct window_set *set, uint32_t count, const struct wire_u64s *free_windows)
{
	uint32_t left = 0, first;

	for (uint32_t i = 0; i < WINDOW_COUNT; i++)
		left += is_free(set, i);
	if (!count || left < count + WINDOW_SPARE)
		return WINDOW_NONE;
	first = find_run(set, WINDOW_COUNT / 2, count, free_windows);
	if (first == WINDOW_NONE)
		first = find_run(set, WINDOW_COUNT, count, free_windows);
	if (first != WINDOW_NONE)
		window_take_again(set, first, count);
	return first;
}

bool window_run_is_real(uint64_t address, uint64_t bytes)
{
	const uint64_t grid = WINDOW_COUNT * WINDOW_BYTES;
	uint64_t offset = address - WINDOW_GRID_BASE;

	return bytes && offset < grid && bytes <= grid - offset && !(offset % WINDOW_BYTES) &&
	       !(bytes % WINDOW_BYTES);
}

bool window_run_is_free(const struct window_set *set, uint32_t first, uint32_t count)
{
	for (uint32_t i = first; i < first + count; i++)
		if (!is_free(set, i))
			return false;
	return true;
}

void window_take_again(struct window_set *set, uint32_t first, uint32_t count)
{
	for (uint64_t i = first; i < (uint64_t)first + count && i < WINDOW_COUNT; i++)
		set->users[i]++;
}

void window_give_run(struct window_set *set, uint32_t first, uint32_t count)
{
	for (uint64_t i = first; i < (uint64_t)first + count && i < WINDOW_COUNT; i++)
		window_give(set, (uint32_t)i);
}
