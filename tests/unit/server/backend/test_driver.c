// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// The cuda backend on a driver of the test's own: what clients may ask of it that the driver should not be
// asked, and what is left when the driver refuses.

#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/backend/cuda/cuda.h"
#include "server/backend/cuda/jit.h"
#include "tests/lib/suite.h"

/* ---- arrays ---- */

static int imports, destroyed;

static CUresult array_create(CUarray *ret_array, const CUDA_ARRAY3D_DESCRIPTOR *form)
{
	(void)form;
	*ret_array = (CUarray)(void *)&imports;
	return CUDA_SUCCESS;
}

static CUresult array_requirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *ret_need, CUarray array, CUdevice device)
{
	(void)array;
	(void)device;
	*ret_need = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = 4096, .alignment = 512};
	return CUDA_SUCCESS;
}

static CUresult array_destroy(CUarray array)
{
	(void)array;
	return CUDA_SUCCESS;
}

/* Takes the descriptor. */
static CUresult external_import(CUexternalMemory *ret_memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *handle)
{
	close(handle->handle.fd);
	*ret_memory = (CUexternalMemory)(void *)&imports;
	imports++;
	return CUDA_SUCCESS;
}

static CUresult external_array(CUmipmappedArray *ret_mipmap, CUexternalMemory memory,
	const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *form)
{
	(void)ret_mipmap;
	(void)memory;
	(void)form;
	return CUDA_ERROR_INVALID_VALUE;
}

static CUresult external_destroy(CUexternalMemory memory)
{
	(void)memory;
	destroyed++;
	return CUDA_SUCCESS;
}

/* What the first try took is the array's, and goes with it. */
START_TEST(an_array_is_backed_once)
{
	const struct wire_array form = {.width = 4, .height = 4, .format = 32, .channels = 1};
	const struct wire_back_array memory = {.span = 1 << 21, .offset = 8, .bytes = 64};
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct backend_array *array;
	uint64_t bytes, alignment;

	driver.array_create = array_create;
	driver.array_requirements = array_requirements;
	driver.array_destroy = array_destroy;
	driver.external_import = external_import;
	driver.external_array = external_array;
	driver.external_destroy = external_destroy;
	ck_assert_int_eq(cuda_array_make(&form, &array, &bytes, &alignment), CUDA_SUCCESS);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(cuda_array_back(array, &memory, fd), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(imports, 1);
	ck_assert_int_eq(cuda_array_free(array), CUDA_SUCCESS);
	ck_assert_int_eq(destroyed, 1);
	close(fd);
}
END_TEST

/* ---- compilers ---- */

START_TEST(a_program_does_not_choose_the_threads_of_its_compiler)
{
	struct wire_option wishes[] = {
		{.id = CU_JIT_MAX_REGISTERS, .value = 32}, {.id = CU_JIT_SPLIT_COMPILE, .value = 4096}};
	const struct wire_options options = {.at = wishes, .count = 2};
	struct jit_options told;

	ck_assert_int_eq(jit_options_init(&told, &options), CUDA_SUCCESS);
	ck_assert_uint_eq(told.count, 1);
	ck_assert_int_eq(told.ids[0], CU_JIT_MAX_REGISTERS);
}
END_TEST

static size_t compiled;

static CUresult link_create(unsigned int count, CUjit_option *options, void **values, CUlinkState *ret_link)
{
	(void)count;
	(void)options;
	(void)values;
	*ret_link = (CUlinkState)(void *)&compiled;
	return CUDA_SUCCESS;
}

static CUresult link_add(CUlinkState link, CUjitInputType type, void *data, size_t size, const char *name,
	unsigned int count, CUjit_option *options, void **values)
{
	(void)link;
	(void)name;
	(void)count;
	(void)options;
	(void)values;
	ck_assert_int_eq(type, CU_JIT_INPUT_PTX);
	ck_assert_str_eq(data, ".version 8.0");
	ck_assert_uint_eq(size, strlen(data) + 1);
	compiled = malloc_usable_size(data);
	return CUDA_ERROR_INVALID_PTX;
}

static CUresult link_destroy(CUlinkState link)
{
	(void)link;
	return CUDA_SUCCESS;
}

/* In a module, and in a link. */
START_TEST(of_a_text_nothing_is_copied_that_is_not_read)
{
	const size_t bytes = (size_t)16 << 20;
	char *image = calloc(1, bytes);
	const struct wire_options none = {.count = 0};
	struct backend_link_input input = {
		.type = CU_JIT_INPUT_PTX, .at = (void *)image, .bytes = bytes, .name = "", .options = &none};
	struct backend_link *link;
	void *code;
	size_t size;

	driver.link_create = link_create;
	driver.link_add = link_add;
	driver.link_destroy = link_destroy;
	strcpy(image, ".version 8.0");
	ck_assert_int_eq(
		cuda_module_compile(image, bytes, &none, NULL, 0, &code, &size), CUDA_ERROR_INVALID_PTX);
	ck_assert_uint_lt(compiled, 4096);
	compiled = 0;
	ck_assert_int_eq(cuda_link_create(&none, &link), CUDA_SUCCESS);
	ck_assert_int_eq(cuda_link_add(link, &input), CUDA_ERROR_INVALID_PTX);
	ck_assert_uint_gt(compiled, 0);
	ck_assert_uint_lt(compiled, 4096);
	ck_assert_int_eq(cuda_link_destroy(link), CUDA_SUCCESS);
	free(image);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("driver");
	TCase *tests = tcase_create("driver");

	tcase_add_test(tests, an_array_is_backed_once);
	tcase_add_test(tests, a_program_does_not_choose_the_threads_of_its_compiler);
	tcase_add_test(tests, of_a_text_nothing_is_copied_that_is_not_read);
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
