// The service's own loader as a whole, on a driver of the test's own: where modules of several
// programs lie, whether another executor has them in the same places, and how many there can be.

#include <stdlib.h>
#include <string.h>

#include "protocol/wire.h"
#include "server/backend/cuda/code_memory.h"
#include "server/backend/cuda/loader.h"
#include "tests/unit/server/backend/fake_libraries.h"
#include "tests/unit/server/backend/fake_memory.h"
#include "tests/unit/server/backend/image_bed.h"

#define WINDOW	(UINT64_C(0x100000000000) + (UINT64_C(3) << 38))
#define OTHER	(WINDOW + (UINT64_C(1) << 38))
#define MODULES 50u
/* Of one module at a time: more than a session's addresses were enough for. */
#define LOADS 1000u
#define STACK 1024u

static enum load_reason why; /* of the last load */

static CUresult copy_to_device(CUdeviceptr dst, const void *src, size_t bytes, CUstream stream)
{
	(void)dst;
	(void)src;
	(void)bytes;
	(void)stream;
	return CUDA_SUCCESS;
}

static CUresult context_limit(size_t *ret_value, CUlimit limit)
{
	(void)limit;
	*ret_value = STACK;
	return CUDA_SUCCESS;
}

static CUresult device_attribute(int *ret_value, CUdevice_attribute attribute, CUdevice device)
{
	(void)attribute;
	(void)device;
	*ret_value = 232448;
	return CUDA_SUCCESS;
}

static void open_executor(void)
{
	fake_memory_open();
	fake_libraries_open();
	driver.copy_to_device = copy_to_device;
	driver.context_limit = context_limit;
	driver.device_attribute = device_attribute;
	ck_assert(loader_open(0));
}

static void open_with_image(void)
{
	open_executor();
	load("placed.cubin");
}

static void close_executor(void)
{
	loader_close();
	unload();
}

/* @load: the window, and the place where the module is to be */
static CUresult load_module(struct backend_load *wish, struct loader_module **ret_module)
{
	struct fatbin_bytes cubin = {malloc(image_bytes), image_bytes};
	CUresult code;

	memcpy(cubin.at, image, image_bytes);
	code = loader_load(&cubin, NULL, wish, ret_module, &why);
	if (code)
		free(cubin.at);
	return code;
}

static struct loader_module *must_load(struct backend_load *wish)
{
	struct loader_module *module = NULL;

	ck_assert_int_eq(load_module(wish, &module), CUDA_SUCCESS);
	return module;
}

static uint64_t address_of(struct loader_module *module, const char *name)
{
	struct backend_global global;

	ck_assert_int_eq(loader_global(module, name, &global), CUDA_SUCCESS);
	return global.address;
}

/* As natively. */
TEST(loader, many_modules_have_constants)
{
	struct loader_module *modules[MODULES];
	uint64_t steps[MODULES];

	for (unsigned i = 0; i < MODULES; i++) {
		struct backend_load wish = {.window = WINDOW};

		modules[i] = must_load(&wish);
		steps[i] = address_of(modules[i], "steps");
		ck_assert_uint_eq(wish.constants, steps[i]);
		for (unsigned j = 0; j < i; j++)
			ck_assert_uint_ne(steps[i], steps[j]);
	}
	for (unsigned i = 0; i < MODULES; i++)
		loader_unload(modules[i]);
}

/* A program moves with its modules, in the order of their loading, and another one is there. */
TEST(loader, another_executor_has_all_in_the_same_places)
{
	struct backend_load first[MODULES];
	struct loader_module *modules[MODULES], *others;
	struct backend_load other = {.window = OTHER};
	uint64_t steps[MODULES], counts[MODULES];

	for (unsigned i = 0; i < MODULES; i++) {
		first[i] = (struct backend_load){.window = WINDOW};
		modules[i] = must_load(&first[i]);
		steps[i] = address_of(modules[i], "steps");
		counts[i] = address_of(modules[i], "counts");
	}
	for (unsigned i = 0; i < MODULES; i++)
		loader_unload(modules[i]);
	loader_close();
	open_executor();
	others = must_load(&other);
	for (unsigned i = 0; i < MODULES; i++) {
		struct backend_load again = {.window = WINDOW, .code = first[i].code};

		modules[i] = must_load(&again);
		ck_assert_uint_eq(again.code, first[i].code);
		ck_assert_uint_eq(again.constants, first[i].constants);
		ck_assert_uint_eq(address_of(modules[i], "steps"), steps[i]);
		ck_assert_uint_eq(address_of(modules[i], "counts"), counts[i]);
	}
	for (unsigned i = 0; i < MODULES; i++)
		loader_unload(modules[i]);
	loader_unload(others);
}

TEST(loader, a_place_in_use_is_refused)
{
	struct backend_load first = {.window = WINDOW}, again;
	struct loader_module *module = must_load(&first), *second;

	again = first;
	ck_assert_int_eq(load_module(&again, &second), CUDA_ERROR_NOT_SUPPORTED);
	loader_unload(module);
	again = first;
	loader_unload(must_load(&again));
}

/* It has no function that anything refers to: nothing has run there. */
TEST(loader, variables_need_no_new_addresses)
{
	struct backend_load first = {.window = WINDOW};
	uint64_t before;

	loader_unload(must_load(&first));
	for (unsigned i = 0; i < LOADS; i++) {
		struct backend_load wish = {.window = WINDOW};

		loader_unload(must_load(&wish));
	}
	before = first.code;
	first = (struct backend_load){.window = WINDOW, .code = before};
	loader_unload(must_load(&first));
	ck_assert(!code_memory_is_worn());
}

/* In .nv.info: the least stack, of 8 bytes. */
#define LEAST_STACK 0x00081204u

/* All kernels of the image need so much local memory. */
static void need_local(uint32_t bytes)
{
	Elf64_Shdr *section;
	uint8_t *info = section_in(image, ".nv.info", &section);
	uint32_t head;

	for (uint64_t i = 0; i + 12 <= section->sh_size; i += 4) {
		memcpy(&head, info + i, sizeof(head));
		if (head == LEAST_STACK)
			memcpy(info + i + 8, &bytes, sizeof(bytes));
	}
}

static uint32_t local_of(struct loader_module *module, const char *name)
{
	static struct backend_function_info info;
	struct backend_function *function;

	ck_assert_int_eq(loader_find(module, name, &function, &info), CUDA_SUCCESS);
	return cuda_kernel(function)->own->local;
}

TEST(loader, kernels_may_need_much_local_memory)
{
	struct backend_load wish = {.window = WINDOW};
	struct loader_module *module;

	load("jumping.cubin");
	module = must_load(&wish);
	ck_assert_uint_eq(local_of(module, "few"), 0);
	loader_unload(module);
	need_local(3000);
	wish = (struct backend_load){.window = WINDOW};
	module = must_load(&wish);
	ck_assert_uint_eq(local_of(module, "few"), 4096);
	loader_unload(module);
	need_local(100000);
	wish = (struct backend_load){.window = WINDOW};
	ck_assert_int_eq(load_module(&wish, &module), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(why, LOAD_REASON_LOCAL);
}

int main(void)
{
	Suite *suite = suite_create("loader");
	TCase *loader = suite_case(suite, "loader");

	tcase_add_checked_fixture(loader, open_with_image, close_executor);
	suite_add(loader, "loader");
	return suite_run(suite);
}
