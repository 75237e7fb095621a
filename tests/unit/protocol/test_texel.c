// Geometry of arrays: formats, levels, layers, and what is no array.

#include "protocol/texel.h"

#include "protocol/cuda_abi.h"
#include "tests/lib/suite.h"

TEST(texel, formats_have_elements)
{
	ck_assert_uint_eq(texel_bytes(CU_AD_FORMAT_FLOAT, 4), 16);
	ck_assert_uint_eq(texel_bytes(CU_AD_FORMAT_HALF, 2), 4);
	ck_assert_uint_eq(texel_bytes(CU_AD_FORMAT_SIGNED_INT8, 1), 1);
	ck_assert_uint_eq(texel_bytes(CU_AD_FORMAT_FLOAT, 3), 0);
	ck_assert_uint_eq(texel_bytes(7, 1), 0);
	ck_assert_uint_eq(texel_bytes(CU_AD_FORMAT_UNORM_INT8X1, 1), 1);
	ck_assert_uint_eq(texel_bytes(CU_AD_FORMAT_SNORM_INT16X4, 4), 8);
	ck_assert_uint_eq(texel_bytes(CU_AD_FORMAT_SNORM_INT16X4, 2), 0);
	ck_assert_uint_eq(texel_bytes(CU_AD_FORMAT_BC1_UNORM, 4), 8);
	ck_assert_uint_eq(texel_bytes(CU_AD_FORMAT_BC7_UNORM_SRGB, 4), 16);
	ck_assert(texel_is_video(CU_AD_FORMAT_NV12) && !texel_is_video(CU_AD_FORMAT_FLOAT));
}

TEST(texel, levels_shrink_and_layers_do_not)
{
	struct wire_array array = {1, 4, 20, 6, 5, CU_AD_FORMAT_FLOAT, 1, 0};
	struct texel_level level;

	ck_assert(texel_level(&array, 2, &level));
	ck_assert(level.row_bytes == 20 && level.rows == 1 && level.planes == 1);
	array.flags = CUDA_ARRAY3D_LAYERED;
	ck_assert(texel_level(&array, 1, &level));
	ck_assert(level.row_bytes == 40 && level.rows == 3 && level.planes == 5);
	ck_assert(!texel_level(&array, 4, &level));
	array.levels = 0;
	ck_assert(texel_level(&array, 0, &level));
	ck_assert(!texel_level(&array, 1, &level));
	array.format = CU_AD_FORMAT_BC1_UNORM;
	ck_assert(texel_level(&array, 0, &level));
	ck_assert(level.row_bytes == 40 && level.rows == 2 && level.element_bytes == 8);
}

TEST(texel, sizes_do_not_wrap)
{
	struct wire_array array = {1, 0, UINT64_MAX, 1, 1, CU_AD_FORMAT_FLOAT, 1, 0};
	struct texel_level level;

	ck_assert(!texel_level(&array, 0, &level));
	array.width = array.height = UINT64_C(1) << 31;
	ck_assert(!texel_level(&array, 0, &level));
	array.height = 1;
	array.depth = UINT64_MAX;
	ck_assert(!texel_level(&array, 0, &level));
}

int main(void)
{
	Suite *suite = suite_create("texel");
	TCase *tests = tcase_create("texel");

	suite_add(tests, "texel");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
