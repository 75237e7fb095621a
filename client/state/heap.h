// Divides a part of the window into allocations. Pure bookkeeping: the heap decides what to map and
// unmap; the caller does that (pool.c), and guards the heap with a lock that it does not hold
// meanwhile.
//
//   window part:  | chunk | gap | chunk | gap | … free addresses … |
//   chunk:        | block | block | … |   in address order, used and free, no two free ones side by
//                 side
//
// Small allocations share chunks; a large allocation is a chunk of its own. A chunk without used
// blocks is spare: kept for reuse up to a limit, then freed.
//
// A chunk is RESERVED (addresses only; a thread is mapping or unmapping it) or READY. Blocks come
// only from READY chunks.

#ifndef FRMPS_CLIENT_STATE_HEAP_H
#define FRMPS_CLIENT_STATE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

/* Chunks start at and are multiples of this; the gap between two chunks has the same size. */
#define HEAP_GRAIN UINT64_C(0x200000)
/* Each larger request gets a chunk of its own. */
#define HEAP_SMALL_MAX UINT64_C(0x100000)
/* Shared chunks grow from HEAP_GRAIN to this. */
#define HEAP_SHARED_MAX (16 * HEAP_GRAIN)
#define HEAP_BINS	24

struct heap_chunk;

/* A used or free piece of a chunk. */
struct heap_block {
	uint64_t address, bytes;
	bool used;
	struct heap_chunk *chunk;
	struct heap_block *before, *behind;	    /* neighbours in the chunk */
	struct heap_block *bin_next, *bin_previous; /* free blocks of shared chunks */
};

struct heap_chunk {
	uint64_t address, bytes;
	bool ready;
	bool shared;
	bool exported; /* the caller's: other programs may have handles of the block (pool.h) */
	unsigned int used_blocks;
	struct heap_block *first;
	struct heap_chunk *next, *previous; /* in address order */
	TAILQ_ENTRY(heap_chunk) spare;	    /* while the chunk has no used block */
};

struct heap {
	uint64_t base, bytes;
	uint64_t unit;	      /* allocations start at and are multiples of this; a power of two */
	uint64_t next_shared; /* size of the next shared chunk */
	bool onward;	      /* addresses of freed chunks are reused as late as possible */
	uint64_t next_place;  /* where the search for a place begins; only if `onward` */
	uint64_t spare_bytes; /* of chunks without used blocks */
	TAILQ_HEAD(heap_chunk_list, heap_chunk) spare; /* spare chunks, the longest spare first */
	struct heap_chunk *first, *last;
	struct heap_block *bins[HEAP_BINS];
};

/* Outcomes. */
#define HEAP_E_FULL  1 /* no free block in the existing chunks */
#define HEAP_E_SPACE 2 /* no free addresses, or no memory for the bookkeeping */

/** @base, @bytes: multiples of HEAP_GRAIN */
void heap_init(struct heap *heap, uint64_t base, uint64_t bytes, uint64_t unit);
/** Frees the bookkeeping. */
void heap_deinit(struct heap *heap);

/**
 * Takes a block from the mapped chunks. @bytes: at least 1. Return: 0, HEAP_E_FULL, HEAP_E_SPACE.
 */
int heap_alloc(struct heap *heap, uint64_t bytes, struct heap_block **ret_block);

/**
 * Reserves addresses for a new chunk that will hold a request.
 * @modest: the smallest chunk that suffices, because memory is short
 * Return: 0 (map it, then heap_adopt() or heap_forget()), HEAP_E_SPACE.
 */
int heap_reserve(struct heap *heap, uint64_t bytes, bool modest, struct heap_chunk **ret_chunk);

/** A reserved chunk is mapped: puts it in use. Needs no memory. Return: the request's block */
struct heap_block *heap_adopt(struct heap *heap, struct heap_chunk *chunk);

/** A reserved chunk was not mapped, or is unmapped now: frees its addresses. */
void heap_forget(struct heap *heap, struct heap_chunk *chunk);

/** Frees a used block. */
void heap_free(struct heap *heap, struct heap_block *block);

/** Withdraws a chunk if it is spare: as heap_excess(). */
bool heap_withdraw(struct heap *heap, struct heap_chunk *chunk);

/**
 * Withdraws the chunk that has been spare for longest, if spare chunks have more than `keep` bytes:
 * unmap it, then heap_forget() or heap_put_back(). NULL if not.
 */
struct heap_chunk *heap_excess(struct heap *heap, uint64_t keep);

/** The chunk is mapped as before, and spare again. */
void heap_put_back(struct heap *heap, struct heap_chunk *chunk);

#endif
