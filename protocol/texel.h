// Geometry of CUDA arrays: bytes of an element, and rows and planes of a level, as copies count
// these. Client and service must agree to the byte, so they share this file. Pure functions of an
// unchecked description.

#ifndef FRMPS_PROTOCOL_TEXEL_H
#define FRMPS_PROTOCOL_TEXEL_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/command.h"
#include "protocol/wire.h"

/* A level of an array. An element of a compressed format is a block of four by four texels, and a
 * row is a row of blocks. */
struct texel_level {
	uint32_t element_bytes;
	uint64_t row_bytes, rows, planes; /* none is zero; their product fits 63 bits */
};

/** Bytes of an element; 0 for an unsupported format, or a wrong number of channels. */
uint32_t texel_bytes(uint32_t format, uint32_t channels);

/** True for formats with several planes, or with unsupported packing. */
bool texel_is_video(uint32_t format);

/**
 * Geometry of a level.
 * @array: levels 0 counts as 1
 * Return: false for an invalid level or format, or a level larger than any device.
 */
bool texel_level(const struct wire_array *array, uint32_t level, struct texel_level *ret_level);

#endif
