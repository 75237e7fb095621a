// The window allocator. See window.h.

#include "server/session/window.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "server/grow.h"
#include "server/log.h"
#include "server/search.h"

#define GRID_END  (WINDOW_GRID_BASE + WINDOW_COUNT * WINDOW_BYTES)
#define GRID_HALF (WINDOW_GRID_BASE + WINDOW_COUNT / 2 * WINDOW_BYTES)

void window_set_deinit(struct window_set *set)
{
	free(set->at);
	*set = (struct window_set){0};
}

/*
 * The list
 */

/* Index of the first window that ends behind an address, or count. */
static uint32_t find(const struct window_set *set, uint64_t address)
{
	return search_above(set->at, set->count, sizeof(*set->at), offsetof(struct window, end), address);
}

static struct window *window_at(const struct window_set *set, uint64_t address)
{
	uint32_t i = find(set, address);

	return i < set->count && set->at[i].start == address ? &set->at[i] : NULL;
}

uint32_t window_users(const struct window_set *set, uint64_t address)
{
	const struct window *window = window_at(set, address);

	return window ? window->users : 0;
}

static void insert(struct window_set *set, uint64_t start, uint64_t bytes)
{
	uint32_t i = find(set, start);

	log_bug_on(!grow(&set->at, set->count, &set->room, sizeof(*set->at)));
	memmove(&set->at[i + 1], &set->at[i], (set->count - i) * sizeof(*set->at));
	set->at[i] = (struct window){start, start + bytes, 1};
	set->count++;
}

static uint32_t field_of(uint64_t address)
{
	return (uint32_t)((address - WINDOW_GRID_BASE) / WINDOW_BYTES);
}

static uint64_t field_base(uint32_t field)
{
	return WINDOW_GRID_BASE + field * WINDOW_BYTES;
}

bool window_is_possible(const struct window_set *set, uint64_t address, uint64_t bytes)
{
	const struct window *window;
	uint32_t i;

	if (address == WINDOW_NONE)
		return true;
	if (address < WINDOW_GRID_BASE || address >= GRID_END || !bytes || bytes > GRID_END - address ||
		address % WINDOW_GRAIN || bytes % WINDOW_GRAIN)
		return false;
	i = find(set, address);
	if (i == set->count)
		return true;
	window = &set->at[i];
	return window->start >= address + bytes ||
	       (window->start == address && window->end == address + bytes);
}

bool window_is_field(uint64_t address)
{
	return address == WINDOW_NONE || (address >= WINDOW_GRID_BASE && address < GRID_END &&
						 (address - WINDOW_GRID_BASE) % WINDOW_BYTES == 0);
}

void window_hold(struct window_set *set, uint64_t address, uint64_t bytes)
{
	struct window *window;

	if (address == WINDOW_NONE)
		return;
	window = window_at(set, address);
	if (window)
		window->users++;
	else
		insert(set, address, bytes);
}

void window_give(struct window_set *set, uint64_t address)
{
	struct window *window;

	if (address == WINDOW_NONE)
		return;
	window = window_at(set, address);
	log_bug_on(!window);
	if (--window->users)
		return;
	memmove(window, window + 1, (size_t)(&set->at[set->count] - (window + 1)) * sizeof(*window));
	set->count--;
}

void window_pass(struct window_set *from, struct window_set *to, uint64_t address)
{
	const struct window *window = window_at(from, address);

	log_bug_on(!window && address != WINDOW_NONE);
	if (!window)
		return;
	window_hold(to, address, window->end - window->start);
	window_give(from, address);
}

/*
 * Places
 */

/* Executables, libraries and stacks of Linux processes lie there (x86-64 and arm64 with 48 bits):
 * the driver gives no such address in an executor, even where it is free in the program. */
static bool is_crowded(uint32_t field)
{
	uint64_t base = field_base(field);

	return (base >= UINT64_C(0x540000000000) && base < UINT64_C(0x580000000000)) ||
	       base >= UINT64_C(0x7c0000000000);
}

static bool is_free_field(const struct wire_u64s *free_windows, uint32_t field)
{
	return !is_crowded(field) && field / 64 < free_windows->count &&
	       (free_windows->at[field / 64] >> field % 64 & 1);
}

/* The lowest obstacle in these bytes of the grid, or nearer than a gap: the begin of the obstacle,
 * with the gap. UINT64_MAX: the bytes are free. */
