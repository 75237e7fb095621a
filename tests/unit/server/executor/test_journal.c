// The journal and its reader. "Torn" means: the writer stopped anywhere; here at every word that it
// stores to the region while it appends, by comparing what a reader finds after each of many random
// histories.

#include "server/executor/journal.h"

#include <stdlib.h>
#include <string.h>

#include "tests/lib/suite.h"

#define BLOCKS 8u

static struct shm_block *blocks;
static struct shm_stream_state *state;
static struct journal journal;
static struct journal_list list;
static uint64_t seq;

static void init(void)
{
	blocks = aligned_alloc(4096, BLOCKS * sizeof(*blocks));
	memset(blocks, 0xa5, BLOCKS * sizeof(*blocks));
	state = aligned_alloc(64, 2 * sizeof(*state));
	memset(state, 0, 2 * sizeof(*state));
	word_set(&state->head_block, SHM_NO_BLOCK);
	word_set(&state->tail_block, SHM_NO_BLOCK);
	journal_init(&journal, blocks, BLOCKS);
	journal_list_init(&list, state);
	seq = 0;
}

static void deinit(void)
{
	free(blocks);
	free(state);
}

static bool write_record(uint32_t size, uint64_t done)
{
	struct frmps_head *head;

	if (!journal_fits(&list, size) && !journal_make_room(&journal, &list, size, done))
		return false;
	head = journal_reserve(&journal, &list);
	memset(head, (int)(seq + 1), size);
	*head = (struct frmps_head){.size = size, .op = FRMPS_OP_LAUNCH, .seq = seq + 1};
	return true;
}

static bool append(uint32_t size, uint64_t done)
{
	if (!write_record(size, done))
		return false;
	journal_commit(&journal, &list, size, ++seq);
	return true;
}

/* Reads as a later executor and checks that exactly done+1 … journaled are there, whole. */
static void check_reader(uint64_t done)
{
	static uint8_t expected[FRMPS_RECORD_MAX];
	static struct journal other;
	struct journal_list copy;
	struct journal_place place = {0, 0};

	journal_init(&other, blocks, BLOCKS);
	journal_list_init(&copy, state);
	ck_assert_int_eq(journal_adopt(&other, &copy, done, &place), 0);
	ck_assert_uint_eq(copy.journaled, word_relaxed(&state->journaled));
	for (uint64_t at = done + 1; at <= copy.journaled; at++) {
		const struct frmps_head *head = journal_at(&other, place);

		ck_assert_uint_eq(head->seq, at);
		memset(expected, (int)at, head->size);
		ck_assert_int_eq(memcmp(head + 1, expected, head->size - sizeof(*head)), 0);
		if (at < copy.journaled)
			place = journal_next(&other, place);
	}
}

TEST(one_stream, appends_and_walks)
{
	struct journal_place place;

	ck_assert(append(64, 0));
	place = (struct journal_place){list.head, 0};
	for (int i = 0; i < 3000; i++)
		ck_assert(append(64 + 16 * (uint32_t)(i % 5), 0));
	ck_assert_uint_gt(BLOCKS - journal.free_count, 1);
	for (uint64_t at = 1; at <= seq; at++) {
		ck_assert_uint_eq(journal_at(&journal, place)->seq, at);
		if (at < seq)
			place = journal_next(&journal, place);
	}
	check_reader(0);
	check_reader(seq / 2);
}

TEST(one_stream, a_drained_stream_stays_on_its_first_page)
{
	for (int i = 0; i < 20000; i++)
		ck_assert(append(128, seq));
	ck_assert_uint_eq(BLOCKS - journal.free_count, 1);
	ck_assert_uint_le(list.offset, 4096);
}

TEST(one_stream, blocks_come_back)
{
	while (append(36864, 0))
		;
	ck_assert_uint_eq(seq, BLOCKS);
	ck_assert_uint_eq(journal.free_count, 0);
	ck_assert(append(36864, 2));
	ck_assert_uint_eq(journal.free_count, 1);
	check_reader(2);
	journal_reclaim(&journal, &list, seq);
	ck_assert_uint_eq(journal.free_count, BLOCKS - 1);
	journal_clear(&journal, &list);
	ck_assert_uint_eq(journal.free_count, BLOCKS);
	ck_assert(append(64, seq));
	check_reader(seq - 1);
}

TEST(one_stream, a_full_block_needs_no_end)
{
	/* 65520 = 4095 * 16 bytes of records. */
	for (int i = 0; i < 2; i++)
		ck_assert(append(JOURNAL_RECORDS / 2 / 16 * 16, 0));
	ck_assert(append(16 + 16, 0));
	ck_assert(append(64, 0));
	check_reader(0);
}

TEST(one_stream, torn_anywhere)
{
	uint64_t done = 0;

	srand(12);
	for (int i = 0; i < 2000; i++) {
		uint32_t size = rand() % 40 ? 32 + 16 * ((uint32_t)rand() % 20) : 32768;

		if (rand() % 3 == 0)
			done += (uint64_t)rand() % (seq - done + 1);
		/* Died with the record written, or only half of it, and not journaled. */
		if (!write_record(size, done)) {
			done = seq;
			continue;
		}
		check_reader(done);
		memset(journal_reserve(&journal, &list), 0xff, size / 2);
		check_reader(done);
		ck_assert(append(size, done));
		check_reader(done);
		check_reader(seq);
	}
}

TEST(one_stream, goes_on_where_the_former_ended)
{
	static struct journal other;
	struct journal_place place = {0, 0};
	struct journal_list copy;

	for (int i = 0; i < 1500; i++)
		append(80, 0);
	write_record(80, 0);
	journal_init(&other, blocks, BLOCKS);
	journal_list_init(&copy, state);
	ck_assert_int_eq(journal_adopt(&other, &copy, 700, &place), 0);
	journal = other;
	list = copy;
	for (int i = 0; i < 1500; i++)
		ck_assert(append(48, 700));
	check_reader(700);
	journal_reclaim(&journal, &list, seq);
	journal_clear(&journal, &list);
	ck_assert_uint_eq(journal.free_count, BLOCKS);
}

/* Every damage that the reader can meet is said to be one; none makes it run away. */
TEST(one_stream, refuses_what_is_no_journal)
{
	static struct journal other;
	struct journal_place place;
	struct journal_list copy;
	uint32_t head;

	for (int i = 0; i < 1500; i++)
		append(80, 0);
	head = word_relaxed(&state->head_block);
	for (int damage = 0; damage < 6; damage++) {
		struct frmps_head *first = (void *)blocks[head].records;
		struct frmps_head saved = *first;
		uint32_t next = word_relaxed(&blocks[head].next);

		switch (damage) {
		case 0:
			word_set(&state->head_block, BLOCKS);
			break;
		case 1:
			word_set(&blocks[head].next, head);
			break;
		case 2:
			word_set(&blocks[head].next, SHM_NO_BLOCK);
			break;
		case 3:
			first->size = 24;
			break;
		case 4:
			first->seq = 5;
			break;
		default:
			first->size = 0;
			break;
		}
		journal_init(&other, blocks, BLOCKS);
		journal_list_init(&copy, state);
		ck_assert_int_eq(journal_adopt(&other, &copy, 0, &place), JOURNAL_E_BROKEN);
		word_set(&state->head_block, head);
		word_set(&blocks[head].next, next);
		*first = saved;
	}
	check_reader(0);
}

int main(void)
{
	Suite *suite = suite_create("journal");
	TCase *one = suite_case(suite, "one stream");

	tcase_add_checked_fixture(one, init, deinit);
	suite_add(one, "one_stream");
	return suite_run(suite);
}
