// Sets of address ranges: the parts of a window that a session may name in a command. The session's
// serving thread reads a set for every copy; the main or the module thread changes the set at each
// map and unmap.
//
// A merging set joins ranges that touch, so that a copy across two mapped chunks is one lookup;
// such a set answers "may this be touched". A set that does not merge has the ranges as they were
// added, and answers "was exactly this mapped".
//
// The reader has the last range that it hit in a private cache. A version word changes with each
// loss of the set: until then the cached range is still allowed, and no lock is taken.

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

/** Removes an arbitrary range. Return: 0, or RANGE_E_ABSENT when the set is empty. */
int range_set_pop(struct range_set *set, struct range *ret_range);

/** Return: true if the set has no range. */
bool range_set_is_empty(struct range_set *set);

/** Return: true if a single range of the set holds all the bytes; saves that range in the cache. */
bool range_set_covers_slow(
	struct range_set *set, struct range_cache *cache, uint64_t address, uint64_t bytes);

static inline bool range_holds(const struct range *range, uint64_t address, uint64_t bytes)
{
	return address >= range->start && address < range->end && bytes <= range->end - address;
}

/** Return: true if all `bytes` (at least 1) from `address` may be touched. */
static inline bool range_set_covers(
	struct range_set *set, struct range_cache *cache, uint64_t address, uint64_t bytes)
{
	/* Pairs with the release in range_set_remove(). */
	if (cache->version == word_acquire(&set->version) && range_holds(&cache->range, address, bytes))
		return true;
	return range_set_covers_slow(set, cache, address, bytes);
}

#endif
