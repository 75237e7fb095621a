// Tests of client/state/heap.c: the cutting of a window into chunks and blocks. A plain list of
// what is handed out is the reference.

#include <stdlib.h>

#include "client/state/heap.h"
#include "tests/lib/scarce.h"
#include "tests/lib/suite.h"

#define BASE  UINT64_C(0x100000000000)
#define BYTES (UINT64_C(1) << 30)
#define UNIT  512u

static struct heap heap;

static void setup(void)
{
	heap_init(&heap, BASE, BYTES, UNIT);
}

static void teardown(void)
{
	heap_deinit(&heap);
}

/* Allocates as pool.c does, with a mapping that always succeeds. */
static struct heap_block *get(uint64_t bytes)
{
	struct heap_chunk *chunk;
	struct heap_block *block;
	int r = heap_alloc(&heap, bytes, &block);

	if (r == HEAP_E_FULL) {
		if (heap_reserve(&heap, bytes, false, &chunk) != 0)
			return NULL;
		return heap_adopt(&heap, chunk);
	}
	return r == 0 ? block : NULL;
}

TEST(heap, small_ones_share_a_chunk)
{
	struct heap_block *a = get(1), *b = get(513);

	ck_assert_uint_eq(a->address, BASE);
	ck_assert_uint_eq(a->bytes, UNIT);
	ck_assert_uint_eq(b->address, BASE + UNIT);
	ck_assert_uint_eq(b->bytes, 2 * UNIT);
	ck_assert_ptr_eq(a->chunk, b->chunk);
	ck_assert_uint_eq(a->chunk->bytes, HEAP_GRAIN);
}

TEST(heap, large_ones_stand_alone_with_gaps)
{
	struct heap_block *a = get(HEAP_SMALL_MAX + 1), *b = get(3 * HEAP_GRAIN);

	ck_assert_uint_eq(a->bytes, HEAP_GRAIN);
	ck_assert_uint_eq(a->address % HEAP_GRAIN, 0);
	ck_assert_uint_eq(b->address, a->address + a->bytes + HEAP_GRAIN);
	ck_assert_ptr_ne(a->chunk, b->chunk);
}

TEST(heap, freed_neighbours_grow_together)
{
	struct heap_block *a = get(UNIT), *b = get(UNIT), *c = get(UNIT), *d;
	uint64_t address = a->address;

	get(UNIT);
	heap_free(&heap, a);
	heap_free(&heap, c);
	heap_free(&heap, b);
	d = get(3 * UNIT);
	ck_assert_uint_eq(d->address, address);
}

TEST(heap, spare_chunks_are_reused_and_given_back)
{
	struct heap_block *a = get(8 * HEAP_GRAIN), *b;
	uint64_t address = a->address;
	struct heap_chunk *chunk;

	heap_free(&heap, a);
	ck_assert_uint_eq(heap.spare_bytes, 8 * HEAP_GRAIN);
	b = get(8 * HEAP_GRAIN);
	ck_assert_uint_eq(b->address, address);
	ck_assert_uint_eq(heap.spare_bytes, 0);
	heap_free(&heap, b);
	ck_assert_ptr_null(heap_excess(&heap, 8 * HEAP_GRAIN));
	chunk = heap_excess(&heap, 0);
	ck_assert_ptr_nonnull(chunk);
	ck_assert_uint_eq(chunk->address, address);
	/* Out of use: its addresses are still taken, nobody gets them. */
	b = get(8 * HEAP_GRAIN);
	ck_assert_uint_ne(b->address, address);
	heap_forget(&heap, chunk);
	ck_assert_uint_eq(get(8 * HEAP_GRAIN)->address, address);
}

TEST(heap, much_smaller_requests_do_not_take_a_large_spare_chunk)
{
	heap_free(&heap, get(64 * HEAP_GRAIN));
	ck_assert_uint_eq(get(2 * HEAP_GRAIN)->bytes, 2 * HEAP_GRAIN);
	ck_assert_uint_eq(heap.spare_bytes, 64 * HEAP_GRAIN);
}

TEST(heap, a_chunk_that_was_not_mapped_leaves_nothing)
{
	struct heap_chunk *chunk;

	ck_assert_int_eq(heap_reserve(&heap, 4 * HEAP_GRAIN, false, &chunk), 0);
	heap_forget(&heap, chunk);
	ck_assert_uint_eq(heap.spare_bytes, 0);
	ck_assert_uint_eq(get(4 * HEAP_GRAIN)->address, BASE);
}

