// See texel.h. No state.

#include "protocol/texel.h"

#include "protocol/cuda_abi.h"

/* Texels of a side of a compressed block. */
#define BLOCK 4u

static bool is_compressed(uint32_t format)
{
	return format >= CU_AD_FORMAT_BC1_UNORM && format <= CU_AD_FORMAT_BC7_UNORM_SRGB;
}

/* Formats of any of 1, 2 and 4 channels: bytes of a channel. */
static uint32_t channel_bytes(uint32_t format)
{
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return 1;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4;
	default:
		return 0;
	}
}

/* UNORM_INT8X1, X2, X4, UNORM_INT16X1 …, then the same of SNORM: the format determines the
 * channels. */
static uint32_t normalized_bytes(uint32_t format, uint32_t channels)
{
	uint32_t number = format - CU_AD_FORMAT_UNORM_INT8X1;
	uint32_t has = 1u << number % 3;

	return channels == has ? has * (number / 3 % 2 ? 2 : 1) : 0;
}

uint32_t texel_bytes(uint32_t format, uint32_t channels)
{
	if (is_compressed(format))
		return format <= CU_AD_FORMAT_BC1_UNORM_SRGB || format == CU_AD_FORMAT_BC4_UNORM ||
				       format == CU_AD_FORMAT_BC4_SNORM
			       ? 8
			       : 16;
	if (format >= CU_AD_FORMAT_UNORM_INT8X1 && format <= CU_AD_FORMAT_SNORM_INT16X4)
		return normalized_bytes(format, channels);
	return channels == 1 || channels == 2 || channels == 4 ? channels * channel_bytes(format) : 0;
}

bool texel_is_video(uint32_t format)
{
	return format > CU_AD_FORMAT_BC7_UNORM_SRGB && format < CU_AD_FORMAT_UNORM_INT8X1;
}

/* An extent of 0 stands for 1. */
static uint64_t shrunk(uint64_t extent, uint32_t level)
{
	extent >>= level;
	return extent ? extent : 1;
}

bool texel_level(const struct wire_array *array, uint32_t level, struct texel_level *ret_level)
{
	bool is_layered = array->flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
	uint64_t block = is_compressed(array->format) ? BLOCK : 1, bytes;
	struct texel_level found = {
		.element_bytes = texel_bytes(array->format, array->channels),
		.rows = (shrunk(array->height, level) - 1) / block + 1,
		.planes = shrunk(array->depth, is_layered ? 0 : level),
	};

	if (!found.element_bytes || level >= (array->levels ? array->levels : 1) ||
		level >= FRMPS_ARRAY_LEVELS)
		return false;
	if (__builtin_mul_overflow((shrunk(array->width, level) - 1) / block + 1,
		    (uint64_t)found.element_bytes, &found.row_bytes) ||
		__builtin_mul_overflow(found.row_bytes, found.rows, &bytes) ||
		__builtin_mul_overflow(bytes, found.planes, &bytes) || bytes > INT64_MAX)
		return false;
	*ret_level = found;
	return true;
}
