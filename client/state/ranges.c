// See ranges.h. A directory of leaves of at most RANGE_LEAF_ENTRIES ranges each: two binary
// searches find, a short move inserts, a full leaf is split. The process-wide map is guarded by a
// reader-writer lock held for a search or a change.

#include "client/state/ranges.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/state/session.h"

#define HALF (RANGE_LEAF_ENTRIES / 2)

void range_map_init(struct range_map *map)
{
	*map = (struct range_map){0};
}

void range_map_deinit(struct range_map *map)
{
	for (unsigned int i = 0; i < map->count; ++i)
		free(map->leaves[i]);
	free(map->leaves);
	*map = (struct range_map){0};
}

/* The last leaf that begins at or before the address, or the first leaf. The map is not empty. */
static unsigned int find_leaf(const struct range_map *map, uint64_t address)
{
	unsigned int low = 0, high = map->count;

	while (high - low > 1) {
		unsigned int middle = (low + high) / 2;

		if (map->leaves[middle]->entries[0].address <= address)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* Number of the leaf's entries that begin at or before the address. */
static unsigned int find_entry(const struct range_leaf *leaf, uint64_t address)
{
	unsigned int low = 0, high = leaf->count;

	while (low < high) {
		unsigned int middle = (low + high) / 2;

		if (leaf->entries[middle].address <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct range *range_map_find(const struct range_map *map, uint64_t address)
{
	struct range_leaf *leaf;
	unsigned int n;

	if (map->count == 0)
		return NULL;
	leaf = map->leaves[find_leaf(map, address)];
	n = find_entry(leaf, address);
	if (n == 0 || address - leaf->entries[n - 1].address >= leaf->entries[n - 1].room)
		return NULL;
	return &leaf->entries[n - 1];
}

/* Puts a new empty leaf at a place of the directory. */
static int add_leaf(struct range_map *map, unsigned int at)
{
	struct range_leaf *leaf;

	if (map->count == map->room) {
		unsigned int room = map->room ? 2 * map->room : 16;
		struct range_leaf **leaves = realloc(map->leaves, room * sizeof(struct range_leaf *));

		if (!leaves)
			return -ENOMEM;
		map->leaves = leaves;
		map->room = room;
	}
	leaf = malloc(sizeof(*leaf));
	if (!leaf)
		return -ENOMEM;
	leaf->count = 0;
	memmove(map->leaves + at + 1, map->leaves + at, (map->count - at) * sizeof(struct range_leaf *));
	map->leaves[at] = leaf;
	++map->count;
	return 0;
}

/* Moves the upper half of a full leaf to a new leaf behind it. */
static int split(struct range_map *map, unsigned int at)
{
	struct range_leaf *leaf, *upper;
	int r = add_leaf(map, at + 1);

	if (r != 0)
		return r;
	leaf = map->leaves[at];
	upper = map->leaves[at + 1];
	memcpy(upper->entries, leaf->entries + HALF, (RANGE_LEAF_ENTRIES - HALF) * sizeof(struct range));
	upper->count = RANGE_LEAF_ENTRIES - HALF;
	leaf->count = HALF;
	return 0;
}

/* The first range that begins behind the address. */
static const struct range *find_next(const struct range_map *map, uint64_t address)
{
	unsigned int at, n;

	if (map->count == 0)
		return NULL;
	at = find_leaf(map, address);
	n = find_entry(map->leaves[at], address);
	if (n < map->leaves[at]->count)
		return &map->leaves[at]->entries[n];
	return at + 1 < map->count ? &map->leaves[at + 1]->entries[0] : NULL;
}

struct range *range_map_next(const struct range_map *map, uint64_t address)
{
	struct range *range = range_map_find(map, address);

	return range ? range : (struct range *)find_next(map, address);
}

bool range_map_touches(const struct range_map *map, uint64_t address, uint64_t bytes)
{
	const struct range *next = find_next(map, address);

	if (range_map_find(map, address))
		return true;
	return next && next->address - address < bytes;
}

int range_map_add(struct range_map *map, const struct range *range)
{
	struct range_leaf *leaf;
	unsigned int at, n;
	int r = 0;

	if (range_map_touches(map, range->address, range->room))
		return RANGES_E_EXISTS;
	if (map->count == 0)
		r = add_leaf(map, 0);
	if (r == 0 && map->leaves[find_leaf(map, range->address)]->count == RANGE_LEAF_ENTRIES)
		r = split(map, find_leaf(map, range->address));
	if (r != 0)
		return r;
	at = find_leaf(map, range->address);
	leaf = map->leaves[at];
	/* The only leaf of a new map is still empty. */
	n = find_entry(leaf, range->address);
	memmove(leaf->entries + n + 1, leaf->entries + n, (leaf->count - n) * sizeof(*range));
	leaf->entries[n] = *range;
	++leaf->count;
	return 0;
}

int range_map_remove(struct range_map *map, uint64_t address, struct range *ret_range)
{
	struct range *range = range_map_find(map, address);
	struct range_leaf *leaf;
	unsigned int at, n;

	if (!range || range->address != address)
		return RANGES_E_NONE;
	at = find_leaf(map, address);
	leaf = map->leaves[at];
	n = (unsigned int)(range - leaf->entries);
	*ret_range = *range;
	--leaf->count;
	memmove(leaf->entries + n, leaf->entries + n + 1, (leaf->count - n) * sizeof(*range));
	if (leaf->count == 0) {
		free(leaf);
		--map->count;
		memmove(map->leaves + at, map->leaves + at + 1,
			(map->count - at) * sizeof(struct range_leaf *));
	}
	return 0;
}

static struct range_map ranges;
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static uint64_t latest_id; /* guarded by lock */

/* Globals have addresses that the drivers of different devices choose: the same may be in several
 * sessions. */
static struct range_map *map_of(enum range_kind kind)
{
	return kind == RANGE_GLOBAL ? &session_self()->globals : &ranges;
}

/* Under the lock. Of globals the one of the thread's session comes first. */
static struct range *find(uint64_t address)
{
	struct range *range = range_map_find(&ranges, address);

	range = range ? range : range_map_find(&session_self()->globals, address);
	if (!range)
		SESSION_FOREACH (session)
			range = range ? range : range_map_find(&session->globals, address);
	return range;
}

int ranges_insert(struct range *range)
{
	int r;

	pthread_rwlock_wrlock(&lock);
	range->session = session_self();
	range->id = latest_id + 1;
	r = range_map_add(map_of(range->kind), range);
	latest_id += r == 0;
	pthread_rwlock_unlock(&lock);
	return r;
}

int ranges_add(uint64_t address, uint64_t bytes, enum range_kind kind, void *owner)
{
	struct range range = {
		.address = address, .bytes = bytes, .room = bytes, .kind = kind, .owner = owner};

	return ranges_insert(&range);
}

int ranges_remove(uint64_t address, struct range *ret_range)
{
	struct range range;
	int r;

	pthread_rwlock_wrlock(&lock);
	r = range_map_remove(&ranges, address, &range);
	pthread_rwlock_unlock(&lock);
	if (r == 0 && ret_range)
		*ret_range = range;
	return r;
}

int ranges_take(uint64_t address, enum range_kind kind, struct range *ret_range)
{
	struct range *range;
	int r = RANGES_E_NONE;

	pthread_rwlock_wrlock(&lock);
	range = range_map_find(&ranges, address);
	if (range && range->kind == kind)
		r = range_map_remove(&ranges, address, ret_range);
	pthread_rwlock_unlock(&lock);
	return r;
}

int ranges_lookup(uint64_t address, struct range *ret_range)
{
	struct range *range;

	pthread_rwlock_rdlock(&lock);
	range = find(address);
	if (range)
		*ret_range = *range;
	pthread_rwlock_unlock(&lock);
	return range ? 0 : RANGES_E_NONE;
}

bool ranges_touch(uint64_t address, uint64_t bytes)
{
	bool is;

	pthread_rwlock_rdlock(&lock);
	is = range_map_touches(&ranges, address, bytes) ||
	     range_map_touches(&session_self()->globals, address, bytes);
	pthread_rwlock_unlock(&lock);
	return is;
}

bool ranges_are_mapped(uint64_t address, uint64_t bytes)
{
	const struct range *range = NULL;
	uint64_t there = 0;

	pthread_rwlock_rdlock(&lock);
	do {
		range = range_map_find(&ranges, address + there);
		if (range && range->kind == RANGE_MAPPED)
			there = range->address + range->room - address;
		else
			range = NULL;
	} while (range && there < bytes);
	pthread_rwlock_unlock(&lock);
	return range;
}

/* Address of some range of the owner and kind. Under the lock. */
static bool find_owned(
	const struct range_map *map, const void *owner, enum range_kind kind, uint64_t *ret_address)
{
	for (unsigned int i = 0; i < map->count; ++i)
		for (unsigned int k = 0; k < map->leaves[i]->count; ++k) {
			const struct range *range = &map->leaves[i]->entries[k];

			if (range->owner != owner || range->kind != kind)
				continue;
			*ret_address = range->address;
			return true;
		}
	return false;
}

int ranges_take_owner(void *owner, enum range_kind kind, struct range *ret_range)
{
	struct range_map *map = map_of(kind);
	uint64_t address;
	int r = RANGES_E_NONE;

	pthread_rwlock_wrlock(&lock);
	if (find_owned(map, owner, kind, &address))
		r = range_map_remove(map, address, ret_range);
	pthread_rwlock_unlock(&lock);
	return r;
}

void ranges_remove_owner(void *owner)
{
	struct range range;

	while (ranges_take_owner(owner, RANGE_GLOBAL, &range) == 0)
		continue;
}

void ranges_set_shared(uint64_t address, uint64_t device)
{
	struct range *range;

	pthread_rwlock_wrlock(&lock);
	range = range_map_find(&ranges, address);
	if (range && range->address == address && range->kind == RANGE_REGISTERED) {
		range->block = (void *)(uintptr_t)device;
		range->plain = device == 0;
	}
	pthread_rwlock_unlock(&lock);
}

int ranges_set_sync_memops(uint64_t address, bool on)
{
	struct range *range;

	pthread_rwlock_wrlock(&lock);
	range = find(address);
	if (range)
		range->sync_memops = on;
	pthread_rwlock_unlock(&lock);
	return range ? 0 : RANGES_E_NONE;
}
