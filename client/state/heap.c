// See heap.h. Free blocks of shared chunks hang in bins by size (bin i: below unit · 2^(i+1)), so
// the search for a fitting block walks over no chunks; spare chunks of large requests are matched
// by their size.

#include "client/state/heap.h"

#include <stdlib.h>

static uint64_t round_up(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) & ~(unit - 1);
}

void heap_init(struct heap *heap, uint64_t base, uint64_t bytes, uint64_t unit)
{
	*heap = (struct heap){
		.base = base, .bytes = bytes, .unit = unit, .next_shared = HEAP_GRAIN, .next_place = base};
	TAILQ_INIT(&heap->spare);
}

static void free_chunk(struct heap_chunk *chunk)
{
	while (chunk->first) {
		struct heap_block *block = chunk->first;

		chunk->first = block->behind;
		free(block);
	}
	free(chunk);
}

void heap_deinit(struct heap *heap)
{
	while (heap->first) {
		struct heap_chunk *chunk = heap->first;

		heap->first = chunk->next;
		free_chunk(chunk);
	}
	*heap = (struct heap){0};
}

static unsigned int bin_of(const struct heap *heap, uint64_t bytes)
{
	unsigned int bin = 63 - (unsigned int)__builtin_clzll(bytes / heap->unit | 1);

	return bin < HEAP_BINS ? bin : HEAP_BINS - 1;
}

static void bin_add(struct heap *heap, struct heap_block *block)
{
	struct heap_block **bin = &heap->bins[bin_of(heap, block->bytes)];

	block->bin_previous = NULL;
	block->bin_next = *bin;
	if (*bin)
		(*bin)->bin_previous = block;
	*bin = block;
}

static void bin_remove(struct heap *heap, struct heap_block *block)
{
	if (block->bin_previous)
		block->bin_previous->bin_next = block->bin_next;
	else
		heap->bins[bin_of(heap, block->bytes)] = block->bin_next;
	if (block->bin_next)
		block->bin_next->bin_previous = block->bin_previous;
	block->bin_next = block->bin_previous = NULL;
}

/* A free block of a shared chunk with at least so many bytes. The request's own bin may also hold
 * smaller blocks. */
static struct heap_block *bin_find(const struct heap *heap, uint64_t bytes)
{
	for (unsigned int i = bin_of(heap, bytes); i < HEAP_BINS; ++i)
		for (struct heap_block *block = heap->bins[i]; block; block = block->bin_next)
			if (block->bytes >= bytes)
				return block;
	return NULL;
}

/* Splits a block: the part behind its first `bytes` becomes a block in no bin. Return: false: no
 * memory */
static bool cut(struct heap_block *block, uint64_t bytes)
{
	struct heap_block *rest;

	if (block->bytes == bytes)
		return true;
	rest = calloc(1, sizeof(*rest));
	if (!rest)
		return false;
	rest->address = block->address + bytes;
	rest->bytes = block->bytes - bytes;
	rest->chunk = block->chunk;
	rest->before = block;
	rest->behind = block->behind;
	if (rest->behind)
		rest->behind->before = rest;
	block->behind = rest;
	block->bytes = bytes;
	return true;
}

static void add_spare(struct heap *heap, struct heap_chunk *chunk)
{
	heap->spare_bytes += chunk->bytes;
	TAILQ_INSERT_TAIL(&heap->spare, chunk, spare);
}

static void remove_spare(struct heap *heap, struct heap_chunk *chunk)
{
	heap->spare_bytes -= chunk->bytes;
	TAILQ_REMOVE(&heap->spare, chunk, spare);
}

static void use(struct heap *heap, struct heap_block *block)
{
	if (block->chunk->used_blocks++ == 0)
		remove_spare(heap, block->chunk);
	block->used = true;
}

static int alloc_small(struct heap *heap, uint64_t bytes, struct heap_block **ret_block)
{
	struct heap_block *block = bin_find(heap, bytes);
	bool is_all = block && block->bytes == bytes;

	if (!block)
		return HEAP_E_FULL;
	bin_remove(heap, block);
	if (!cut(block, bytes)) {
		bin_add(heap, block);
		return HEAP_E_SPACE;
	}
	if (!is_all)
		bin_add(heap, block->behind);
	use(heap, block);
	*ret_block = block;
	return 0;
}

/* Finds a spare chunk that wastes at most an eighth. */
static int alloc_large(struct heap *heap, uint64_t bytes, struct heap_block **ret_block)
{
	uint64_t most = bytes + bytes / 8;

	struct heap_chunk *chunk;

	TAILQ_FOREACH_REVERSE (chunk, &heap->spare, heap_chunk_list, spare) {
		if (chunk->shared || chunk->bytes < bytes || chunk->bytes > most)
			continue;
		use(heap, chunk->first);
		*ret_block = chunk->first;
		return 0;
	}
	return HEAP_E_FULL;
}

int heap_alloc(struct heap *heap, uint64_t bytes, struct heap_block **ret_block)
{
	if (bytes > heap->bytes)
		return HEAP_E_SPACE;
	if (bytes <= HEAP_SMALL_MAX)
		return alloc_small(heap, round_up(bytes, heap->unit), ret_block);
	return alloc_large(heap, round_up(bytes, HEAP_GRAIN), ret_block);
}

