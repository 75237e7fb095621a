// Geometry of CUDA arrays: bytes of an element, and rows and planes of a level, as copies count
// them. Client and service must agree on it to the byte, so it is here. Pure functions of a
// description that nobody needs to have checked.

#ifndef FRMPS_PROTOCOL_TEXEL_H
#define FRMPS_PROTOCOL_TEXEL_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/command.h"
#include "protocol/wire.h"

/* One level of an array. Of compressed formats an element is a block of four by four texels, and a
 * row one of blocks. */
struct texel_level {
	uint32_t element_bytes;
	uint64_t row_bytes, rows, planes; /* none is zero; their product fits 63 bits */
};

/** Bytes of an element; 0 for a format that arrays do not have here, or a wrong number of
 * channels. */
uint32_t texel_bytes(uint32_t format, uint32_t channels);

/** Whether a format has several planes, or is packed in a way that arrays do not have here. */
bool texel_is_video(uint32_t format);

/**
 * Geometry of a level.
 * @array: levels 0 counts as one
 * Return: false if there is no such level, the format is none, or it would be larger than any
 * device.
 */
bool texel_level(const struct wire_array *array, uint32_t level, struct texel_level *ret_level);

#endif
