// See body.h. No state.

#include "server/executor/body.h"

bool body_span(
	uint64_t width, uint64_t height, uint64_t depth, uint64_t pitch, uint64_t rows, uint64_t *ret_bytes)
{
	uint64_t planes, lines, bytes;

	if (!width || !height || !depth)
		return false;
	if ((height > 1 || depth > 1) && pitch < width)
		return false;
	if (depth > 1 && rows < height)
		return false;
	if (__builtin_mul_overflow(depth - 1, rows, &planes) ||
		__builtin_add_overflow(planes, height - 1, &lines) ||
		__builtin_mul_overflow(lines, lines ? pitch : 0, &bytes) ||
		__builtin_add_overflow(bytes, width, &bytes))
		return false;
	*ret_bytes = bytes;
	return true;
}

struct backend_copy body_copy(const struct frmps_copy *body)
{
	return (struct backend_copy){
		.dst = body->dst,
		.src = body->src,
		.width = body->width,
		.height = body->height,
		.depth = body->depth,
		.dst_pitch = body->dst_pitch,
		.src_pitch = body->src_pitch,
		.dst_rows = body->dst_rows,
		.src_rows = body->src_rows,
		.dst_is_host = body->kind & (FRMPS_COPY_DST_ARENA | FRMPS_COPY_DST_HOST),
		.src_is_host = body->kind & (FRMPS_COPY_SRC_ARENA | FRMPS_COPY_SRC_HOST),
	};
}