/* Links a chunk at the lowest address from `at` on that has room for it and for a gap behind it. */
static bool find_place(struct heap *heap, struct heap_chunk *chunk, uint64_t at)
{
	uint64_t need = chunk->bytes + HEAP_GRAIN;
	struct heap_chunk *next = heap->first;

	for (; next && (next->address < at || next->address - at < need); next = next->next)
		if (at < next->address + next->bytes + HEAP_GRAIN)
			at = next->address + next->bytes + HEAP_GRAIN;
	if (!next && (at > heap->base + heap->bytes || heap->base + heap->bytes - at < need))
		return false;
	chunk->address = at;
	chunk->next = next;
	chunk->previous = next ? next->previous : heap->last;
	*(chunk->previous ? &chunk->previous->next : &heap->first) = chunk;
	*(next ? &next->previous : &heap->last) = chunk;
	if (heap->onward)
		heap->next_place = at + need;
	return true;
}

static uint64_t chunk_bytes(struct heap *heap, uint64_t bytes, bool modest)
{
	uint64_t size = heap->next_shared;

	if (bytes > HEAP_SMALL_MAX)
		return round_up(bytes, HEAP_GRAIN);
	if (modest)
		return HEAP_GRAIN;
	if (heap->next_shared < HEAP_SHARED_MAX)
		heap->next_shared *= 2;
	return size;
}

/* Adds the request's block and the rest behind it. Return: false: no memory */
static bool add_blocks(struct heap *heap, struct heap_chunk *chunk, uint64_t bytes)
{
	chunk->first = calloc(1, sizeof(*chunk->first));
	if (!chunk->first)
		return false;
	chunk->first->address = chunk->address;
	chunk->first->bytes = chunk->bytes;
	chunk->first->chunk = chunk;
	return !chunk->shared || cut(chunk->first, round_up(bytes, heap->unit));
}

int heap_reserve(struct heap *heap, uint64_t bytes, bool modest, struct heap_chunk **ret_chunk)
{
	struct heap_chunk *chunk;

	if (bytes > heap->bytes)
		return HEAP_E_SPACE;
	chunk = calloc(1, sizeof(*chunk));
	if (!chunk)
		return HEAP_E_SPACE;
	chunk->bytes = chunk_bytes(heap, bytes, modest);
	chunk->shared = bytes <= HEAP_SMALL_MAX;
	if (!find_place(heap, chunk, heap->next_place) && !find_place(heap, chunk, heap->base)) {
		free(chunk);
		return HEAP_E_SPACE;
	}
	if (!add_blocks(heap, chunk, bytes)) {
		heap_forget(heap, chunk);
		return HEAP_E_SPACE;
	}
	*ret_chunk = chunk;
	return 0;
}

struct heap_block *heap_adopt(struct heap *heap, struct heap_chunk *chunk)
{
	if (chunk->first->behind)
		bin_add(heap, chunk->first->behind);
	chunk->ready = true;
	add_spare(heap, chunk);
	use(heap, chunk->first);
	return chunk->first;
}

void heap_forget(struct heap *heap, struct heap_chunk *chunk)
{
	*(chunk->previous ? &chunk->previous->next : &heap->first) = chunk->next;
	*(chunk->next ? &chunk->next->previous : &heap->last) = chunk->previous;
	free_chunk(chunk);
}

void heap_put_back(struct heap *heap, struct heap_chunk *chunk)
{
	chunk->ready = true;
	add_spare(heap, chunk);
	if (chunk->shared)
		bin_add(heap, chunk->first);
}

/* Joins a free block in no bin with the next block, which is in a bin. */
static void join_behind(struct heap *heap, struct heap_block *block)
{
	struct heap_block *behind = block->behind;

	bin_remove(heap, behind);
	block->bytes += behind->bytes;
	block->behind = behind->behind;
	if (block->behind)
		block->behind->before = block;
	free(behind);
}

static void free_shared(struct heap *heap, struct heap_block *block)
{
	if (block->behind && !block->behind->used)
		join_behind(heap, block);
	if (block->before && !block->before->used) {
		struct heap_block *before = block->before;

		bin_remove(heap, before);
		/* join_behind() takes the next block out of its bin. */
		bin_add(heap, block);
		join_behind(heap, before);
		block = before;
	}
	bin_add(heap, block);
}

void heap_free(struct heap *heap, struct heap_block *block)
{
	struct heap_chunk *chunk = block->chunk;

	block->used = false;
	if (--chunk->used_blocks == 0)
		add_spare(heap, chunk);
	if (chunk->shared)
		free_shared(heap, block);
}

bool heap_withdraw(struct heap *heap, struct heap_chunk *chunk)
{
	if (!chunk->ready || chunk->used_blocks)
		return false;
	if (chunk->shared)
		bin_remove(heap, chunk->first);
	chunk->ready = false;
	remove_spare(heap, chunk);
	return true;
}

struct heap_chunk *heap_excess(struct heap *heap, uint64_t keep)
{
	struct heap_chunk *chunk = heap->spare_bytes > keep ? TAILQ_FIRST(&heap->spare) : NULL;

	if (chunk)
		heap_withdraw(heap, chunk);
	return chunk;
}
