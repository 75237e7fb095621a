// The journal: the commands of a session that may not be done yet, saved for a later executor.
// journal.c describes the format, the validity of records and the reader's algorithm.
//
// A struct journal and its lists belong to the serving thread of the session, before serving starts
// to the main thread.

#ifndef FRMPS_SERVER_EXECUTOR_JOURNAL_H
#define FRMPS_SERVER_EXECUTOR_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/command.h"
#include "shm/layout.h"

#define JOURNAL_RECORDS ((uint32_t)sizeof(((struct shm_block *)NULL)->records))

/* Outcomes of journal_adopt(). */
#define JOURNAL_E_BROKEN 1 /* what lies in the region is not a journal */

/* Where a record lies. */
struct journal_place {
	uint32_t block, offset;
};

/* The blocks of one session. */
struct journal {
	struct shm_block *blocks;
	uint32_t count;
	uint32_t free_count;
	uint64_t used[SHM_BLOCKS / 64]; /* a bit per block that belongs to a list */
	uint64_t last[SHM_BLOCKS];	/* highest seq in a used block */
};

/* The records of one stream. */
struct journal_list {
	struct shm_stream_state *state;
	uint32_t head, tail; /* SHM_NO_BLOCK: no block at all */
	uint32_t offset;     /* bytes used in the tail block */
	uint64_t journaled;  /* highest seq appended */
};

/** @count: blocks in the region, at most SHM_BLOCKS. All blocks are free until lists adopt
 * blocks. */
void journal_init(struct journal *journal, struct shm_block *blocks, uint32_t count);

/** An empty list of a stream that never had a command. */
void journal_list_init(struct journal_list *list, struct shm_stream_state *state);

/** Return: true if a record can be reserved without journal_make_room(). */
static inline bool journal_fits(const struct journal_list *list, uint32_t size)
{
	/* Also false at the end of each page, so that a stream that drains is rewound before the
	 * next page is used. */
	return list->tail != SHM_NO_BLOCK && (list->offset ^ (list->offset + size)) < 4096;
}

/**
 * Makes room for a record: gives back blocks whose records are all done, rewinds a drained stream
 * to the start of its block, takes a new block if needed. Call only when !journal_fits().
 * @done: highest seq of the stream known done, at most list->journaled
 * Return: false when no block is free.
 */
bool journal_make_room(struct journal *journal, struct journal_list *list, uint32_t size, uint64_t done);

/** The place of the next record. Room must be there. No reader looks at the record before
 * journal_commit(). */
static inline struct frmps_head *journal_reserve(struct journal *journal, const struct journal_list *list)
{
	return (struct frmps_head *)(void *)(journal->blocks[list->tail].records + list->offset);
}

/** Place of the record that journal_reserve() gave. */
static inline struct journal_place journal_end(const struct journal_list *list)
{
	return (struct journal_place){list->tail, list->offset};
}

/** Makes the record that was written at journal_reserve() part of the journal. seq: list->journaled
 * + 1. */
static inline void journal_commit(
	struct journal *journal, struct journal_list *list, uint32_t size, uint64_t seq)
{
	journal->last[list->tail] = seq;
	list->offset += size;
	list->journaled = seq;
	word_set(&list->state->tail_offset, list->offset);
	/* Pairs with the acquire of a client that looks and of journal_adopt(). */
	word_release(&list->state->journaled, seq);
}

static inline struct frmps_head *journal_at(const struct journal *journal, struct journal_place place)
{
	return (struct frmps_head *)(void *)(journal->blocks[place.block].records + place.offset);
}

/** The place behind a record that is not the list's last. */
struct journal_place journal_next(const struct journal *journal, struct journal_place place);

/** Gives back blocks whose records are all done; keeps the tail block. */
void journal_reclaim(struct journal *journal, struct journal_list *list, uint64_t done);

/** Gives all blocks of a list back whose every record is done. */
void journal_clear(struct journal *journal, struct journal_list *list);

/**
 * Takes over a stream's records of an earlier executor.
 * @list: from journal_list_init()
 * @done: highest seq known done, at most the journaled word
 * @ret_first: place of command done + 1; written only if that was journaled
 * Return: 0, JOURNAL_E_BROKEN.
 */
int journal_adopt(
	struct journal *journal, struct journal_list *list, uint64_t done, struct journal_place *ret_first);

#endif
