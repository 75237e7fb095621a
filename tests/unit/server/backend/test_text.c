// Tests of server/backend/cuda/text.c: the functions that stand for the driver's in kernels that
// print or assert. The images text_first.cubin and text_second.cubin are what ptxas -arch sm_90 -c
// -maxrregcount 24 makes of the source that the compiler of these tests is given, text_third.cubin
// what it makes of it for RING.

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/backend/cuda/cuda.h"
#include "server/backend/cuda/text.h"
#include "server/backend/cuda/patch.h"
#include "server/log.h"
#include "shm/text.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/backend/image_bed.h"

#define RING	   UINT64_C(0x000010fff8000000) /* the fourth session's */
#define FIRST_HALF UINT32_C(0x353f)		/* of the first address that is compiled */
#define TRAP	   UINT64_C(0x0000000c0000795c)
#define PLAIN_TRAP UINT64_C(0x000000040000795c)

/* Bytes that were asked for, but with a sanitizer, whose function this one would stand for. */
static uint64_t allocated;

#ifndef __SANITIZE_ADDRESS__
extern void *__libc_malloc(size_t bytes);

void *malloc(size_t bytes)
{
	allocated += bytes;
	return __libc_malloc(bytes);
}
#endif

struct image {
	uint8_t at[IMAGE_BYTES];
	size_t bytes;
};

static struct image compiled[2];
static unsigned compilations;
static CUresult link_code;

static void read_image(const char *name, struct image *ret)
{
	load(name);
	memcpy(ret->at, image, image_bytes);
	ret->bytes = image_bytes;
}

/* ---- the driver's compiler ---- */

static CUresult link_create(unsigned int count, CUjit_option *options, void **values, CUlinkState *ret_state)
{
	(void)count, (void)options, (void)values;
	*ret_state = NULL;
	return link_code;
}

/* Both functions have a place for the address. */
static CUresult link_add(CUlinkState state, CUjitInputType type, void *data, size_t bytes, const char *name,
	unsigned int count, CUjit_option *options, void **values)
{
	const char *address = compilations ? "0x00005a7ff8000000" : "0x0000353ff8000000";
	const char *source = data, *place = strstr(source, address);

	(void)state, (void)name, (void)count, (void)options, (void)values;
	ck_assert_int_eq(type, CU_JIT_INPUT_PTX);
	ck_assert_uint_eq(strlen(source) + 1, bytes);
	ck_assert_ptr_nonnull(place);
	ck_assert_ptr_nonnull(strstr(place + 1, address));
	return CUDA_SUCCESS;
}

static CUresult link_complete(CUlinkState state, void **ret_cubin, size_t *ret_bytes)
{
	(void)state;
	*ret_cubin = compiled[compilations].at;
	*ret_bytes = compiled[compilations++].bytes;
	return CUDA_SUCCESS;
}

static CUresult link_destroy(CUlinkState state)
{
	(void)state;
	return CUDA_SUCCESS;
}

static void setup(void)
{
	driver.link_create = link_create;
	driver.link_add = link_add;
	driver.link_complete = link_complete;
	driver.link_destroy = link_destroy;
	read_image("text_first.cubin", &compiled[0]);
	read_image("text_second.cubin", &compiled[1]);
	load("asserting.cubin");
}

static void teardown(void)
{
	cuda_text_close();
	unload();
}

/* ---- what comes out ---- */

static uint64_t half_at(const struct patch_function *function, size_t at)
{
	uint64_t half;

	memcpy(&half, function->code + at, sizeof(half));
	return half;
}

/* How many instructions of a function's code have that in their first half. */
static uint32_t count(const struct fatbin_bytes *cubin, const char *name, uint64_t mask, uint64_t value)
{
	struct patch_function function = {0};
	uint32_t found = 0;

	patch_take(cubin->at, cubin->count, name, &function);
	for (size_t at = 0; at < function.bytes; at += 16)
		found += (half_at(&function, at) & mask) == value;
	return found;
}

static uint32_t count_operands(const struct fatbin_bytes *cubin, const char *function, uint32_t operand)
{
	return count(cubin, function, UINT64_C(0xffffffff00000000), (uint64_t)operand << 32);
}

/* It is what the compiler makes for that ring, but for the mark of the trap. */
static void expect_function(const struct fatbin_bytes *cubin, const char *name)
{
	static struct image third;
	struct patch_function now, wanted;

	read_image("text_third.cubin", &third);
	ck_assert(patch_take(cubin->at, cubin->count, name, &now));
	ck_assert(patch_take(third.at, third.bytes, name, &wanted));
	ck_assert_uint_gt(wanted.bytes, 0);
	ck_assert_uint_eq(now.bytes, wanted.bytes);
	for (size_t at = 0; at < now.bytes; at += 8)
		ck_assert(half_at(&now, at) == half_at(&wanted, at) ||
			  (half_at(&now, at) == TRAP && half_at(&wanted, at) == PLAIN_TRAP));
	ck_assert_uint_gt(count_operands(cubin, name, RING >> 32), 0);
	ck_assert_uint_eq(count_operands(cubin, name, FIRST_HALF), 0);
}

