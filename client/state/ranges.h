// The address map: an ordered map of the program's device memory, pinned memory and module globals.
// Read by every copy and every pointer query, changed by allocations. A process-wide map
// (`ranges_*`) over a plain structure (`range_map_*`) that the caller guards.
//
// Invariants: ranges never overlap and are never empty; leaves are never empty and stand in address
// order.

#ifndef FRMPS_CLIENT_STATE_RANGES_H
#define FRMPS_CLIENT_STATE_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

enum range_kind {
	RANGE_DEVICE = 1,     /* device memory of cuMemAlloc */
	RANGE_HOST = 2,	      /* pinned host memory, same address on the device */
	RANGE_GLOBAL = 3,     /* a global of a module: a device address outside the window */
	RANGE_POOL = 5,	      /* device memory of a memory pool, the owner */
	RANGE_POOL_HOST = 12, /* pinned host memory of a memory pool, the owner */
	RANGE_MANAGED = 6,    /* managed memory: pinned host memory that reports another type (managed.h) */
	RANGE_POOL_MANAGED = 13, /* managed memory of a memory pool, the owner */
	RANGE_REGISTERED = 7,	 /* memory that the program registered (registered.h) */
	RANGE_BEHIND = 8,	 /* pinned memory behind registered memory, or of copies under way */
	RANGE_FILE = 11,	 /* registered memory that is shared with others, once more (host.h) */
	RANGE_ARRAY = 9,	 /* device memory behind an array: the program does not know its address */
	RANGE_MAPPED = 4, /* device memory of cuMemMap (virtual.h); a copy may go on into the next one */
	RANGE_MAPPED_HOST = 10, /* pinned host memory of cuMemMap */
};

struct session;

struct range {
	uint64_t address;
	uint64_t bytes; /* as the program asked for */
	uint64_t room;	/* usable bytes: rounded up to the allocation's */
	enum range_kind kind;
	uint32_t flags;		 /* flags of cuMemHostAlloc; RANGE_MAPPED, RANGE_MAPPED_HOST: handle types */
	uint64_t id;		 /* unique in the process's life */
	struct session *session; /* set by ranges_insert(): that of the thread */
	void *owner;		 /* the context; a module for RANGE_GLOBAL */
	void *block;		 /* memory.c and host.c: the pool's block; RANGE_FILE: its chunk */
	bool sync_memops;	 /* set by cuPointerSetAttribute */
	bool plain;		 /* RANGE_REGISTERED: cannot have a device address */
};

/** Managed memory, of a pool or not. */
static inline bool range_is_managed(const struct range *range)
{
	return range->kind == RANGE_MANAGED || range->kind == RANGE_POOL_MANAGED;
}

/** Memory of a pool of any kind. */
static inline bool range_is_of_pool(const struct range *range)
{
	return range->kind == RANGE_POOL || range->kind == RANGE_POOL_HOST ||
	       range->kind == RANGE_POOL_MANAGED;
}

/* Outcomes. */
#define RANGES_E_EXISTS 1 /* overlaps an existing range */
#define RANGES_E_NONE	2 /* nothing there */

#define RANGE_LEAF_ENTRIES 128

struct range_leaf {
	unsigned int count;
	struct range entries[RANGE_LEAF_ENTRIES];
};

struct range_map {
	struct range_leaf **leaves;
	unsigned int count, room;
};

void range_map_init(struct range_map *map);
void range_map_deinit(struct range_map *map);
/** 0, RANGES_E_EXISTS, -ENOMEM. */
int range_map_add(struct range_map *map, const struct range *range);
/** Takes out the range that begins at an address. 0 or RANGES_E_NONE. */
int range_map_remove(struct range_map *map, uint64_t address, struct range *ret_range);
/** True if any range has any of these bytes. */
bool range_map_touches(const struct range_map *map, uint64_t address, uint64_t bytes);
/** The first range that ends behind an address, NULL if none does. Valid until the next change. */
struct range *range_map_next(const struct range_map *map, uint64_t address);
/** The range that holds an address, NULL if none does. Valid until the next change. */
struct range *range_map_find(const struct range_map *map, uint64_t address);

/**
 * Adds a range of the program. For RANGE_GLOBAL the owner is the later argument of
 * ranges_remove_owner(). Return: 0, RANGES_E_EXISTS (also for a partial overlap), -ENOMEM.
 */
int ranges_add(uint64_t address, uint64_t bytes, enum range_kind kind, void *owner);
/** As ranges_add(), with all properties; fills in id and session. */
int ranges_insert(struct range *range);
/** Removes the range that begins at the address. 0 or RANGES_E_NONE; ret_range may be NULL. */
int ranges_remove(uint64_t address, struct range *ret_range);
/** As ranges_remove(), only for a range of the kind. */
int ranges_take(uint64_t address, enum range_kind kind, struct range *ret_range);
/**
 * Copies the range that holds the address; of globals the one of the calling thread's session comes
 * first. 0 or RANGES_E_NONE.
 */
int ranges_lookup(uint64_t address, struct range *ret_range);
/** True if any range has any of these bytes. */
bool ranges_touch(uint64_t address, uint64_t bytes);
/** True if memory of cuMemMap covers all of these bytes. */
bool ranges_are_mapped(uint64_t address, uint64_t bytes);
/** Removes a range of the owner and kind; call until RANGES_E_NONE. */
int ranges_take_owner(void *owner, enum range_kind kind, struct range *ret_range);
/** Removes all globals of an owner (a module) in the calling thread's session. */
void ranges_remove_owner(void *owner);
/**
 * Sets the device address of the registered memory that begins at an address; 0: there can be none.
 */
void ranges_set_shared(uint64_t address, uint64_t device);
/** Sets or clears sync_memops of the range that holds the address. 0 or RANGES_E_NONE. */
int ranges_set_sync_memops(uint64_t address, bool on);

#endif
