// See box.h. No state.

#include "client/stage/box.h"

#include <string.h>

#include "client/stage/copy_thread.h"

bool box_extent(const struct box *box, const struct box_side *side, uint64_t *ret_bytes)
{
	uint64_t lines, bytes, end;

	if (box->height > 1 && side->pitch < box->width)
		return false;
	if (box->depth > 1 && (side->rows < box->height || side->pitch < box->width))
		return false;
	if (__builtin_mul_overflow(box->depth - 1, side->rows, &lines) ||
		__builtin_add_overflow(lines, box->height - 1, &lines) ||
		__builtin_mul_overflow(lines, side->pitch, &bytes) ||
		__builtin_add_overflow(bytes, box->width, &bytes) ||
		__builtin_add_overflow(side->address, bytes, &end))
		return false;
	*ret_bytes = bytes;
	return true;
}

void box_flatten(struct box *box)
{
	bool dense = box->dst.rows == box->height && box->src.rows == box->height &&
		     box->dst.pitch == box->src.pitch;

	if (box->depth > 1 && dense) {
		box->height *= box->depth;
		box->depth = 1;
	}
	if (box->depth == 1 && box->height > 1 && box->dst.pitch == box->width &&
		box->src.pitch == box->width) {
		box->width *= box->height;
		box->height = 1;
	}
	if (box->height == 1 && box->depth == 1)
		box->dst.pitch = box->src.pitch = box->width;
	if (box->depth == 1)
		box->dst.rows = box->src.rows = box->height;
}

static uint64_t offset(const struct box_side *side, const struct box_cursor *c)
{
	return (c->plane * side->rows + c->row) * side->pitch + c->column;
}

static void advance(const struct box *box, struct box_cursor *c, const struct box *piece)
{
	c->column += piece->width;
	if (c->column < box->width)
		return;
	c->column = 0;
	c->row += piece->height;
	if (c->row < box->height)
		return;
	c->row = 0;
	++c->plane;
}

bool box_next(const struct box *box, struct box_cursor *cursor, uint64_t most, struct box *ret_piece)
{
	struct box piece = *box;
	uint64_t left = box->width - cursor->column;

	if (cursor->plane >= box->depth)
		return false;
	piece.width = left < most ? left : most;
	piece.height = 1;
	piece.depth = 1;
	if (piece.width == box->width) {
		uint64_t fit = most / box->width, rows = box->height - cursor->row;

		piece.height = fit < rows ? fit : rows;
	}
	piece.dst.address += offset(&box->dst, cursor);
	piece.src.address += offset(&box->src, cursor);
	piece.dst.rows = piece.src.rows = piece.height;
	advance(box, cursor, &piece);
	*ret_piece = piece;
	return true;
}

static void copy_row(void *dst, const void *src, uint64_t bytes)
{
	memmove(dst, src, bytes);
}

#if defined(__SSE2__)
#include <emmintrin.h>

/* Rows of at least this size are not read again soon enough to be worth the cache. Smaller rows
 * are: their destination is often cached already, and a waiting caller would wait for memory. */
#define STREAM_LEAST (256u << 10)

/*
 * Bypasses the cache: a plain store to uncached memory reads the line first, which costs a third of
 * the bandwidth of a copy whose source is cached already.
 */
static void copy_row_out(void *dst, const void *src, uint64_t bytes)
{
	uint64_t head = -(uintptr_t)dst & 63;
	const uint8_t *from = src;
	uint8_t *to = dst;

	if (bytes < STREAM_LEAST) {
		copy_row(dst, src, bytes);
		return;
	}
	memcpy(to, from, head);
	for (to += head, from += head, bytes -= head; bytes >= 64; to += 64, from += 64, bytes -= 64) {
		__m128i a = _mm_loadu_si128((const __m128i *)(const void *)from);
		__m128i b = _mm_loadu_si128((const __m128i *)(const void *)(from + 16));
		__m128i c = _mm_loadu_si128((const __m128i *)(const void *)(from + 32));
		__m128i d = _mm_loadu_si128((const __m128i *)(const void *)(from + 48));

		_mm_prefetch((const char *)from + 1024, _MM_HINT_NTA);
		_mm_stream_si128((__m128i *)(void *)to, a);
		_mm_stream_si128((__m128i *)(void *)(to + 16), b);
		_mm_stream_si128((__m128i *)(void *)(to + 32), c);
		_mm_stream_si128((__m128i *)(void *)(to + 48), d);
	}
	memcpy(to, from, bytes);
	/* The calling thread may publish the memory by any means; these stores must be as visible
	 * as others. */
	_mm_sfence();
}
#else
#define copy_row_out copy_row
#endif

static void copy_rows(const struct box *box, void (*copy)(void *, const void *, uint64_t))
{
	struct box_cursor c;

	for (c.plane = 0, c.column = 0; c.plane < box->depth; ++c.plane)
		for (c.row = 0; c.row < box->height; ++c.row)
			copy((void *)(uintptr_t)(box->dst.address + offset(&box->dst, &c)),
				(const void *)(uintptr_t)(box->src.address + offset(&box->src, &c)),
				box->width);
}

static void carry_out(void *dst, const void *src, uint64_t bytes)
{
	copy_thread_copy(copy_row_out, dst, src, bytes);
}

static void carry_in(void *dst, const void *src, uint64_t bytes)
{
	copy_thread_copy(copy_row, dst, src, bytes);
}

void box_copy(const struct box *box)
{
	copy_rows(box, copy_row);
}

void box_copy_in(const struct box *box)
{
	copy_rows(box, carry_in);
}

void box_copy_out(const struct box *box)
{
	copy_rows(box, carry_out);
}
