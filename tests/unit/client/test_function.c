// Modules, libraries, kernels and occupancy through the entry points: what the service is asked and
// how often, what is answered from memory, and what becomes of handles whose module is gone.

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "client/entry/api.h"
#include "client/state/function.h"
#include "client/state/module.h"
#include "client/text/text.h"
#include "shm/text.h"
#include "tests/lib/scarce.h"
#include "tests/lib/suite.h"
#include "tests/unit/client/fake_service.h"

#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

static const char ptx[] = ".version 8.0";

static CUmodule load_module(void)
{
	CUmodule module;

	ck_assert_int_eq(cuModuleLoadData(&module, ptx), CUDA_SUCCESS);
	return module;
}

static CUlibrary load_library(void)
{
	CUlibrary library;

	ck_assert_int_eq(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0), CUDA_SUCCESS);
	return library;
}

static CUfunction find(CUmodule module, const char *name)
{
	CUfunction function;

	ck_assert_int_eq(cuModuleGetFunction(&function, module, name), CUDA_SUCCESS);
	return function;
}

/* The daemon has died since, or others have sent many: the same bytes go once more. */
START_TEST(a_file_that_is_forgotten_is_sent_again)
{
	fake.forgets = 3;
	load_module();
	ck_assert_uint_eq(fake.calls[WIRE_MAKE_FILE], 4);
	ck_assert_uint_eq(fake.bytes, sizeof(ptx));
	ck_assert_int_eq(fake.seals, SEALS);
}
END_TEST