static uint64_t find_obstacle(const struct window_set *set, uint64_t start, uint64_t end, uint64_t gap,
	const struct wire_u64s *free_windows)
{
	uint64_t lowest = UINT64_MAX;
	uint32_t i = find(set, start - gap);

	if (i < set->count && set->at[i].start < end + gap)
		lowest = set->at[i].start - gap;
	for (uint32_t field = field_of(start); field <= field_of(end - 1); field++)
		if (!is_free_field(free_windows, field))
			return lowest < field_base(field) ? lowest : field_base(field);
	return lowest;
}

void window_set_init(struct window_set *set, unsigned device, unsigned devices)
{
	*set = (struct window_set){.fields = WINDOW_COUNT / devices};
	set->first = set->next = device * set->fields;
}

/* The next free one in turn of some fields. */
static uint64_t take_field(
	struct window_set *set, uint32_t first, uint32_t fields, const struct wire_u64s *free_windows)
{
	uint32_t next = set->next - first < fields ? set->next - first : 0;

	for (uint32_t i = 0; i < fields; i++) {
		uint32_t field = first + (next + i) % fields;
		uint64_t base = field_base(field);

		if (find_obstacle(set, base, base + WINDOW_BYTES, 0, free_windows) != UINT64_MAX)
			continue;
		insert(set, base, WINDOW_BYTES);
		set->next = field + 1;
		return base;
	}
	return WINDOW_NONE;
}

uint64_t window_take(struct window_set *set, const struct wire_u64s *free_windows)
{
	uint64_t base = take_field(set, set->first, set->fields, free_windows);

	return base != WINDOW_NONE ? base : take_field(set, 0, WINDOW_COUNT, free_windows);
}

/* The highest place between two addresses. The place begins with a field: there the driver reserves
 * the requested address; 157 GiB at another address it did not (measured, H200, driver 580). */
static uint64_t find_between(
	const struct window_set *set, uint64_t low, uint64_t end, const struct wire_window *wish)
{
	uint64_t alignment = wish->alignment > WINDOW_BYTES ? wish->alignment : WINDOW_BYTES, start;

	while (end > low && end - low >= wish->bytes) {
		start = (end - wish->bytes) & ~(alignment - 1);
		if (start < low)
			break;
		end = find_obstacle(set, start, start + wish->bytes, WINDOW_GAP, &wish->free_windows);
		if (end == UINT64_MAX)
			return start;
	}
	return WINDOW_NONE;
}

/* From the top, where sessions come last: of a device's own part, which others leave alone, then of
 * the lower half: there the driver honours every wish, and processes have few mappings of their
 * own. */
static uint64_t find_anywhere(const struct window_set *set, const struct wire_window *wish)
{
	uint64_t start = WINDOW_NONE;

	if (set->fields < WINDOW_COUNT)
		start = find_between(set, field_base(set->first), field_base(set->first + set->fields), wish);
	if (start == WINDOW_NONE)
		start = find_between(set, WINDOW_GRID_BASE, GRID_HALF, wish);
	return start != WINDOW_NONE ? start : find_between(set, WINDOW_GRID_BASE, GRID_END, wish);
}

static bool is_free_there(const struct window_set *set, const struct wire_window *wish)
{
	return wish->address >= WINDOW_GRID_BASE && wish->address < GRID_END &&
	       wish->bytes <= GRID_END - wish->address &&
	       find_obstacle(set, wish->address, wish->address + wish->bytes, 0, &wish->free_windows) ==
		       UINT64_MAX;
}

/* True if enough fields are free without these bytes. */
static bool leaves_enough(const struct window_set *set, uint64_t start, uint64_t bytes)
{
	uint32_t count = 0;

	for (uint32_t field = 0; field < WINDOW_COUNT; field++) {
		uint64_t base = field_base(field), end = base + WINDOW_BYTES;
		uint32_t i = find(set, base);

		count += !is_crowded(field) && (i == set->count || set->at[i].start >= end) &&
			 (base >= start + bytes || end <= start);
	}
	return count >= WINDOW_SPARE;
}

uint64_t window_take_further(struct window_set *set, const struct wire_window *wish)
{
	uint64_t start = WINDOW_NONE;

	if (set->count >= WINDOW_MOST)
		return WINDOW_NONE;
	if (!wish->address)
		start = find_anywhere(set, wish);
	else if (is_free_there(set, wish))
		start = wish->address;
	if (start == WINDOW_NONE || !leaves_enough(set, start, wish->bytes))
		return WINDOW_NONE;
	insert(set, start, wish->bytes);
	return start;
}