#if SCARCE_POSSIBLE
/* What is mapped and cannot be used would be lost. */
TEST(heap_2, a_chunk_that_is_mapped_needs_no_memory)
{
	struct heap_chunk *chunk;
	struct heap_block *block;

	ck_assert_int_eq(heap_reserve(&heap, UNIT, false, &chunk), 0);
	scarce_begin();
	block = heap_adopt(&heap, chunk);
	scarce_end();
	ck_assert_uint_eq(block->address, BASE);
	ck_assert_uint_eq(block->bytes, UNIT);
	ck_assert_uint_eq(get(HEAP_GRAIN / 2)->address, BASE + UNIT);
}
#endif

TEST(heap_3, onward_addresses_are_used_again_late)
{
	struct heap_chunk *chunk;
	uint64_t at;

	heap.onward = true;
	at = get(8 * HEAP_GRAIN)->address;
	ck_assert_uint_eq(at, BASE);
	for (unsigned i = 0; i < 3; i++) {
		ck_assert_int_eq(heap_reserve(&heap, 8 * HEAP_GRAIN, false, &chunk), 0);
		ck_assert_uint_eq(chunk->address, at + 9 * HEAP_GRAIN);
		at = chunk->address;
		heap_forget(&heap, chunk);
	}
	/* Not enough behind it: from the beginning, past what is there. */
	ck_assert_int_eq(heap_reserve(&heap, BYTES - 20 * HEAP_GRAIN, false, &chunk), 0);
	ck_assert_uint_eq(chunk->address, BASE + 9 * HEAP_GRAIN);
	heap_forget(&heap, chunk);
}

TEST(heap_3, the_window_ends)
{
	struct heap_chunk *chunk;
	struct heap_block *block;

	ck_assert_int_eq(heap_alloc(&heap, BYTES + 1, &block), HEAP_E_SPACE);
	ck_assert_int_eq(heap_alloc(&heap, UINT64_MAX, &block), HEAP_E_SPACE);
	ck_assert_int_eq(heap_reserve(&heap, UINT64_MAX, false, &chunk), HEAP_E_SPACE);
	/* No room for the gap. */
	ck_assert_int_eq(heap_reserve(&heap, BYTES, false, &chunk), HEAP_E_SPACE);
	ck_assert_int_eq(heap_reserve(&heap, BYTES - HEAP_GRAIN, false, &chunk), 0);
	ck_assert_int_eq(heap_reserve(&heap, 1, false, &chunk), HEAP_E_SPACE);
}

TEST(heap_3, modest_chunks_are_small)
{
	struct heap_chunk *chunk;

	for (int i = 0; i < 6; ++i)
		ck_assert_int_eq(heap_reserve(&heap, 1, false, &chunk), 0);
	ck_assert_uint_eq(chunk->bytes, HEAP_SHARED_MAX);
	ck_assert_int_eq(heap_reserve(&heap, 1, true, &chunk), 0);
	ck_assert_uint_eq(chunk->bytes, HEAP_GRAIN);
}

#define LIVE 400

static void check_disjoint(struct heap_block **live, int count)
{
	for (int i = 0; i < count; ++i)
		for (int k = i + 1; live[i] && k < count; ++k)
			if (live[k])
				ck_assert(live[i]->address + live[i]->bytes <= live[k]->address ||
					  live[k]->address + live[k]->bytes <= live[i]->address);
}

TEST(heap_3, random_use_never_overlaps_and_ends_empty)
{
	static struct heap_block *live[LIVE];
	struct heap_chunk *chunk;

	srandom(7);
	for (int round = 0; round < 20000; ++round) {
		int i = (int)(random() % LIVE);

		if (live[i]) {
			heap_free(&heap, live[i]);
			live[i] = NULL;
		} else {
			live[i] = get(1 + (uint64_t)random() % (round % 10 ? 20000 : 2 * HEAP_GRAIN));
		}
		if (round % 2000 == 0)
			check_disjoint(live, LIVE);
		if (round % 100 == 0 && (chunk = heap_excess(&heap, 16 * HEAP_GRAIN)))
			heap_forget(&heap, chunk);
	}
	for (int i = 0; i < LIVE; ++i)
		if (live[i])
			heap_free(&heap, live[i]);
	while ((chunk = heap_excess(&heap, 0))) {
		if (chunk->shared)
			ck_assert_ptr_null(chunk->first->behind);
		heap_forget(&heap, chunk);
	}
	ck_assert_ptr_null(heap.first);
	ck_assert_uint_eq(heap.spare_bytes, 0);
	for (int i = 0; i < HEAP_BINS; ++i)
		ck_assert_ptr_null(heap.bins[i]);
}

int main(void)
{
	Suite *suite = suite_create("heap");
	TCase *cases = suite_case(suite, "heap");

	tcase_add_checked_fixture(cases, setup, teardown);
	suite_add(cases, "heap");
#if SCARCE_POSSIBLE
	suite_add(cases, "heap_2");
#endif
	suite_add(cases, "heap_3");
	return suite_run(suite);
}
