// Tests of client/stage/box.c: extents, flattening, and pieces. A byte-by-byte copy of the same box
// is the reference.

#include <stdlib.h>
#include <string.h>

#include "client/stage/box.h"
#include "tests/lib/suite.h"

#define ROOM 4096

static uint8_t source[ROOM], wanted[ROOM], got[ROOM];

static struct box make(uint64_t width, uint64_t height, uint64_t depth, uint64_t dst_pitch,
	uint64_t src_pitch, uint64_t dst_rows, uint64_t src_rows)
{
	return (struct box){
		.dst = {.address = (uintptr_t)got, .pitch = dst_pitch, .rows = dst_rows},
		.src = {.address = (uintptr_t)source, .pitch = src_pitch, .rows = src_rows},
		.width = width,
		.height = height,
		.depth = depth,
	};
}

static void reference(const struct box *box)
{
	memset(wanted, 0, sizeof(wanted));
	for (uint64_t z = 0; z < box->depth; ++z)
		for (uint64_t y = 0; y < box->height; ++y)
			for (uint64_t x = 0; x < box->width; ++x)
				wanted[(z * box->dst.rows + y) * box->dst.pitch + x] =
					source[(z * box->src.rows + y) * box->src.pitch + x];
}

/* Copies through a staging buffer of `most` bytes, as copy.c does. */
static void stage(const struct box *box, uint64_t most)
{
	struct box_cursor cursor = {0};
	uint8_t buffer[ROOM];
	struct box piece;

	memset(got, 0, sizeof(got));
	while (box_next(box, &cursor, most, &piece)) {
		struct box in = piece, out = piece;
		struct box_side packed = {
			.address = (uintptr_t)buffer, .pitch = piece.width, .rows = piece.height};

		ck_assert_uint_gt(piece.width * piece.height, 0);
		ck_assert_uint_le(piece.width * piece.height, most);
		in.dst = packed;
		box_copy(&in);
		out.src = packed;
		box_copy(&out);
	}
}

static void check_all_ways(struct box box)
{
	struct box flat = box;

	for (int i = 0; i < ROOM; ++i)
		source[i] = (uint8_t)(1 + i % 251);
	reference(&box);
	for (uint64_t most = 1; most < 70; ++most) {
		stage(&box, most);
		ck_assert_mem_eq(got, wanted, ROOM);
	}
	box_flatten(&flat);
	ck_assert_uint_eq(flat.width * flat.height * flat.depth, box.width * box.height * box.depth);
	stage(&flat, 64);
	ck_assert_mem_eq(got, wanted, ROOM);
	memset(got, 0, sizeof(got));
	box_copy(&flat);
	ck_assert_mem_eq(got, wanted, ROOM);
}

TEST(box, pieces_make_the_whole)
{
	check_all_ways(make(100, 1, 1, 100, 100, 1, 1));
	check_all_ways(make(7, 11, 1, 7, 7, 11, 11));
	check_all_ways(make(7, 11, 1, 9, 16, 11, 11));
	check_all_ways(make(7, 5, 4, 7, 7, 5, 5));
	check_all_ways(make(7, 5, 4, 8, 10, 6, 7));
	check_all_ways(make(7, 5, 4, 7, 7, 6, 5));
	check_all_ways(make(1, 1, 9, 3, 5, 2, 1));
}

TEST(box, flat_boxes_are_lines)
{
	struct box box = make(7, 5, 4, 7, 7, 5, 5);

	box_flatten(&box);
	ck_assert_uint_eq(box.width, 140);
	ck_assert_uint_eq(box.height, 1);
	ck_assert_uint_eq(box.depth, 1);
	box = make(7, 5, 4, 8, 8, 5, 5);
	box_flatten(&box);
	ck_assert_uint_eq(box.width, 7);
	ck_assert_uint_eq(box.height, 20);
	box = make(7, 5, 4, 7, 8, 5, 5);
	box_flatten(&box);
	ck_assert_uint_eq(box.depth, 4);
}

TEST(box, extents_are_exact)
{
	struct box box = make(7, 5, 4, 8, 10, 6, 5);
	uint64_t bytes;

	ck_assert(box_extent(&box, &box.dst, &bytes));
	ck_assert_uint_eq(bytes, (3 * 6 + 4) * 8 + 7);
	ck_assert(box_extent(&box, &box.src, &bytes));
	ck_assert_uint_eq(bytes, (3 * 5 + 4) * 10 + 7);
}

TEST(box, impossible_boxes_are_refused)
{
	struct box box = make(7, 5, 1, 6, 7, 5, 5);
	uint64_t bytes;

	ck_assert(!box_extent(&box, &box.dst, &bytes));
	box = make(7, 5, 2, 7, 7, 4, 5);
	ck_assert(!box_extent(&box, &box.dst, &bytes));
	box = make(7, UINT64_MAX / 2, 1, UINT64_MAX / 2, 7, 5, 5);
	ck_assert(!box_extent(&box, &box.dst, &bytes));
	box = make(UINT64_MAX - 8, 1, 1, 0, 0, 1, 1);
	ck_assert(!box_extent(&box, &box.dst, &bytes));
	/* A single row's pitch says nothing. */
	box = make(7, 1, 1, 0, 0, 0, 0);
	ck_assert(box_extent(&box, &box.dst, &bytes));
	ck_assert_uint_eq(bytes, 7);
}

/* Sizes and offsets around everything that a copy past the cache treats differently. */
TEST_LOOP(box, a_copy_past_the_cache_moves_every_byte, 0, 8)
{
	enum { BYTES = 600000 };
	static const uint64_t sizes[] = {1, 63, 65537, 262143, 262144, 262145, 262144 + 65, 524288 + 193};
	uint8_t *from = malloc(BYTES), *to = malloc(BYTES);

	for (uint32_t i = 0; i < BYTES; i++)
		from[i] = (uint8_t)(i * 7 + (i >> 8));
	for (uint64_t at = 0; at < 70; at += 3) {
		uint64_t bytes = sizes[_i];
		struct box box = box_line((uintptr_t)to + at, (uintptr_t)from + at / 2, bytes);

		memset(to, 0xee, BYTES);
		box_copy_out(&box);
		ck_assert_int_eq(memcmp(to + at, from + at / 2, bytes), 0);
		ck_assert_uint_eq(to[at + bytes], 0xee);
		ck_assert(at == 0 || to[at - 1] == 0xee);
	}
	free(from);
	free(to);
}

int main(void)
{
	Suite *suite = suite_create("box");
	TCase *cases = suite_case(suite, "box");

	suite_add(cases, "box");
	return suite_run(suite);
}
