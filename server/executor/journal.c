// Journal blocks of a session. Runs in the serving thread; journal_adopt() in the main thread
// before serving starts.
//
// Format. Each stream has a list of blocks in the server region: states[slot].head_block names the
// first, block.next the following. In a block records lie end to end from offset 0, each as on the
// ring (head, body, payload, padding; a multiple of 16). A record that does not fit starts the next
// block; a 32-bit zero where its size would be (absent if the block is full to the last byte) ends
// the block. The seq of records in a list counts up by one.
//
// Validity. With `done` the highest seq known done in the timeline of the generation that wrote the
// journal (and not beyond states[slot].marked) and `journaled` = states[slot].journaled:
//   - done >= journaled: the stream is drained and nothing of its list is valid, not even
//     head_block;
//   - else the list from head_block on holds every record done+1 … journaled, behind some done
//     records. Nothing behind record `journaled` is valid.
//
// Why this survives a writer that dies anywhere. A record is complete, and the block that holds it
// linked, before `journaled` counts it. head_block only moves past blocks in which everything is
// done, and such a block is not written again before. A stream is rewound (offset 0 of its one
// block) only while done >= journaled, and then the next record is written there before `journaled`
// counts it. The tail words are for tools; no reader needs these.
//
// Reader (journal_adopt): from (head_block, 0) on, take size and seq of each record, follow `next`
// at a zero size or a full block, skip done records, stop behind record `journaled`. Every number
// is checked, every block may occur once.
//
// The free blocks are private knowledge of the executor, rebuilt from the lists by adopting all
// lists.

#include "server/executor/journal.h"

#include <string.h>

#include "server/log.h"

void journal_init(struct journal *journal, struct shm_block *blocks, uint32_t count)
{
	log_bug_on(count > SHM_BLOCKS);
	memset(journal, 0, sizeof(*journal));
	journal->blocks = blocks;
	journal->count = count;
	journal->free_count = count;
}

void journal_list_init(struct journal_list *list, struct shm_stream_state *state)
{
	*list = (struct journal_list){.state = state, .head = SHM_NO_BLOCK, .tail = SHM_NO_BLOCK};
}

static bool is_used(const struct journal *journal, uint32_t block)
{
	return journal->used[block / 64] >> block % 64 & 1;
}

static void take(struct journal *journal, uint32_t block)
{
	journal->used[block / 64] |= UINT64_C(1) << block % 64;
	journal->free_count--;
}

static void give_back(struct journal *journal, uint32_t block)
{
	log_bug_on(!is_used(journal, block));
	journal->used[block / 64] &= ~(UINT64_C(1) << block % 64);
	journal->free_count++;
}

/* SHM_NO_BLOCK when none is free. Low numbers first: their pages exist already. */
static uint32_t find_free(struct journal *journal)
{
	uint32_t words = (journal->count + 63) / 64;

	if (!journal->free_count)
		return SHM_NO_BLOCK;
	for (uint32_t word = 0; word < words; word++) {
		uint64_t unused = ~journal->used[word];
		uint32_t block;

		if (!unused)
			continue;
		block = word * 64 + (uint32_t)__builtin_ctzll(unused);
		if (block < journal->count)
			return block;
	}
	return SHM_NO_BLOCK;
}

/* Ends the tail block, if there is one, and goes on in a new one. */
static bool extend(struct journal *journal, struct journal_list *list)
{
	uint32_t block = find_free(journal), old = list->tail;

	if (block == SHM_NO_BLOCK)
		return false;
	take(journal, block);
	journal->last[block] = list->journaled;
	word_set(&journal->blocks[block].next, SHM_NO_BLOCK);
	if (old == SHM_NO_BLOCK) {
		list->head = block;
		word_release(&list->state->head_block, block);
	} else {
		if (list->offset < JOURNAL_RECORDS)
			journal_reserve(journal, list)->size = 0;
		word_release(&journal->blocks[old].next, block);
	}
	list->tail = block;
	list->offset = 0;
	word_set(&list->state->tail_block, block);
	word_set(&list->state->tail_offset, 0);
	return true;
}