TEST(text, kernels_that_assert_have_the_rings_address_and_an_assertions_trap)
{
	struct backend_text text = {.ring = RING};
	struct fatbin_bytes cubin = {0};

	cuda_text_open();
	ck_assert_int_eq(cuda_text_direct(&text, image, image_bytes, &cubin), CUDA_SUCCESS);
	ck_assert_uint_eq(text.uses, SHM_TEXT_PRINTS | SHM_TEXT_ASSERTS);
	expect_function(&cubin, "__assertfail");
	expect_function(&cubin, "vprintf");
	ck_assert_uint_eq(count(&cubin, "__assertfail", UINT64_MAX, TRAP), 1);
	ck_assert_uint_eq(count(&cubin, "__assertfail", UINT64_MAX, PLAIN_TRAP), 0);
	free(cubin.at);
}

TEST(text, kernels_that_only_print_get_no_more)
{
	struct backend_text text = {.ring = RING};
	struct fatbin_bytes cubin = {0};

	cuda_text_open();
	load("printing.cubin");
	ck_assert_int_eq(cuda_text_direct(&text, image, image_bytes, &cubin), CUDA_SUCCESS);
	ck_assert_uint_eq(text.uses, SHM_TEXT_PRINTS);
	expect_function(&cubin, "vprintf");
	ck_assert_uint_eq(count_operands(&cubin, "__assertfail", RING >> 32), 0);
	free(cubin.at);
}

static void expect_unchanged(uint64_t ring)
{
	struct backend_text text = {.ring = ring};
	struct fatbin_bytes cubin = {0};

	ck_assert_int_eq(cuda_text_direct(&text, image, image_bytes, &cubin), CUDA_SUCCESS);
	ck_assert_ptr_null(cubin.at);
	ck_assert_uint_eq(text.uses, 0);
}

TEST(text, kernels_that_do_neither_stay_as_they_are)
{
	cuda_text_open();
	load("constants.cubin");
	expect_unchanged(RING);
}

TEST(text, for_a_ring_at_another_place_of_a_window_nothing_is_changed)
{
	cuda_text_open();
	expect_unchanged(RING + 4096);
}

/* Very many members of a fat binary may ask for our functions, and get none. */
TEST(text, many_cubins_for_one_ring_make_its_functions_once)
{
	Elf64_Shdr *info;

	log_init(LOG_LEVEL_ERROR, "test");
	cuda_text_open();
	section_in(image, ".nv.info", &info);
	info->sh_name = 0;
	allocated = 0;
	for (int i = 0; i < 100; i++)
		expect_unchanged(RING);
	ck_assert_uint_lt(allocated, 10 * compiled[0].bytes);
}

TEST(text, each_ring_has_its_own)
{
	struct backend_text text = {.ring = RING + (UINT64_C(1) << 32)};
	struct fatbin_bytes cubin = {0};

	cuda_text_open();
	ck_assert_int_eq(cuda_text_direct(&text, image, image_bytes, &cubin), CUDA_SUCCESS);
	ck_assert_uint_gt(count_operands(&cubin, "vprintf", (RING >> 32) + 1), 0);
	free(cubin.at);
	text.ring = RING;
	ck_assert_int_eq(cuda_text_direct(&text, image, image_bytes, &cubin), CUDA_SUCCESS);
	expect_function(&cubin, "vprintf");
	expect_function(&cubin, "__assertfail");
	free(cubin.at);
}

/* ---- compilers ---- */

TEST(text, without_a_compiler_nothing_is_changed)
{
	link_code = CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
	cuda_text_open();
	expect_unchanged(RING);
}

static uint8_t *find(struct image *in, uint64_t half)
{
	uint8_t *at = memmem(in->at, in->bytes, &half, sizeof(half));

	ck_assert_ptr_nonnull(at);
	return at;
}

/* There is no trap that could be marked. */
TEST_LOOP(text, functions_of_an_unknown_form_are_not_used, 0, 2)
{
	memset(find(&compiled[_i], PLAIN_TRAP), 0, sizeof(uint64_t));
	cuda_text_open();
	expect_unchanged(RING);
}

TEST(text, functions_that_differ_in_more_than_the_address_are_not_used)
{
	find(&compiled[1], PLAIN_TRAP)[16] ^= 1;
	cuda_text_open();
	expect_unchanged(RING);
}

int main(void)
{
	Suite *suite = suite_create("text");
	TCase *tests = tcase_create("text");

	tcase_add_checked_fixture(tests, setup, teardown);
	suite_add(tests, "text");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
