// The device linker through the service: what it says, its logs, what becomes of its images, and
// links that are under way when the executor they are in goes. The host backend takes a shared
// object for an object to link and compiles no text.

#include <stdlib.h>
#include <string.h>

#include "tests/lib/suite.h"
#include "tests/system/driver.h"
#include "tests/system/program.h"

static char error[256], info[256];

/* A link with both logs; a program's slots live as long as the link. */
static CUlinkState new_link(void **values)
{
	static CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
		CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_WALL_TIME,
		CU_JIT_MAX_REGISTERS};
	CUlinkState link;

	values[0] = error;
	values[1] = (void *)sizeof(error);
	values[2] = info;
	values[3] = (void *)sizeof(info);
	values[4] = NULL;
	values[5] = (void *)32;
	ck_cuda(cuLinkCreate_v2(6, options, values, &link));
	return link;
}

static CUresult add_object(CUlinkState link, const char *name)
{
	return cuLinkAddFile_v2(link, CU_JIT_INPUT_OBJECT, name, 0, NULL, NULL);
}

/* The image is the program's until the link is destroyed, and runs. */
static void expect_image_runs(void *image)
{
	CUdeviceptr out;
	CUfunction function;
	CUmodule module;
	uint32_t words[8];
	void *arguments[] = {&out};

	ck_cuda(cuModuleLoadData(&module, image));
	ck_cuda(cuModuleGetFunction(&function, module, "read_words"));
	ck_cuda(cuMemAlloc_v2(&out, 32));
	ck_cuda(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
	ck_cuda(cuMemcpyDtoH_v2(words, out, 32));
	ck_assert_uint_eq(words[0], 11);
	ck_cuda(cuModuleUnload(module));
	ck_cuda(cuMemFree_v2(out));
}

TEST(linker, an_object_becomes_an_image)
{
	const char *path = getenv("FRMPS_TEST_KERNELS");
	static char text[] = ".version 8.0";
	void *values[6], *image, *again;
	size_t bytes = 0, before;
	CUlinkState link;
	float ms;

	driver_attach();
	link = new_link(values);
	ck_assert_uint_eq((uintptr_t)values[1], 0);
	ck_cuda(add_object(link, path));
	ck_assert_str_eq(error, "");
	ck_assert_ptr_nonnull(strstr(info, ": taken"));
	ck_assert_uint_eq((uintptr_t)values[3], strlen(info));
	/* What is refused counts for nothing. */
	ck_assert_int_eq(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, text, sizeof(text), "text", 0, NULL, NULL),
		CUDA_ERROR_INVALID_PTX);
	ck_assert_ptr_nonnull(strstr(error, "text: "));
	before = (uintptr_t)values[1];
	ck_assert_uint_eq(before, strlen(error));
	ck_cuda(cuLinkComplete(link, &image, &bytes));
	ck_assert_uint_gt(bytes, 0);
	memcpy(&ms, &values[4], sizeof(ms));
	ck_assert_float_gt(ms, 0);
	ck_assert_int_eq(cuLinkComplete(link, &again, &bytes), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(add_object(link, path), CUDA_ERROR_INVALID_VALUE);
	expect_image_runs(image);
	ck_cuda(cuLinkDestroy(link));
	ck_assert_int_eq(cuLinkDestroy(link), CUDA_ERROR_INVALID_HANDLE);
}

TEST(linker, wrong_inputs_are_refused_at_the_call)
{
	static char text[] = ".version 8.0";
	void *values[6], *image;
	CUjit_option fallback = CU_JIT_FALLBACK_STRATEGY;
	size_t bytes;
	CUlinkState link;

	driver_attach();
	ck_assert_int_eq(cuLinkCreate_v2(0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuLinkCreate_v2(1, &fallback, values, &link), CUDA_ERROR_INVALID_VALUE);
	link = new_link(values);
	ck_assert_int_eq(cuLinkAddData_v2(NULL, CU_JIT_INPUT_PTX, text, 1, "", 0, NULL, NULL),
		CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, NULL, 1, "", 0, NULL, NULL),
		CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, text, 0, "", 0, NULL, NULL),
		CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuLinkAddData_v2(link, (CUjitInputType)99, text, 1, "", 0, NULL, NULL),
		CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(add_object(link, "/nonexistent"), CUDA_ERROR_FILE_NOT_FOUND);
	ck_assert_int_eq(cuLinkAddData_v2(link, CU_JIT_INPUT_CUBIN, text, sizeof(text), "", 0, NULL, NULL),
		CUDA_ERROR_INVALID_IMAGE);
	ck_assert_int_eq(cuLinkComplete(link, NULL, &bytes), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuLinkComplete(link, &image, &bytes), CUDA_ERROR_INVALID_IMAGE);
	ck_cuda(cuLinkDestroy(link));
}

/* More links than an executor remembers, all of them finished: those it forgot are handed over
 * again. */
TEST(linker, forgotten_links_are_begun_again)
{
	const char *path = getenv("FRMPS_TEST_KERNELS");
	enum { LINKS = 40 };
	CUlinkState links[LINKS];
	void *image;

	driver_attach();
	for (int i = 0; i < LINKS; i++) {
		ck_cuda(cuLinkCreate_v2(0, NULL, NULL, &links[i]));
		ck_cuda(add_object(links[i], path));
	}
	for (int i = 0; i < LINKS; i++) {
		ck_cuda(cuLinkComplete(links[i], &image, NULL));
		if (i % 13 == 0)
			expect_image_runs(image);
		ck_cuda(cuLinkDestroy(links[i]));
	}
}

static struct service own;

/* A program whose executor dies when that holds half a link. */
static int link_beside_a_death(int unused)
{
	const char *path = getenv("FRMPS_TEST_KERNELS");
	void *values[6], *image;
	size_t bytes;
	CUlinkState link;

	(void)unused;
	driver_attach();
	link = new_link(values);
	ck_cuda(add_object(link, path));
	ck_assert(service_kill_active(&own));
	info[0] = '\0';
	ck_cuda(cuLinkComplete(link, &image, &bytes));
	ck_assert_ptr_nonnull(strstr(info, ": taken"));
	expect_image_runs(image);
	ck_cuda(cuLinkDestroy(link));
	return 0;
}

TEST(deaths, links_survive_their_executor)
{
	ck_assert(service_start(&own, NULL));
	ck_assert_int_eq(exit_status(spawn(link_beside_a_death, 0)), 0);
	ck_assert_int_eq(service_stop(&own), 0);
}

int main(void)
{
	Suite *suite = suite_create("linker");
	TCase *tests = tcase_create("linker"), *deaths = tcase_create("deaths");

	tcase_set_timeout(tests, 60);
	tcase_set_timeout(deaths, 120);
	tcase_add_unchecked_fixture(tests, common_service_start, common_service_stop);
	suite_add(tests, "linker");
	suite_add(deaths, "deaths");
	suite_add_tcase(suite, tests);
	suite_add_tcase(suite, deaths);
	return suite_run(suite);
}