bool journal_make_room(struct journal *journal, struct journal_list *list, uint32_t size, uint64_t done)
{
	journal_reclaim(journal, list, done);
	if (list->tail != SHM_NO_BLOCK && done >= list->journaled) {
		list->offset = 0;
		word_set(&list->state->tail_offset, 0);
	}
	if (list->tail != SHM_NO_BLOCK && size <= JOURNAL_RECORDS - list->offset)
		return true;
	return extend(journal, list);
}

/* True if the block ends at this offset; otherwise a record begins there. */
static bool block_ends(const struct journal *journal, struct journal_place place)
{
	return place.offset >= JOURNAL_RECORDS || journal_at(journal, place)->size == 0;
}

struct journal_place journal_next(const struct journal *journal, struct journal_place place)
{
	place.offset += journal_at(journal, place)->size;
	if (block_ends(journal, place))
		place = (struct journal_place){word_relaxed(&journal->blocks[place.block].next), 0};
	return place;
}

void journal_reclaim(struct journal *journal, struct journal_list *list, uint64_t done)
{
	while (list->head != list->tail && journal->last[list->head] <= done) {
		uint32_t old = list->head;

		list->head = word_relaxed(&journal->blocks[old].next);
		word_release(&list->state->head_block, list->head);
		give_back(journal, old);
	}
}

void journal_clear(struct journal *journal, struct journal_list *list)
{
	journal_reclaim(journal, list, list->journaled);
	if (list->tail != SHM_NO_BLOCK)
		give_back(journal, list->tail);
	list->head = list->tail = SHM_NO_BLOCK;
	list->offset = 0;
	word_set(&list->state->tail_block, SHM_NO_BLOCK);
	word_release(&list->state->head_block, SHM_NO_BLOCK);
}

/* A reader of another executor's journal: the position, and the seq that must come next (0: not
 * known yet). */
struct adoption {
	struct journal *journal;
	struct journal_list *list;
	struct journal_place at;
	uint64_t done, journaled, expected;
};

static bool enter_block(struct adoption *adoption, uint32_t block)
{
	if (block >= adoption->journal->count || is_used(adoption->journal, block))
		return false;
	take(adoption->journal, block);
	adoption->at = (struct journal_place){block, 0};
	return true;
}

static bool is_record(const struct adoption *adoption, const struct frmps_head *head)
{
	if (head->size < sizeof(*head) || head->size > FRMPS_RECORD_MAX || head->size % FRMPS_RECORD_ALIGN ||
		head->size > JOURNAL_RECORDS - adoption->at.offset)
		return false;
	if (adoption->expected)
		return head->seq == adoption->expected;
	return head->seq >= 1 && head->seq <= adoption->done + 1;
}

/* One record or one step to the next block. Return: 1 go on, 0 the end was found, -1 broken. */
static int adopt_step(struct adoption *adoption, struct journal_place *ret_first)
{
	struct journal *journal = adoption->journal;
	struct frmps_head *head = journal_at(journal, adoption->at);

	if (block_ends(journal, adoption->at)) {
		if (!adoption->expected)
			return -1;
		return enter_block(adoption, word_acquire(&journal->blocks[adoption->at.block].next)) ? 1
												      : -1;
	}
	if (!is_record(adoption, head))
		return -1;
	if (head->seq == adoption->done + 1)
		*ret_first = adoption->at;
	journal->last[adoption->at.block] = head->seq;
	adoption->at.offset += head->size;
	adoption->expected = head->seq + 1;
	return head->seq < adoption->journaled;
}

int journal_adopt(
	struct journal *journal, struct journal_list *list, uint64_t done, struct journal_place *ret_first)
{
	uint64_t journaled = word_acquire(&list->state->journaled);
	uint32_t head = word_acquire(&list->state->head_block);
	struct adoption adoption = {.journal = journal, .list = list, .done = done, .journaled = journaled};
	int more = 1;

	list->journaled = journaled;
	if (done >= journaled)
		return 0;
	if (!enter_block(&adoption, head))
		return JOURNAL_E_BROKEN;
	while (more > 0)
		more = adopt_step(&adoption, ret_first);
	if (more < 0)
		return JOURNAL_E_BROKEN;
	list->head = head;
	list->tail = adoption.at.block;
	list->offset = adoption.at.offset;
	return 0;
}
