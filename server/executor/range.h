// Sets of address ranges: what of its window a session may name in a command. Read by the session's
// serving thread for every copy, changed by the main or the module thread when something is mapped
// or unmapped.
//
// A merging set joins ranges that touch, so that a copy across two mapped chunks is one lookup; it
// answers "may this be touched". A set that does not merge keeps the ranges as they were added; it
// answers "was exactly this mapped".
//
// The reader keeps the last range that it hit in a cache of its own. A version word says whether
// the set has lost anything since: as long as not, what the cache allows is still allowed, and no
// lock is taken.

#ifndef FRMPS_SERVER_EXECUTOR_RANGE_H
#define FRMPS_SERVER_EXECUTOR_RANGE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "shm/order.h"

/* Bytes start … end-1; start < end. */
struct range {
	uint64_t start, end;
};

struct range_set {
	pthread_rwlock_t lock; /* of everything but version */
	word64 version;	       /* changes with every removal, under the lock */
	struct range *at;      /* sorted, disjoint */
	uint32_t count, room;
	bool merges;
};

/* One reader thread's memory; zeroed is valid. */
struct range_cache {
	struct range range;
	uint64_t version;
};

/* Outcomes. */
#define RANGE_E_TAKEN  1 /* overlaps a range of a set that does not merge */
#define RANGE_E_ABSENT 2 /* not in the set */
#define RANGE_E_EMPTY  3 /* no bytes, or beyond the end of the address space */

void range_set_init(struct range_set *set, bool merges);
void range_set_deinit(struct range_set *set);

/** Adds a range. Return: 0, RANGE_E_TAKEN, RANGE_E_EMPTY, -ENOMEM. */
int range_set_add(struct range_set *set, uint64_t address, uint64_t bytes);

/**
 * Removes a range: every byte of it from a merging set, exactly this range from another.
 * Return: 0, RANGE_E_ABSENT, RANGE_E_EMPTY, -ENOMEM (a merging set had to split).
 */
int range_set_remove(struct range_set *set, uint64_t address, uint64_t bytes);

/** Takes any one range out. Return: 0, or RANGE_E_ABSENT when the set is empty. */
int range_set_pop(struct range_set *set, struct range *ret_range);

/** Whether it has none. */
bool range_set_is_empty(struct range_set *set);

/** Whether one range of the set holds all the bytes; remembers it in the cache. */
bool range_set_covers_slow(
	struct range_set *set, struct range_cache *cache, uint64_t address, uint64_t bytes);

static inline bool range_holds(const struct range *range, uint64_t address, uint64_t bytes)
{
	return address >= range->start && address < range->end && bytes <= range->end - address;
}

/** Whether all `bytes` (at least one) from `address` may be touched. */
static inline bool range_set_covers(
	struct range_set *set, struct range_cache *cache, uint64_t address, uint64_t bytes)
{
	/* Pairs with the release in range_set_remove(). */
	if (cache->version == word_acquire(&set->version) && range_holds(&cache->range, address, bytes))
		return true;
	return range_set_covers_slow(set, cache, address, bytes);
}

#endif
