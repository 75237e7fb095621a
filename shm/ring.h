// The command ring: bytes from a single writer (the client, under its own lock) to a single reader
// (the executor thread that serves the session). Positions are byte counts that only grow; a record
// never wraps: a PAD record fills the rest up to the end of the ring.
//
//            head (server region)                tail (client region)
//              │                                   │
//     ░░░░░░░░░▼▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▼░░░░░░░░░░░
//              └ not yet consumed ─────────────────┘ free
//
// The writer trusts the reader's head, which only the reader can write. The reader trusts nothing:
// the tail may be any number, and the bytes may change at any moment; the reader copies each word
// once and checks its copy. Each side reads the other's word only when its last value is used up,
// so that a writer and a reader at work do not take the cache line from each other for every
// record.

#ifndef FRMPS_SHM_RING_H
#define FRMPS_SHM_RING_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "protocol/command.h"
#include "shm/region.h"

/* Writer's private half. Guarded by the client's ring lock. */
struct ring_writer {
	struct shm_view *view;
	uint64_t mask;
	uint64_t tail; /* bytes published */
	uint64_t seen; /* an earlier head: never more free room than there is */
};

/* Reader's private half. A single thread. */
struct ring_reader {
	struct shm_view *view;
	uint64_t mask;
	uint64_t head;
	uint64_t seen; /* an earlier tail, checked: at least so much to read */
};

/* Outcomes of ring_peek(). */
#define RING_E_EMPTY   1
#define RING_E_INVALID 2 /* the writer broke the protocol */

/** Starts writing at the position that the region holds (0 in a new session). */
void ring_writer_init(struct ring_writer *ring, struct shm_view *view);

/**
 * Starts reading at the position that the region holds: a later executor continues where the former
 * ended.
 */
void ring_reader_init(struct ring_reader *ring, struct shm_view *view);

/* Slow path of ring_reserve(): reads the head again, pads up to the end of the ring if needed. */
void *ring_reserve_slow(struct ring_writer *ring, uint32_t size);

/**
 * Room for a record of `size` bytes (a multiple of FRMPS_RECORD_ALIGN, at most FRMPS_RECORD_MAX).
 * Return: the record's place, or NULL while the ring is full. Nothing is published before
 * ring_publish().
 */
static inline void *ring_reserve(struct ring_writer *ring, uint32_t size)
{
	uint64_t at = ring->tail & ring->mask;

	if (ring->tail + size - ring->seen > ring->mask + 1 || at + size > ring->mask + 1)
		return ring_reserve_slow(ring, size);
	return ring->view->ring + at;
}

/** Publishes the record reserved last. Pairs with the acquire in ring_peek(). */
static inline void ring_publish(struct ring_writer *ring, uint32_t size)
{
	ring->tail += size;
	word_release(&ring->view->client->tail, ring->tail);
}

/** True if there may be something to read: a single load, no checks. */
static inline bool ring_has_work(const struct ring_reader *ring)
{
	return word_acquire(&ring->view->client->tail) != ring->head;
}

/**
 * Looks at the next record.
 * @ret_head: private copy of its head, checked: size in bounds, aligned, inside the published bytes
 * and inside the ring
 * @ret_record: the record's bytes on the ring, valid until ring_consume(); they may change at any
 * moment, copy them once
 * Return: 0, RING_E_EMPTY, RING_E_INVALID.
 */
int ring_peek(struct ring_reader *ring, struct frmps_head *ret_head, const uint8_t **ret_record);

/**
 * True if the reader has seen the writer beyond the record of `size` bytes that was peeked last.
 */
static inline bool ring_has_seen_next(const struct ring_reader *ring, uint32_t size)
{
	return ring->seen - ring->head > size;
}

/** Frees the slot of the record peeked last. Pairs with the acquire in ring_reserve_slow(). */
static inline void ring_consume(struct ring_reader *ring, uint32_t size)
{
	ring->head += size;
	word_release(&ring->view->server->head, ring->head);
}

#endif