START_TEST(load_and_unload)
{
	CUmodule module = load_module(), other = load_module();

	ck_assert_uint_eq(fake.bytes, sizeof(ptx));
	ck_assert_int_eq(fake.seals, SEALS);
	ck_assert_uint_eq(fake.kind, 0);
	ck_assert_uint_eq(fake.loaded[1] + fake.loaded[2], 2);
	ck_assert_int_eq(cuModuleUnload(module), CUDA_SUCCESS);
	ck_assert_uint_eq(fake.drains, 1);
	ck_assert_uint_eq(fake.loaded[1], 0);
	ck_assert_int_eq(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(cuModuleUnload(NULL), CUDA_ERROR_INVALID_HANDLE);
	/* The id is used again, the handle is not. */
	ck_assert_ptr_ne(load_module(), module);
	ck_assert_uint_eq(fake.module, 1);
	ck_assert_int_eq(cuModuleUnload(other), CUDA_SUCCESS);
}
END_TEST

START_TEST(load_errors)
{
	CUmodule module = NULL;
	struct client_module *found;

	ck_assert_int_eq(cuModuleLoadData(NULL, ptx), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuModuleLoadData(&module, NULL), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuModuleLoadData(&module, "\x01"), CUDA_ERROR_INVALID_IMAGE);
	ck_assert_int_eq(cuModuleLoad(&module, NULL), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuModuleLoad(&module, "/nonexistent"), CUDA_ERROR_FILE_NOT_FOUND);
	ck_assert_uint_eq(fake.calls[WIRE_LOAD_MODULE], 0);
	fake.load_code = CUDA_ERROR_INVALID_PTX;
	ck_assert_int_eq(cuModuleLoadFatBinary(&module, ptx), CUDA_ERROR_INVALID_PTX);
	ck_assert_ptr_null(module);
	fake.load_code = CUDA_SUCCESS;
	found = (struct client_module *)load_module();
	ck_assert_uint_eq(found->id, 1);
	fake.context_code = CUDA_ERROR_INVALID_CONTEXT;
	ck_assert_int_eq(cuModuleLoadData(&module, ptx), CUDA_ERROR_INVALID_CONTEXT);
}
END_TEST

/* An id that the service may still hold is not given to another module. */
START_TEST(unload_error)
{
	CUmodule module = load_module();
	CUfunction function = find(module, "add");

	fake.unload_code = CUDA_ERROR_NOT_READY;
	ck_assert_int_eq(cuModuleUnload(module), CUDA_ERROR_NOT_READY);
	ck_assert_ptr_null(function_find(function));
	load_module();
	ck_assert_uint_eq(fake.module, 2);
}
END_TEST

/* The first module whose kernels print gets a place for it, as large as the context says. */
START_TEST(printing_modules)
{
	CUmodule module;

	load_module();
	ck_assert_uint_eq(fake.texts, 0);
	fake.text_uses = SHM_TEXT_PRINTS;
	fake.text_limit = 5000;
	load_module();
	ck_assert_uint_eq(fake.texts, 1);
	ck_assert_uint_eq(fake.text_bytes, 5000);
	load_module();
	ck_assert_uint_eq(fake.texts, 1);
	fake.load_code = CUDA_ERROR_INVALID_PTX;
	fake.texts = 0;
	ck_assert_int_eq(cuModuleLoadData(&module, ptx), CUDA_ERROR_INVALID_PTX);
	ck_assert_uint_eq(fake.texts, 0);
}
END_TEST

/* For assertions alone a small place is enough, until a module prints. */
START_TEST(asserting_modules)
{
	fake.text_uses = SHM_TEXT_ASSERTS;
	load_module();
	ck_assert_uint_eq(fake.small_texts, 1);
	ck_assert_uint_eq(fake.texts, 0);
	fake.text_uses = SHM_TEXT_PRINTS | SHM_TEXT_ASSERTS;
	load_module();
	ck_assert_uint_eq(fake.small_texts, 1);
	ck_assert_uint_eq(fake.texts, 1);
}
END_TEST

/* A program without pinned memory has its module, as natively. */
START_TEST(no_room_for_assertions)
{
	fake.text_uses = SHM_TEXT_ASSERTS;
	fake.text_code = CUDA_ERROR_OUT_OF_MEMORY;
	load_module();
	ck_assert_uint_eq(fake.loaded[fake.module], 1);
}
END_TEST

/* The executor may be another one since, that can direct what its kernels print. */
START_TEST(libraries_that_print_once_they_wake)
{
	CUlibrary library = load_library();
	CUkernel kernel;

	ck_assert_int_eq(cuLibraryGetKernel(&kernel, library, "add"), CUDA_SUCCESS);
	ck_assert_int_eq(module_sleep_libraries(0), CUDA_SUCCESS);
	fake.text_uses = SHM_TEXT_PRINTS;
	ck_assert_int_eq(cuLibraryGetKernel(&kernel, library, "plain"), CUDA_SUCCESS);
	ck_assert_uint_eq(fake.texts, 1);
}
END_TEST

/* Without a place the module is not there. */
START_TEST(no_room_for_text)
{
	CUmodule module = NULL;

	fake.text_uses = SHM_TEXT_PRINTS;
	fake.text_code = CUDA_ERROR_OUT_OF_MEMORY;
	ck_assert_int_eq(cuModuleLoadData(&module, ptx), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_ptr_null(module);
	ck_assert_uint_eq(fake.text_bytes, TEXT_BYTES_DEFAULT);
	ck_assert_uint_eq(fake.loaded[fake.module], 0);
}
END_TEST

/* A module gets memory for its variables as long as it is there. */
START_TEST(room_for_variables)
{
	CUmodule module;

	fake.variables = 1000;
	module = load_module();
	ck_assert_uint_eq(fake.calls[WIRE_LOAD_MODULE], 2);
	ck_assert_uint_eq(fake.block, FAKE_BLOCK);
	ck_assert_uint_eq(fake.block_bytes, 1000);
	fake.variables = 0;
	load_module();
	ck_assert_uint_eq(fake.calls[WIRE_LOAD_MODULE], 3);
	ck_assert_int_eq(cuModuleUnload(module), CUDA_SUCCESS);
	ck_assert_uint_eq(fake.block_bytes, 0);
}
END_TEST

START_TEST(room_for_managed_variables)
{
	CUmodule module;

	fake.variables = 1000;
	fake.managed = true;
	module = load_module();
	ck_assert_uint_eq(fake.block, FAKE_MANAGED);
	ck_assert_uint_eq(fake.managed_bytes, 1000);
	ck_assert_uint_eq(fake.block_bytes, 0);
	ck_assert_int_eq(cuModuleUnload(module), CUDA_SUCCESS);
	ck_assert_uint_eq(fake.managed_bytes, 0);
}
END_TEST

START_TEST(variables_without_room)
{
	CUmodule module;

	fake.variables = 1000;
	fake.block_code = CUDA_ERROR_OUT_OF_MEMORY;
	fake.keeps_variables = true;
	module = load_module();
	ck_assert_uint_eq(fake.block, WIRE_VARIABLES_OF_DRIVER);
	ck_assert_int_eq(cuModuleUnload(module), CUDA_SUCCESS);
	/* They are kept all the same, or the load fails: the room is given back. */
	fake.block_code = CUDA_SUCCESS;
	load_module();
	ck_assert_uint_eq(fake.block_bytes, 0);
	fake.keeps_variables = false;
	fake.load_code = CUDA_ERROR_INVALID_PTX;
	ck_assert_int_eq(cuModuleLoadData(&module, ptx), CUDA_ERROR_INVALID_PTX);
	ck_assert_uint_eq(fake.block_bytes, 0);
}
END_TEST

/* What the service is asked when a library's context has ended and another one uses it. */
START_TEST(libraries_sleep_and_wake)
{
	CUlibrary used = load_library(), unused = load_library();
	struct client_module *library = library_find(used);
	CUkernel add, plain;
	CUdeviceptr global;
	int shared = 0;

	ck_assert_int_eq(cuLibraryGetKernel(&add, used, "add"), CUDA_SUCCESS);
	ck_assert_int_eq(cuLibraryGetGlobal(&global, NULL, used, "counter"), CUDA_SUCCESS);
	ck_assert_int_eq(
		cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000, add, 0),
		CUDA_SUCCESS);
	ck_assert_uint_eq(fake.calls[WIRE_SET_FUNCTION], 1);
	ck_assert_int_eq(module_sleep_libraries(0), CUDA_SUCCESS);
	ck_assert_uint_eq(fake.calls[WIRE_UNLOAD_MODULE], 1);
	ck_assert_uint_eq(fake.loaded[library->id], 0);
	ck_assert_ptr_null(fake.range_owner);
	ck_assert_ptr_null(function_find(add));
	ck_assert_int_eq(module_sleep_libraries(0), CUDA_SUCCESS);
	ck_assert_uint_eq(fake.calls[WIRE_UNLOAD_MODULE], 1);
	/* One use wakes the library with all that was known of it. */
	ck_assert_int_eq(
		cuKernelGetAttribute(&shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, add, 0),
		CUDA_SUCCESS);
	ck_assert_int_eq(shared, 100000);
	ck_assert_uint_eq(fake.loaded[library->id], 1);
	ck_assert_uint_eq(fake.bytes, sizeof(ptx));
	ck_assert_int_eq(fake.seals, SEALS);
	ck_assert_uint_eq(fake.kind, 1);
	ck_assert_uint_eq(fake.calls[WIRE_FIND_FUNCTION], 2);
	ck_assert_uint_eq(fake.calls[WIRE_SET_FUNCTION], 2);
	ck_assert_int_eq(fake.set.value, 100000);
	ck_assert_int_eq(cuLibraryGetGlobal(&global, NULL, used, "counter"), CUDA_SUCCESS);
	ck_assert_uint_eq(fake.calls[WIRE_FIND_GLOBAL], 2);
	/* A name wakes it, too; asleep it ends without the service. */
	ck_assert_int_eq(module_sleep_libraries(0), CUDA_SUCCESS);
	ck_assert_int_eq(cuLibraryGetKernel(&plain, used, "plain"), CUDA_SUCCESS);
	ck_assert_uint_eq(fake.calls[WIRE_LOAD_MODULE], 4);
	ck_assert_int_eq(module_sleep_libraries(0), CUDA_SUCCESS);
	ck_assert_int_eq(cuLibraryUnload(used), CUDA_SUCCESS);
	ck_assert_uint_eq(fake.calls[WIRE_UNLOAD_MODULE], 3);
	ck_assert_int_eq(cuKernelGetAttribute(&shared, 0, add, 0), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(cuLibraryUnload(unused), CUDA_SUCCESS);
	ck_assert_uint_eq(fake.calls[WIRE_UNLOAD_MODULE], 4);
}
END_TEST

/* A library that cannot be loaded again stays asleep; one that the service may still hold is
 * lost. */
START_TEST(libraries_that_do_not_wake)
{
	CUlibrary library = load_library();
	CUkernel add;
	int value;

	ck_assert_int_eq(cuLibraryGetKernel(&add, library, "add"), CUDA_SUCCESS);
	ck_assert_int_eq(module_sleep_libraries(0), CUDA_SUCCESS);
	fake.load_code = CUDA_ERROR_OUT_OF_MEMORY;
	ck_assert_int_eq(cuKernelGetAttribute(&value, 0, add, 0), CUDA_ERROR_OUT_OF_MEMORY);
	fake.load_code = CUDA_SUCCESS;
	ck_assert_int_eq(cuKernelGetAttribute(&value, 0, add, 0), CUDA_SUCCESS);
	fake.unload_code = CUDA_ERROR_NOT_READY;
	ck_assert_int_eq(module_sleep_libraries(0), CUDA_ERROR_NOT_READY);
	ck_assert_int_eq(cuKernelGetAttribute(&value, 0, add, 0), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(cuLibraryGetKernel(&add, library, "plain"), CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

START_TEST(all_ids)
{
	CUmodule modules[MODULE_IDS], more;

	for (unsigned i = 0; i < MODULE_IDS; ++i)
		modules[i] = load_module();
	for (unsigned i = 1; i <= MODULE_IDS; ++i)
		ck_assert_uint_eq(fake.loaded[i], 1);
	ck_assert_int_eq(cuModuleLoadData(&more, ptx), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_int_eq(cuModuleUnload(modules[1000]), CUDA_SUCCESS);
	load_module();
	ck_assert_uint_eq(fake.module, 1001);
}
END_TEST

START_TEST(jit_logs)
{
	char info[8] = "before", error[64] = "before";
	CUjit_option options[] = {CU_JIT_MAX_REGISTERS, CU_JIT_INFO_LOG_BUFFER,
		CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER,
		CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_WALL_TIME};
	void *values[] = {(void *)32, info, (void *)sizeof(info), error, (void *)sizeof(error), (void *)-1};
	CUmodule module;
	float time;

	fake.text = "a long remark";
	ck_assert_int_eq(cuModuleLoadDataEx(&module, ptx, 6, options, values), CUDA_SUCCESS);
	ck_assert_str_eq(info, "a long ");
	ck_assert_ptr_eq(values[2], (void *)8); /* it was cut */
	ck_assert_str_eq(error, "");
	ck_assert_ptr_eq(values[4], (void *)0);
	memcpy(&time, &values[5], sizeof(time));
	ck_assert(time >= 0 && time < 1e5f);
	ck_assert_uint_eq(fake.options, 5); /* the number, two buffers and their sizes */

	fake.load_code = CUDA_ERROR_INVALID_PTX;
	values[2] = (void *)sizeof(info);
	values[4] = (void *)sizeof(error);
	ck_assert_int_eq(cuModuleLoadDataEx(&module, ptx, 6, options, values), CUDA_ERROR_INVALID_PTX);
	ck_assert_str_eq(info, "");
	ck_assert_str_eq(error, "a long remark");
	ck_assert_ptr_eq(values[4], (void *)13);
}
END_TEST

START_TEST(jit_errors)
{
	CUjit_option names = CU_JIT_GLOBAL_SYMBOL_NAMES, unknown = (CUjit_option)99,
		     size = CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES;
	void *value = (void *)5;
	CUmodule module;

	ck_assert_int_eq(cuModuleLoadDataEx(&module, ptx, 1, &names, &value), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(cuModuleLoadDataEx(&module, ptx, 1, &unknown, &value), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuModuleLoadDataEx(&module, ptx, 1, NULL, &value), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuModuleLoadDataEx(&module, ptx, 1, &size, NULL), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuModuleLoadDataEx(&module, ptx, 1000, &size, &value), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(fake.calls[WIRE_LOAD_MODULE], 0);
	/* A size without a buffer asks for nothing. */
	fake.text = "remark";
	ck_assert_int_eq(cuModuleLoadDataEx(&module, ptx, 1, &size, &value), CUDA_SUCCESS);
	ck_assert_ptr_null(value);
}
END_TEST

START_TEST(lookup_once)
{
	CUmodule module = load_module(), other = load_module();
	CUfunction add = find(module, "add"), missing = (CUfunction)1;

	ck_assert_ptr_eq(find(module, "add"), add);
	ck_assert_uint_eq(fake.calls[WIRE_FIND_FUNCTION], 1);
	ck_assert_ptr_ne(find(other, "add"), add);
	ck_assert_uint_eq(fake.calls[WIRE_FIND_FUNCTION], 2);
	ck_assert_int_eq(cuModuleGetFunction(&missing, module, "nobody"), CUDA_ERROR_NOT_FOUND);
	ck_assert_int_eq(cuModuleGetFunction(&missing, module, ""), CUDA_ERROR_NOT_FOUND);
	ck_assert_ptr_eq(missing, (CUfunction)1);
	ck_assert_int_eq(cuModuleGetFunction(NULL, module, "add"), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuModuleGetFunction(&missing, module, NULL), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuModuleGetFunction(&missing, (CUmodule)add, "add"), CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

START_TEST(nonsense_description)
{
	CUmodule module = load_module();
	CUfunction function;

	fake.nonsense = true;
	ck_assert_int_eq(cuModuleGetFunction(&function, module, "add"), CUDA_ERROR_UNKNOWN);
	fake.nonsense = false;
	function = find(module, "add");
	/* The id of the first attempt stays unused: the service knows it. */
	ck_assert_uint_eq(((struct client_function *)function)->id, 2);
}
END_TEST

START_TEST(decode_layouts)
{
	static const struct {
		uint64_t count;
		uint64_t params[6];
		bool good;
	} rows[] = {
		{0, {0}, true},
		{1, {0, 32764}, true},
		{1, {0, 32765}, false},
		{1, {32764, 1}, false},
		{1, {UINT64_MAX, 2}, false},
		{1, {8, UINT64_MAX}, false},
		{2, {0, 8, 8, 8}, true},
		{2, {0, 8, 7, 8}, false},
		{2, {8, 8, 0, 8}, false},
		{3, {0, 4, 64, 4, 100, 1}, true},
		{UINT64_MAX, {0}, false},
		{UINT64_MAX / 2 + 1, {0}, false},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
		struct client_function function = {0};
		uint64_t numbers[1 + 6 + 21] = {rows[i].count};
		struct wire_u64s values = {.at = numbers, .count = 1 + 2 * (uint32_t)rows[i].count + 21};

		memcpy(numbers + 1, rows[i].params, sizeof(rows[i].params));
		ck_assert_int_eq(function_decode(&function, &values),
			rows[i].good ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN);
		free((void *)(uintptr_t)function.params);
	}
}
END_TEST

TEST(function, a_description_without_memory_is_no_nonsense)
{
	struct client_function function = {0};
	const uint64_t numbers[1 + 2 + 21] = {1, 0, 8};
	const struct wire_u64s values = {.at = numbers, .count = 1 + 2 + 21};
	CUresult r;

	scarce_begin();
	r = function_decode(&function, &values);
	scarce_end();
	ck_assert_int_eq(r, CUDA_ERROR_OUT_OF_MEMORY);
}

START_TEST(parameters)
{
	CUfunction add = find(load_module(), "add");
	size_t offset, size = 0;
	const char *name;

	ck_assert_int_eq(cuFuncGetParamInfo(add, 2, &offset, &size), CUDA_SUCCESS);
	ck_assert_uint_eq(offset, 16);
	ck_assert_uint_eq(size, 8);
	ck_assert_int_eq(cuFuncGetParamInfo(add, 1, &offset, NULL), CUDA_SUCCESS);
	ck_assert_int_eq(cuFuncGetParamInfo(add, 3, &offset, &size), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuFuncGetParamInfo(add, 0, NULL, &size), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuFuncGetName(&name, add), CUDA_SUCCESS);
	ck_assert_str_eq(name, "add");
}
END_TEST

START_TEST(attribute_values)
{
	CUfunction add = find(load_module(), "add");
	int value;

	ck_assert_int_eq(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, add),
		CUDA_SUCCESS);
	ck_assert_int_eq(value, -1);
	ck_assert_int_eq(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX, add), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuFuncGetAttribute(&value, (CUfunction_attribute)-1, add), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuFuncGetAttribute(NULL, CU_FUNC_ATTRIBUTE_NUM_REGS, add), CUDA_ERROR_INVALID_VALUE);
	for (int i = -1; i <= CU_FUNC_ATTRIBUTE_MAX; ++i) {
		bool writable = i == 8 || i == 9 || i >= 11;

		if (writable && i < CU_FUNC_ATTRIBUTE_MAX)
			continue;
		ck_assert_int_eq(
			cuFuncSetAttribute(add, (CUfunction_attribute)i, 0), CUDA_ERROR_INVALID_VALUE);
	}
	ck_assert_int_eq(cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 101),
		CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, -1),
		CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(fake.calls[WIRE_SET_FUNCTION], 0);
	ck_assert_int_eq(cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50),
		CUDA_SUCCESS);
	ck_assert_int_eq(cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50),
		CUDA_SUCCESS);
	ck_assert_uint_eq(fake.calls[WIRE_SET_FUNCTION], 1);
	ck_assert_uint_eq(fake.set.attribute, 9);
	ck_assert_int_eq(fake.set.value, 50);
	ck_assert_int_eq(cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, -1),
		CUDA_SUCCESS);
	ck_assert_int_eq(fake.set.value, -1);
}
END_TEST

/* A permission at the service only ever grows; what the program sees is what it set. */
START_TEST(permissions)
{
	CUfunction add = find(load_module(), "add");
	int value;

	ck_assert_int_eq(cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000),
		CUDA_SUCCESS);
	ck_assert_int_eq(
		cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 5000), CUDA_SUCCESS);
	ck_assert_uint_eq(fake.calls[WIRE_SET_FUNCTION], 1);
	ck_assert_int_eq(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, add),
		CUDA_SUCCESS);
	ck_assert_int_eq(value, 5000);
	ck_assert_int_eq(cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000),
		CUDA_SUCCESS);
	ck_assert_uint_eq(fake.calls[WIRE_SET_FUNCTION], 1);
	/* Refused by the service: nothing changes. */
	ck_assert_int_eq(cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 300000),
		CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, add),
		CUDA_SUCCESS);
	ck_assert_int_eq(value, 100000);
}
END_TEST

