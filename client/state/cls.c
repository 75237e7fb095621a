// Context-local storage (see cls.h). Runs on the program's threads. A map is a list of small blocks
// searched from the start: with the few keys of a process that is faster than hashing, and blocks
// never move under a reader.
//
// Readers are optimistic. Readers need no barrier beyond the two looks at `sequence`: the first is
// an acquire load, and an acquire fence keeps the loads of the search before the second look.
// Writers make `sequence` odd, put a release fence between that and their stores, and make
// `sequence` even with a release store.

#include "client/state/cls.h"

#include <stdbool.h>
#include <stdlib.h>

void cls_map_deinit(struct cls_map *map)
{
	struct cls_block *block = atomic_load_explicit(&map->first.next, memory_order_relaxed);

	while (block) {
		struct cls_block *next = atomic_load_explicit(&block->next, memory_order_relaxed);

		free(block);
		block = next;
	}
	pthread_mutex_destroy(&map->lock);
}

/* The entry that holds `key` (NULL: the first free entry), or NULL. Reads only; valid under the
 * lock or the sequence. */
static struct cls_entry *find(struct cls_map *map, void *key)
{
	struct cls_block *block;

	for (block = &map->first; block; block = atomic_load_explicit(&block->next, memory_order_acquire)) {
		for (int i = 0; i < CLS_BLOCK_ENTRIES; i++) {
			if (atomic_load_explicit(&block->entries[i].key, memory_order_relaxed) == key)
				return &block->entries[i];
		}
	}
	return NULL;
}

/* Under the lock: a new block at the end of the list, and its first entry. */
static struct cls_entry *grow(struct cls_map *map)
{
	struct cls_block *fresh = calloc(1, sizeof(*fresh));
	struct cls_block *last = &map->first;
	struct cls_block *next;

	if (!fresh)
		return NULL;
	while ((next = atomic_load_explicit(&last->next, memory_order_relaxed)))
		last = next;
	/* Pairs with the acquire in find(): a reader that sees the block sees its zeroes. */
	atomic_store_explicit(&last->next, fresh, memory_order_release);
	return &fresh->entries[0];
}

/* Under the lock: readers that overlap with this see an odd or a changed sequence and search
 * again. */
static void entry_set(struct cls_map *map, struct cls_entry *entry, void *key, void *value)
{
	unsigned int sequence = atomic_load_explicit(&map->sequence, memory_order_relaxed);

	atomic_store_explicit(&map->sequence, sequence + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	atomic_store_explicit(&entry->key, key, memory_order_relaxed);
	atomic_store_explicit(&entry->value, value, memory_order_relaxed);
	atomic_store_explicit(&map->sequence, sequence + 2, memory_order_release);
}

CUresult cls_map_put(struct cls_map *map, void *key, void *value, cls_destructor *destructor)
{
	struct cls_entry *entry;

	if (!key)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&map->lock);
	entry = find(map, key);
	if (!entry)
		entry = find(map, NULL);
	if (!entry)
		entry = grow(map);
	if (entry) {
		entry->destructor = destructor;
		entry_set(map, entry, key, value);
	}
	pthread_mutex_unlock(&map->lock);
	return entry ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void cls_map_delete(struct cls_map *map, void *key)
{
	struct cls_entry *entry;

	if (!key)
		return;
	pthread_mutex_lock(&map->lock);
	entry = find(map, key);
	if (entry)
		entry_set(map, entry, NULL, NULL);
	pthread_mutex_unlock(&map->lock);
}

CUresult cls_map_get(struct cls_map *map, void *key, void **ret_value)
{
	unsigned int before;
	bool found;
	void *value;

	if (!key)
		return CUDA_ERROR_INVALID_HANDLE;
	do {
		struct cls_entry *entry;

		before = atomic_load_explicit(&map->sequence, memory_order_acquire);
		entry = find(map, key);
		found = entry;
		value = entry ? atomic_load_explicit(&entry->value, memory_order_relaxed) : NULL;
		atomic_thread_fence(memory_order_acquire);
	} while ((before & 1) || atomic_load_explicit(&map->sequence, memory_order_relaxed) != before);
	if (!found)
		return CUDA_ERROR_INVALID_HANDLE;
	*ret_value = value;
	return CUDA_SUCCESS;
}

struct cls_item {
	void *key;
	void *value;
	cls_destructor *destructor;
};

/* Takes an entry out of the map; its key is NULL if the entry was free. */
static struct cls_item take(struct cls_map *map, struct cls_entry *entry)
{
	struct cls_item item = {0};

	pthread_mutex_lock(&map->lock);
	item.key = atomic_load_explicit(&entry->key, memory_order_relaxed);
	if (item.key) {
		item.value = atomic_load_explicit(&entry->value, memory_order_relaxed);
		item.destructor = entry->destructor;
		entry_set(map, entry, NULL, NULL);
	}
	pthread_mutex_unlock(&map->lock);
	return item;
}

void cls_map_clear(struct cls_map *map, CUcontext context)
{
	struct cls_block *block;

	for (block = &map->first; block; block = atomic_load_explicit(&block->next, memory_order_acquire)) {
		for (int i = 0; i < CLS_BLOCK_ENTRIES; i++) {
			struct cls_item item = take(map, &block->entries[i]);

			if (item.key && item.destructor)
				item.destructor(context, item.key, item.value);
		}
	}
}
