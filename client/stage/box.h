// Geometry of copies: boxes of bytes, the places of their sides, and the division of a box into
// pieces that fit the staging memory. Pure functions.

#ifndef FRMPS_CLIENT_STAGE_BOX_H
#define FRMPS_CLIENT_STAGE_BOX_H

#include <stdbool.h>
#include <stdint.h>

struct client_array;

/* A side of a copy. */
struct box_side {
	uint64_t address;
	uint64_t pitch; /* bytes from row to row */
	uint64_t rows;	/* rows from plane to plane */
	/* NULL: memory. Otherwise the address is the place in the array, as if its rows and planes
	 * were contiguous, and the serial number identifies the array. */
	const struct client_array *array;
	uint64_t serial;
};

/* depth planes of height rows of width bytes. */
struct box {
	struct box_side dst, src;
	uint64_t width, height, depth;
};

/** A plain run of bytes. */
static inline struct box box_line(uint64_t dst, uint64_t src, uint64_t bytes)
{
	return (struct box){
		.dst = {.address = dst, .pitch = bytes, .rows = 1},
		.src = {.address = src, .pitch = bytes, .rows = 1},
		.width = bytes,
		.height = 1,
		.depth = 1,
	};
}

static inline bool box_is_empty(const struct box *box)
{
	return box->width == 0 || box->height == 0 || box->depth == 0;
}

/**
 * Bytes from the begin of a side's first row to the end of its last. Return: false if rows overlap
 * (pitch below width, rows below height, where these matter) or the end is beyond the address
 * space.
 */
bool box_extent(const struct box *box, const struct box_side *side, uint64_t *ret_bytes);

/** Joins planes and rows that are contiguous on both sides. */
void box_flatten(struct box *box);

/* Where the next piece of a box begins. */
struct box_cursor {
	uint64_t plane, row, column;
};

/**
 * The next piece: some rows of a plane, or a part of a row, of at most `most` bytes. Its rows are
 * packed on the staging side (pitch = width).
 * @ret_piece: dst and src addresses and pitches as in the box, depth 1
 * Return: false at the end of the box.
 */
bool box_next(const struct box *box, struct box_cursor *cursor, uint64_t most, struct box *ret_piece);

/** Copies a box in this process's own memory. */
void box_copy(const struct box *box);

/**
 * Copies a box between memory that does not overlap, into staging memory; large rows with two
 * threads.
 */
void box_copy_in(const struct box *box);

/** Copies a box out of staging memory, to memory that no thread reads soon. */
void box_copy_out(const struct box *box);

#endif