static void launch(CUfunction function)
{
	ck_assert_int_eq(cuLaunchKernel(function, 4, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_SUCCESS);
}

static void set(CUfunction function, CUfunction_attribute attribute, int value)
{
	ck_assert_int_eq(cuFuncSetAttribute(function, attribute, value), CUDA_SUCCESS);
	ck_assert_uint_eq(fake.set.attribute, attribute);
	ck_assert_int_eq(fake.set.value, value);
}

/* The request to the service does not go through the ring: it must not overtake launches that are
 * there. */
START_TEST(launches_keep_the_value_they_were_made_with)
{
	CUmodule module = load_module();
	CUfunction plain = find(module, "plain"), other = find(module, "add");

	set(plain, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50);
	set(plain, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 2);
	set(plain, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, 1);
	set(plain, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, 1);
	launch(plain);
	/* Nobody waits for a kernel that has other settings, or none. */
	set(other, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50);
	set(other, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 2);
	ck_assert_uint_eq(fake.drains + fake.ring_drains, 0);

	set(plain, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 60);
	ck_assert_uint_eq(fake.set_ring_drains, 1);
	set(plain, CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, 1);
	ck_assert_uint_eq(fake.set_ring_drains, 2);
	ck_assert_int_eq(cuFuncSetCacheConfig(plain, CU_FUNC_CACHE_PREFER_L1), CUDA_SUCCESS);
	ck_assert_uint_eq(fake.set_ring_drains, 3);
	ck_assert_uint_eq(fake.drains, 0);
	for (int i = 0; i < 3; ++i) {
		set(plain, (CUfunction_attribute)(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + i), 4);
		ck_assert_uint_eq(fake.set_drains, 1 + (unsigned)i);
	}
	/* A permission only grows, and what is set already is not sent. */
	set(plain, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000);
	ck_assert_int_eq(
		cuFuncSetAttribute(plain, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 4), CUDA_SUCCESS);
	ck_assert_uint_eq(fake.drains, 3);
	ck_assert_uint_eq(fake.ring_drains, 3);
}
END_TEST

START_TEST(cache_config)
{
	CUfunction add = find(load_module(), "add");

	ck_assert_int_eq(cuFuncSetCacheConfig(add, CU_FUNC_CACHE_PREFER_NONE), CUDA_SUCCESS);
	ck_assert_uint_eq(fake.calls[WIRE_SET_FUNCTION], 0);
	ck_assert_int_eq(cuFuncSetCacheConfig(add, CU_FUNC_CACHE_PREFER_L1), CUDA_SUCCESS);
	ck_assert_int_eq(cuFuncSetCacheConfig(add, CU_FUNC_CACHE_PREFER_L1), CUDA_SUCCESS);
	ck_assert_uint_eq(fake.calls[WIRE_SET_FUNCTION], 1);
	ck_assert_uint_eq(fake.set.attribute, 1000);
	ck_assert_int_eq(fake.set.value, CU_FUNC_CACHE_PREFER_L1);
	ck_assert_int_eq(cuFuncSetCacheConfig(add, (CUfunc_cache)4), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(
		cuFuncSetSharedMemConfig(add, CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE), CUDA_SUCCESS);
	ck_assert_int_eq(cuFuncSetSharedMemConfig(add, (CUsharedconfig)3), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(globals)
{
	CUmodule module = load_module();
	CUdeviceptr address = 0;
	size_t bytes = 0;

	ck_assert_int_eq(cuModuleGetGlobal_v2(&address, NULL, module, "counter"), CUDA_SUCCESS);
	ck_assert_uint_eq(address, FAKE_GLOBAL);
	ck_assert_uint_eq(fake.range_address, FAKE_GLOBAL);
	ck_assert_uint_eq(fake.range_bytes, 16);
	ck_assert_ptr_eq(fake.range_owner, module);
	ck_assert_int_eq(cuModuleGetGlobal_v2(NULL, &bytes, module, "counter"), CUDA_SUCCESS);
	ck_assert_uint_eq(bytes, 16);
	ck_assert_uint_eq(fake.calls[WIRE_FIND_GLOBAL], 1);
	ck_assert_int_eq(cuModuleGetGlobal_v2(NULL, NULL, module, "counter"), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuModuleGetGlobal_v2(&address, &bytes, module, NULL), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuModuleGetGlobal_v2(&address, &bytes, module, "nothing"), CUDA_ERROR_NOT_FOUND);
	ck_assert_int_eq(cuModuleUnload(module), CUDA_SUCCESS);
	ck_assert_ptr_null(fake.range_owner);
}
END_TEST

START_TEST(enumeration)
{
	CUmodule module = load_module();
	CUlibrary library = load_library();
	CUfunction functions[5] = {0};
	CUkernel kernels[2] = {0};
	unsigned count = 0, asked;

	ck_assert_int_eq(cuModuleGetFunctionCount(&count, module), CUDA_SUCCESS);
	ck_assert_uint_eq(count, 3);
	ck_assert_int_eq(cuModuleEnumerateFunctions(functions, 5, module), CUDA_SUCCESS);
	ck_assert_ptr_eq(functions[0], find(module, "odd"));
	ck_assert_ptr_eq(functions[2], find(module, "add"));
	ck_assert_ptr_null(functions[3]);
	ck_assert_int_eq(cuLibraryGetKernelCount(&count, library), CUDA_SUCCESS);
	ck_assert_int_eq(cuLibraryEnumerateKernels(kernels, 2, library), CUDA_SUCCESS);
	ck_assert_str_eq(function_find(kernels[0])->name, "add");
	ck_assert_str_eq(function_find(kernels[1])->name, "plain");
	ck_assert_int_eq(cuLibraryEnumerateKernels(kernels, 0, library), CUDA_SUCCESS);
	ck_assert_int_eq(cuModuleGetFunctionCount(NULL, module), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuModuleEnumerateFunctions(NULL, 1, module), CUDA_ERROR_INVALID_VALUE);
	/* More than one answer holds. */
	fake.page = 1;
	functions[0] = functions[2] = NULL;
	asked = fake.calls[WIRE_LIST_FUNCTIONS];
	ck_assert_int_eq(cuModuleGetFunctionCount(&count, module), CUDA_SUCCESS);
	ck_assert_uint_eq(count, 3);
	ck_assert_uint_eq(fake.calls[WIRE_LIST_FUNCTIONS], asked + 1);
	ck_assert_int_eq(cuModuleEnumerateFunctions(functions, 5, module), CUDA_SUCCESS);
	ck_assert_ptr_eq(functions[0], find(module, "odd"));
	ck_assert_ptr_eq(functions[2], find(module, "add"));
	ck_assert_ptr_null(functions[3]);
	ck_assert_uint_eq(fake.calls[WIRE_LIST_FUNCTIONS], asked + 4);
	functions[0] = functions[1] = functions[2] = NULL;
	ck_assert_int_eq(cuModuleEnumerateFunctions(functions, 2, module), CUDA_SUCCESS);
	ck_assert_ptr_eq(functions[0], find(module, "odd"));
	ck_assert_ptr_eq(functions[1], find(module, "plain"));
	ck_assert_ptr_null(functions[2]);
	ck_assert_int_eq(cuModuleEnumerateFunctions(functions, 0, module), CUDA_SUCCESS);
	/* A list that ends early is not passed off as whole. */
	fake.listed = 4;
	ck_assert_int_eq(cuModuleEnumerateFunctions(functions, 5, module), CUDA_ERROR_UNKNOWN);
}
END_TEST

START_TEST(libraries)
{
	CUlibrary library, of_kernel;
	CUlibraryOption option = CU_LIBRARY_BINARY_IS_PRESERVED, bad = CU_LIBRARY_NUM_OPTIONS;
	void *value = (void *)1;
	CUkernel kernel;
	CUfunction function;
	CUmodule module, of_function;

	fake.context_code = CUDA_ERROR_INVALID_CONTEXT;
	ck_assert_int_eq(
		cuLibraryLoadData(&library, ptx, NULL, NULL, 0, &bad, &value, 1), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(
		cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, &value, 1), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(
		cuLibraryLoadData(NULL, ptx, NULL, NULL, 0, NULL, NULL, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, &option, &value, 1), CUDA_SUCCESS);
	ck_assert_uint_eq(fake.kind, 1);
	ck_assert_int_eq(cuLibraryUnload(library), CUDA_SUCCESS);
	ck_assert_int_eq(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, &option, NULL, 1), CUDA_SUCCESS);
	ck_assert_int_eq(cuLibraryGetKernel(&kernel, library, "add"), CUDA_SUCCESS);
	ck_assert_int_eq(cuKernelGetLibrary(&of_kernel, kernel), CUDA_SUCCESS);
	ck_assert_ptr_eq(of_kernel, library);
	ck_assert_int_eq(cuLibraryGetKernel(&kernel, library, "nobody"), CUDA_ERROR_NOT_FOUND);
	ck_assert_int_eq(cuLibraryGetModule(&module, library), CUDA_ERROR_INVALID_CONTEXT);
	fake.context_code = CUDA_SUCCESS;
	ck_assert_int_eq(cuLibraryGetModule(&module, library), CUDA_SUCCESS);
	ck_assert_int_eq(cuKernelGetFunction(&function, kernel), CUDA_SUCCESS);
	ck_assert_ptr_eq(find(module, "add"), function);
	ck_assert_int_eq(cuFuncGetModule(&of_function, function), CUDA_SUCCESS);
	ck_assert_ptr_eq(of_function, module);
	ck_assert_int_eq(cuModuleUnload(module), CUDA_ERROR_NOT_PERMITTED);
	ck_assert_int_eq(cuLibraryUnload(library), CUDA_SUCCESS);
	ck_assert_uint_eq(fake.loaded[1], 0);
	ck_assert_int_eq(cuLibraryUnload(library), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(cuKernelGetFunction(&function, kernel), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(cuFuncGetModule(&module, (CUfunction)kernel), CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

START_TEST(library_data)
{
	CUlibrary library = load_library();
	CUdeviceptr address;
	size_t bytes;
	void *function;

	ck_assert_int_eq(cuLibraryGetGlobal(&address, &bytes, library, "counter"), CUDA_SUCCESS);
	ck_assert_uint_eq(address, FAKE_GLOBAL);
	ck_assert_int_eq(cuLibraryGetManaged(&address, &bytes, library, "counter"), CUDA_ERROR_NOT_FOUND);
	ck_assert_int_eq(cuLibraryGetUnifiedFunction(&function, library, "none"), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuLibraryGetGlobal(&address, &bytes, (CUlibrary)load_module(), "counter"),
		CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

START_TEST(kernels)
{
	CUlibrary library = load_library();
	CUkernel kernel;
	CUfunctionLoadingState state;
	const char *name;
	size_t offset;
	int value;

	ck_assert_int_eq(cuLibraryGetKernel(&kernel, library, "add"), CUDA_SUCCESS);
	ck_assert_int_eq(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel, 0), CUDA_SUCCESS);
	ck_assert_int_eq(value, 32);
	ck_assert_int_eq(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel, 1),
		CUDA_ERROR_INVALID_DEVICE);
	ck_assert_int_eq(
		cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_NUM_REGS, 1, kernel, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(
		cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 70000, kernel, 0),
		CUDA_SUCCESS);
	/* One object under both names. */
	ck_assert_int_eq(cuFuncGetAttribute(
				 &value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (CUfunction)kernel),
		CUDA_SUCCESS);
	ck_assert_int_eq(value, 70000);
	ck_assert_int_eq(cuKernelSetCacheConfig(kernel, CU_FUNC_CACHE_PREFER_L1, 0), CUDA_SUCCESS);
	ck_assert_int_eq(cuKernelGetName(&name, kernel), CUDA_SUCCESS);
	ck_assert_str_eq(name, "add");
	ck_assert_int_eq(cuKernelGetParamInfo(kernel, 1, &offset, NULL), CUDA_SUCCESS);
	ck_assert_uint_eq(offset, 8);
	ck_assert_int_eq(cuFuncLoad((CUfunction)kernel), CUDA_SUCCESS);
	ck_assert_int_eq(cuFuncIsLoaded(&state, (CUfunction)kernel), CUDA_SUCCESS);
	ck_assert_int_eq(state, CU_FUNCTION_LOADING_STATE_LOADED);
	ck_assert_int_eq(
		cuKernelGetName(&name, (CUkernel)find(load_module(), "add")), CUDA_ERROR_INVALID_HANDLE);
}
END_TEST

START_TEST(end_of_context)
{
	CUmodule one = load_module(), two = load_module();
	CUlibrary library = load_library();
	CUfunction function = find(one, "add");
	CUkernel kernel;

	module_release_context((CUcontext)0x2000);
	ck_assert_ptr_nonnull(module_find(one));
	module_release_context(NULL);
	module_release_context(FAKE_CONTEXT);
	ck_assert_ptr_null(module_find(one));
	ck_assert_ptr_null(module_find(two));
	ck_assert_ptr_null(function_find(function));
	ck_assert_uint_eq(fake.calls[WIRE_UNLOAD_MODULE], 2);
	ck_assert_int_eq(cuLibraryGetKernel(&kernel, library, "add"), CUDA_SUCCESS);
}
END_TEST

START_TEST(loading_mode)
{
	CUmoduleLoadingMode mode;

	unsetenv("CUDA_MODULE_LOADING");
	ck_assert_int_eq(cuModuleGetLoadingMode(&mode), CUDA_SUCCESS);
	ck_assert_int_eq(mode, CU_MODULE_LAZY_LOADING);
	setenv("CUDA_MODULE_LOADING", "EAGER", 1);
	ck_assert_int_eq(cuModuleGetLoadingMode(&mode), CUDA_SUCCESS);
	ck_assert_int_eq(mode, CU_MODULE_EAGER_LOADING);
	ck_assert_int_eq(cuModuleGetLoadingMode(NULL), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(occupancy_memo)
{
	CUfunction add = find(load_module(), "add"), odd = find(load_module(), "odd");
	size_t bytes;
	int blocks;

	for (int i = 0; i < 3; ++i) {
		ck_assert_int_eq(
			cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 256, 0), CUDA_SUCCESS);
		ck_assert_int_eq(blocks, 8);
	}
	ck_assert_uint_eq(fake.calls[WIRE_QUERY_OCCUPANCY], 1);
	ck_assert_int_eq(
		cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, add, 256, 0, 1), CUDA_SUCCESS);
	ck_assert_int_eq(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, odd, 256, 0), CUDA_SUCCESS);
	ck_assert_int_eq(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 256, 40000), CUDA_SUCCESS);
	ck_assert_int_eq(blocks, 5);
	ck_assert_uint_eq(fake.calls[WIRE_QUERY_OCCUPANCY], 4);
	ck_assert_int_eq(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, add, 2, 512), CUDA_SUCCESS);
	ck_assert_uint_eq(bytes, 4);
	/* Attributes change what fits. */
	ck_assert_int_eq(
		cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 0), CUDA_SUCCESS);
	ck_assert_int_eq(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 256, 0), CUDA_SUCCESS);
	ck_assert_uint_eq(fake.calls[WIRE_QUERY_OCCUPANCY], 6);
}
END_TEST

/* The session may be on its way to other multiprocessors than the program was told. */
START_TEST(occupancy_of_other_multiprocessors_is_not_remembered)
{
	CUfunction add = find(load_module(), "add");
	CUlaunchConfig config = {
		.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1, .blockDimZ = 1};
	int clusters;

	fake.sms = 8;
	for (int i = 0; i < 2; ++i)
		ck_assert_int_eq(cuOccupancyMaxActiveClusters(&clusters, add, &config), CUDA_SUCCESS);
	ck_assert_uint_eq(fake.calls[WIRE_QUERY_OCCUPANCY], 2);
	fake.sms = 0;
	for (int i = 0; i < 2; ++i)
		ck_assert_int_eq(cuOccupancyMaxActiveClusters(&clusters, add, &config), CUDA_SUCCESS);
	ck_assert_uint_eq(fake.calls[WIRE_QUERY_OCCUPANCY], 3);
}
END_TEST

START_TEST(occupancy_errors)
{
	CUfunction add = find(load_module(), "add");
	size_t bytes;
	int blocks;

	ck_assert_int_eq(
		cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, NULL, 1, 0), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_int_eq(
		cuOccupancyMaxActiveBlocksPerMultiprocessor(NULL, add, 1, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(
		cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 0, 0), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, add, 1, 0, 2),
		CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(
		cuOccupancyAvailableDynamicSMemPerBlock(&bytes, add, 0, 1), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(cuOccupancyMaxActiveClusters(&blocks, add, NULL), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(fake.calls[WIRE_QUERY_OCCUPANCY], 0);
	/* More than the program allows itself now, though the service would still take it. */
	ck_assert_int_eq(cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000),
		CUDA_SUCCESS);
	ck_assert_int_eq(
		cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1000), CUDA_SUCCESS);
	ck_assert_int_eq(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 32, 2000), CUDA_SUCCESS);
	ck_assert_int_eq(blocks, 0);
}
END_TEST

static size_t shared_of(int block_size)
{
	return (size_t)block_size * 200;
}

START_TEST(block_size_search)
{
	CUfunction add = find(load_module(), "add");
	int grid, block;

	/* All sizes that divide 2048 are equal; the largest wins. */
	ck_assert_int_eq(cuOccupancyMaxPotentialBlockSize(&grid, &block, add, NULL, 0, 0), CUDA_SUCCESS);
	ck_assert_int_eq(block, 1024);
	ck_assert_int_eq(grid, 2 * FAKE_PROCESSORS);
	ck_assert_uint_eq(fake.calls[WIRE_QUERY_OCCUPANCY], 1);
	/* A limit that is no whole number of warps: 2 × 1000 threads fit, 2 × 992 fit, 2 × 960 …, 3
	 * × 672, 4 × 512. */
	ck_assert_int_eq(cuOccupancyMaxPotentialBlockSize(&grid, &block, add, NULL, 0, 1000), CUDA_SUCCESS);
	ck_assert_int_eq(block, 512);
	ck_assert_int_eq(grid, 4 * FAKE_PROCESSORS);
	/* 1162 threads' worth of shared memory: one block of 1024, or 9 blocks of 128 = 1152, or 1
	 * … */
	ck_assert_int_eq(cuOccupancyMaxPotentialBlockSize(&grid, &block, add, shared_of, 0, 0), CUDA_SUCCESS);
	ck_assert_int_eq(block, 576);
	ck_assert_int_eq(grid, 2 * FAKE_PROCESSORS);
	ck_assert_int_eq(cuOccupancyMaxPotentialBlockSizeWithFlags(&grid, &block, add, NULL, 0, -1, 0),
		CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(
		cuOccupancyMaxPotentialBlockSize(NULL, &block, add, NULL, 0, 0), CUDA_ERROR_INVALID_VALUE);
}
END_TEST

START_TEST(clusters)
{
	CUlaunchAttribute attributes[2] = {
		{.id = CU_LAUNCH_ATTRIBUTE_IGNORE}, {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION}};
	CUlaunchConfig config = {.gridDimX = 8,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 32,
		.attrs = attributes,
		.numAttrs = 2};
	CUfunction add = find(load_module(), "add");
	int number;

	memset(&attributes[1].value, 0xaa, sizeof(attributes[1].value));
	attributes[1].value.clusterDim.x = 4;
	ck_assert_int_eq(cuOccupancyMaxActiveClusters(&number, add, &config), CUDA_SUCCESS);
	ck_assert_int_eq(number, 4);
	/* What is behind the value does not make another question. */
	memset(attributes[1].value.pad + 12, 0xbb, 52);
	ck_assert_int_eq(cuOccupancyMaxActiveClusters(&number, add, &config), CUDA_SUCCESS);
	ck_assert_uint_eq(fake.calls[WIRE_QUERY_OCCUPANCY], 1);
	ck_assert_int_eq(cuOccupancyMaxPotentialClusterSize(&number, add, &config), CUDA_SUCCESS);
	ck_assert_uint_eq(fake.calls[WIRE_QUERY_OCCUPANCY], 2);
	config.blockDimX = 64;
	ck_assert_int_eq(cuOccupancyMaxActiveClusters(&number, add, &config), CUDA_SUCCESS);
	ck_assert_uint_eq(fake.calls[WIRE_QUERY_OCCUPANCY], 3);
}
END_TEST

/* Places of dead kernels are used again last, and then the oldest first. */
START_TEST(places)
{
	struct client_function *function;
	struct client_module *module = (struct client_module *)load_module();
	static struct client_function *all[FUNCTION_IDS];

	for (unsigned i = 0; i < FUNCTION_IDS; ++i) {
		ck_assert_int_eq(function_new(module, 1, "plain", &all[i]), CUDA_SUCCESS);
		ck_assert_uint_eq(all[i]->id, i + 1);
	}
	ck_assert_int_eq(function_new(module, 1, "plain", &function), CUDA_ERROR_OUT_OF_MEMORY);
	function_free(all[500], true);
	function_free(all[7], true);
	function_free(all[9], false);
	ck_assert_ptr_null(function_find(all[500]));
	ck_assert_int_eq(function_new(module, 1, "plain", &function), CUDA_SUCCESS);
	ck_assert_uint_eq(function->id, 501);
	ck_assert_int_eq(function_new(module, 1, "plain", &function), CUDA_SUCCESS);
	ck_assert_uint_eq(function->id, 8);
	ck_assert_int_eq(function_new(module, 1, "plain", &function), CUDA_ERROR_OUT_OF_MEMORY);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {load_and_unload, a_file_that_is_forgotten_is_sent_again, load_errors,
		unload_error, libraries_sleep_and_wake, libraries_that_do_not_wake, printing_modules,
		asserting_modules, no_room_for_assertions, libraries_that_print_once_they_wake,
		no_room_for_text, room_for_variables, room_for_managed_variables, variables_without_room,
		all_ids, jit_logs, jit_errors, lookup_once, nonsense_description, decode_layouts, parameters,
		attribute_values, permissions, launches_keep_the_value_they_were_made_with, cache_config,
		globals, enumeration, libraries, library_data, kernels, end_of_context, loading_mode,
		occupancy_memo, occupancy_of_other_multiprocessors_is_not_remembered, occupancy_errors,
		block_size_search, clusters, places};
	Suite *suite = suite_create("function");
	TCase *tcase = suite_case(suite, "function");

	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); ++i)
		tcase_add_test(tcase, tests[i]);
	if (SCARCE_POSSIBLE)
		suite_add(tcase, "function");
	return suite_run(suite);
}
