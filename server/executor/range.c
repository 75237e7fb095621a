// Sets of address ranges. See range.h for the threads. Invariant: at[0..count) is sorted by start
// and disjoint; in a merging set no two ranges touch.

#include "server/executor/range.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "server/grow.h"
#include "server/search.h"

void range_set_init(struct range_set *set, bool merges)
{
	*set = (struct range_set){.merges = merges};
	pthread_rwlock_init(&set->lock, NULL);
}

void range_set_deinit(struct range_set *set)
{
	free(set->at);
	set->at = NULL;
	set->count = set->room = 0;
	pthread_rwlock_destroy(&set->lock);
}

/* Index of the first range that ends behind `address`. */
static uint32_t find(const struct range_set *set, uint64_t address)
{
	return search_above(set->at, set->count, sizeof(*set->at), offsetof(struct range, end), address);
}

static bool reserve_one(struct range_set *set)
{
	return grow(&set->at, set->count, &set->room, sizeof(*set->at));
}

/* Puts `count` ranges (0 … 2) in the place of at[from … to-1]; room was reserved. */
static void replace(
	struct range_set *set, uint32_t from, uint32_t to, const struct range *with, uint32_t count)
{
	memmove(&set->at[from + count], &set->at[to], (set->count - to) * sizeof(*set->at));
	if (count)
		memcpy(&set->at[from], with, count * sizeof(*with));
	set->count = set->count - (to - from) + count;
}

static int add_merging(struct range_set *set, struct range range)
{
	/* The first range that touches or overlaps ends at or behind range.start. */
	uint32_t from = find(set, range.start ? range.start - 1 : 0), to = from;

	while (to < set->count && set->at[to].start <= range.end) {
		if (set->at[to].start < range.start)
			range.start = set->at[to].start;
		if (set->at[to].end > range.end)
			range.end = set->at[to].end;
		to++;
	}
	replace(set, from, to, &range, 1);
	return 0;
}

static int add_exact(struct range_set *set, struct range range)
{
	uint32_t at = find(set, range.start);

	if (at < set->count && set->at[at].start < range.end)
		return RANGE_E_TAKEN;
	replace(set, at, at, &range, 1);
	return 0;
}

int range_set_add(struct range_set *set, uint64_t address, uint64_t bytes)
{
	struct range range = {address, address + bytes};
	int error = -ENOMEM;

	if (range.end <= range.start)
		return RANGE_E_EMPTY;
	pthread_rwlock_wrlock(&set->lock);
	if (reserve_one(set))
		error = set->merges ? add_merging(set, range) : add_exact(set, range);
	pthread_rwlock_unlock(&set->lock);
	return error;
}

static int remove_merging(struct range_set *set, struct range range)
{
	uint32_t from = find(set, range.start), to = from, left = 0;
	struct range keep[2];

	while (to < set->count && set->at[to].start < range.end)
		to++;
	if (from == to)
		return RANGE_E_ABSENT;
	if (set->at[from].start < range.start)
		keep[left++] = (struct range){set->at[from].start, range.start};
	if (set->at[to - 1].end > range.end)
		keep[left++] = (struct range){range.end, set->at[to - 1].end};
	replace(set, from, to, keep, left);
	return 0;
}

static int remove_exact(struct range_set *set, struct range range)
{
	uint32_t at = find(set, range.start);

	if (at == set->count || set->at[at].start != range.start || set->at[at].end != range.end)
		return RANGE_E_ABSENT;
	replace(set, at, at + 1, NULL, 0);
	return 0;
}

int range_set_remove(struct range_set *set, uint64_t address, uint64_t bytes)
{
	struct range range = {address, address + bytes};
	int error = -ENOMEM;

	if (range.end <= range.start)
		return RANGE_E_EMPTY;
	pthread_rwlock_wrlock(&set->lock);
	if (reserve_one(set))
		error = set->merges ? remove_merging(set, range) : remove_exact(set, range);
	if (!error)
		word_release(&set->version, word_relaxed(&set->version) + 1);
	pthread_rwlock_unlock(&set->lock);
	return error;
}

int range_set_pop(struct range_set *set, struct range *ret_range)
{
	int error = RANGE_E_ABSENT;

	pthread_rwlock_wrlock(&set->lock);
	if (set->count) {
		*ret_range = set->at[--set->count];
		word_release(&set->version, word_relaxed(&set->version) + 1);
		error = 0;
	}
	pthread_rwlock_unlock(&set->lock);
	return error;
}

bool range_set_is_empty(struct range_set *set)
{
	bool empty;

	pthread_rwlock_rdlock(&set->lock);
	empty = !set->count;
	pthread_rwlock_unlock(&set->lock);
	return empty;
}

bool range_set_covers_slow(struct range_set *set, struct range_cache *cache, uint64_t address, uint64_t bytes)
{
	bool covers;
	uint32_t at;

	pthread_rwlock_rdlock(&set->lock);
	at = find(set, address);
	covers = at < set->count && range_holds(&set->at[at], address, bytes);
	if (covers) {
		cache->range = set->at[at];
		cache->version = word_relaxed(&set->version);
	}
	pthread_rwlock_unlock(&set->lock);
	return covers;
}
