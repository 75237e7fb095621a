// Modules and launches of the host backend: separate copies, parameter layouts, grids, what is
// refused.

#include "tests/unit/server/backend/bed.h"

static struct backend_function_info info;

TEST(modules, two_loads_are_two_copies)
{
	struct backend_module *second = bed_load(), *first = bed.module;
	struct backend_stream *stream = stream_new();
	struct backend_global mine, other;
	uint32_t *out = memory(0);

	ok(OPS->global_find(first, "global_words", true, &mine));
	ck_assert_uint_eq(mine.bytes, 16);
	ok(OPS->global_find(second, "global_words", true, &other));
	ck_assert_uint_ne(mine.address, other.address);
	ck_assert_int_eq(OPS->global_find(second, "nothing", true, &other), CUDA_ERROR_NOT_FOUND);
	*(uint32_t *)(uintptr_t)mine.address = 99;
	launch(stream, "read_words", &(struct read_words_params){.out = device(0)});
	bed.module = second;
	launch(stream, "read_words", &(struct read_words_params){.out = device(64)});
	wait_stream(stream);
	bed.module = first;
	ck_assert_uint_eq(out[0], 99);
	ck_assert_uint_eq(out[16], 11);
	ck_assert_uint_eq(out[16 + 7], 8);
	ok(OPS->module_unload(second));
	ok(OPS->stream_destroy(stream));
}

/* Descriptors are used again after an unload; the library behind the name must be the new one. */
TEST(modules, a_reload_starts_afresh)
{
	struct backend_global global;

	for (int i = 0; i < 5; i++) {
		struct backend_module *module = bed_load();

		ok(OPS->global_find(module, "global_words", true, &global));
		ck_assert_uint_eq(*(uint32_t *)(uintptr_t)global.address, 11);
		*(uint32_t *)(uintptr_t)global.address = 1;
		ok(OPS->module_unload(module));
	}
}

TEST(modules, bad_images_are_refused)
{
	struct backend_module *module;
	struct backend_load load;
	char log[256] = "";
	size_t bytes = 0;
	char *image = host_kernels_read(&bytes);

	ck_assert_ptr_nonnull(image);
	load = (struct backend_load){.room = UINT64_MAX,
		.image = ".version 8.0\n",
		.bytes = 14,
		.log = log,
		.log_bytes = sizeof(log)};
	ck_assert_int_eq(OPS->module_load(&load, &module), CUDA_ERROR_INVALID_IMAGE);
	ck_assert_uint_ne(strlen(log), 0);
	load = (struct backend_load){.image = image, .bytes = bytes / 8, .room = UINT64_MAX};
	ck_assert_int_eq(OPS->module_load(&load, &module), CUDA_ERROR_INVALID_IMAGE);
	load.bytes = 5;
	ck_assert_int_eq(OPS->module_load(&load, &module), CUDA_ERROR_INVALID_IMAGE);
	free(image);
}

TEST(modules, names_are_listed)
{
	const char *names[64], *rest[64];
	uint32_t count = 2, all = 64;
	bool seen = false;

	names[2] = "untouched";
	ok(OPS->function_list(bed.module, 0, names, &count));
	ck_assert_str_eq(names[2], "untouched");
	ck_assert_uint_gt(count, 10);
	ok(OPS->function_list(bed.module, 0, names, &all));
	ck_assert_uint_eq(all, count);
	for (uint32_t i = 0; i < all; i++)
		seen = seen || !strcmp(names[i], "echo");
	ck_assert(seen);
	/* The last one alone; none. */
	rest[1] = "untouched";
	ok(OPS->function_list(bed.module, all - 1, rest, &count));
	ck_assert_str_eq(rest[0], names[all - 1]);
	ck_assert_str_eq(rest[1], "untouched");
	ok(OPS->function_list(bed.module, UINT32_MAX, rest, &count));
	ck_assert_str_eq(rest[0], names[all - 1]);
	ck_assert_uint_eq(count, all);
}

TEST(modules, parameters_have_the_layout_of_a_struct)
{
	struct backend_stream *stream = stream_new();
	struct backend_function *function;
	struct echo_params params = {
		.a = 0xa1, .b = 0x1122334455667788, .c = 0xbeef, .e = 0xcafe0001, .out = device(0)};
	uint8_t *out = memory(0), expected[39];

	ok(OPS->function_find(bed.module, "echo", true, &function, &info));
	ck_assert_uint_eq(info.param_count, 6);
	ck_assert_uint_eq(info.params[0].offset, 0);
	ck_assert_uint_eq(info.params[1].offset, 8);
	ck_assert_uint_eq(info.params[2].offset, 16);
	ck_assert_uint_eq(info.params[3].offset, 18);
	ck_assert_uint_eq(info.params[3].size, 24);
	ck_assert_uint_eq(info.params[4].offset, 44);
	ck_assert_uint_eq(info.argument_bytes, sizeof(params));
	for (int i = 0; i < 24; i++)
		params.d.bytes[i] = (uint8_t)(i + 100);
	expected[0] = params.a;
	memcpy(expected + 1, &params.b, 8);
	memcpy(expected + 9, &params.c, 2);
	memcpy(expected + 11, &params.d, 24);
	memcpy(expected + 35, &params.e, 4);
	launch(stream, "echo", &params);
	memset(&params, 0, sizeof(params)); /* the launch has its copy */
	wait_stream(stream);
	ck_assert_mem_eq(out, expected, sizeof(expected));
	ok(OPS->stream_destroy(stream));
}

TEST(modules, every_block_of_a_grid_runs_once)
{
	struct backend_stream *stream = stream_new();
	struct backend_launch wishes = {.grid = {5, 4, 3}, .block = {8, 2, 2}};
	uint32_t *out = memory(0);

	ok(try_launch(stream, "number_blocks", &(struct number_blocks_params){.out = device(0)}, &wishes));
	wait_stream(stream);
	for (uint32_t i = 0; i < 60; i++)
		ck_assert_uint_eq(out[i], i + 1);
	ck_assert_uint_eq(out[60], 0);
	ok(OPS->stream_destroy(stream));
}

TEST(modules, kernels_compute)
{
	struct backend_stream *stream = stream_new();
	struct backend_launch wishes = {.grid = {3, 1, 1}, .block = {32, 1, 1}};
	uint32_t *a = memory(0), *b = memory(4096), *out = memory(8192);
	float *scaled = memory(16384);

	for (uint32_t i = 0; i < 1000; i++) {
		a[i] = i;
		b[i] = 3 * i;
		scaled[i] = (float)i;
	}
	ok(try_launch(stream, "add_vectors",
		&(struct add_vectors_params){
			.out = device(8192), .a = device(0), .b = device(4096), .count = 1000},
		&wishes));
	ok(try_launch(stream, "scale",
		&(struct scale_params){.data = device(16384), .count = 1000, .factor = 0.5f}, &wishes));
	wishes.grid[0] = 1;
	wishes.shared_bytes = 40;
	ok(try_launch(stream, "reverse", &(struct reverse_params){.out = device(0), .count = 10}, &wishes));
	wait_stream(stream);
	for (uint32_t i = 0; i < 1000; i++) {
		ck_assert_uint_eq(out[i], 4 * i);
		ck_assert(scaled[i] == (float)i / 2);
	}
	ck_assert_uint_eq(a[0], 9);
	ck_assert_uint_eq(a[9], 0);
	ok(OPS->stream_destroy(stream));
}

static const struct {
	struct backend_launch wishes;
	uint32_t attribute, attribute_value;
	CUresult code;
} refused[] = {
	{{.grid = {1, 1, 1}, .block = {1025, 1, 1}}, 0, 0, CUDA_ERROR_INVALID_VALUE},
	{{.grid = {1, 1, 1}, .block = {32, 32, 2}}, 0, 0, CUDA_ERROR_INVALID_VALUE},
	{{.grid = {1, 1, 1}, .block = {1, 1, 65}}, 0, 0, CUDA_ERROR_INVALID_VALUE},
	{{.grid = {0, 1, 1}, .block = {1, 1, 1}}, 0, 0, CUDA_ERROR_INVALID_VALUE},
	{{.grid = {1, 1, 1}, .block = {1, 0, 1}}, 0, 0, CUDA_ERROR_INVALID_VALUE},
	{{.grid = {1, 65536, 1}, .block = {1, 1, 1}}, 0, 0, CUDA_ERROR_INVALID_VALUE},
	{{.grid = {1, 1, 1}, .block = {1, 1, 1}, .shared_bytes = 49153}, 0, 0, CUDA_ERROR_INVALID_VALUE},
	{{.grid = {1, 1, 1}, .block = {1, 1, 1}, .cooperative = true}, 0, 0, CUDA_ERROR_NOT_SUPPORTED},
	{{.grid = {2, 1, 1}, .block = {1, 1, 1}}, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, 2,
		CUDA_ERROR_NOT_SUPPORTED},
	{{.grid = {1, 1, 1}, .block = {1, 1, 1}}, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, 0,
		CUDA_ERROR_NOT_SUPPORTED},
	{{.grid = {1, 1, 1}, .block = {1, 1, 1}}, CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT, 0,
		CUDA_ERROR_NOT_SUPPORTED},
	{{.grid = {1, 1, 1}, .block = {1, 1, 1}}, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, 0,
		CUDA_ERROR_NOT_SUPPORTED},
	{{.grid = {1, 1, 1}, .block = {1, 1, 1}}, 4711, 0, CUDA_ERROR_NOT_SUPPORTED},
	{{.grid = {1, 1, 1}, .block = {1, 1, 1}}, CU_LAUNCH_ATTRIBUTE_PRIORITY, 1, CUDA_SUCCESS},
};

TEST_LOOP(modules, launches_are_checked, 0, sizeof(refused) / sizeof(refused[0]))
{
	struct backend_stream *stream = stream_new();
	struct backend_launch wishes = refused[_i].wishes;
	struct frmps_launch_attribute attribute = {.id = refused[_i].attribute};
	uint32_t ran;

	memcpy(attribute.value, &refused[_i].attribute_value, 4);
	wishes.attributes = &attribute;
	wishes.attribute_count = attribute.id ? 1 : 0;
	ck_assert_int_eq(try_launch(stream, "count_up", &(struct count_up_params){.word = device(0), .by = 1},
				 &wishes),
		refused[_i].code);
	wait_stream(stream);
	ran = *(uint32_t *)memory(0);
	ck_assert_uint_eq(ran, refused[_i].code ? 0 : 1);
	ok(OPS->stream_destroy(stream));
}

/* Loads the module that an environment variable names. */
static CUresult load_named(
	const char *variable, struct backend_variables *variables, struct backend_module **ret_module)
{
	char *others = strdup(getenv("FRMPS_TEST_KERNELS"));
	struct backend_load load;
	size_t bytes = 0;
	void *image;
	CUresult code;

	setenv("FRMPS_TEST_KERNELS", getenv(variable), 1);
	image = host_kernels_read(&bytes);
	setenv("FRMPS_TEST_KERNELS", others, 1);
	free(others);
	ck_assert_ptr_nonnull(image);
	load = (struct backend_load){
		.image = image, .bytes = bytes, .room = UINT64_MAX, .variables = variables};
	code = OPS->module_load(&load, ret_module);
	free(image);
	return code;
}

/* Loads the module with variables that can be moved. */
static CUresult load_moved(struct backend_variables *variables, struct backend_module **ret_module)
{
	return load_named("FRMPS_TEST_MOVED_KERNELS", variables, ret_module);
}

/* Of a module that is handled as one that a driver loads. */
TEST(modules, first_lookups_need_a_gap)
{
	struct backend_function *function = NULL;
	struct backend_module *module;
	struct backend_global global;

	ok(load_named("FRMPS_TEST_COUNT_KERNELS", NULL, &module));
	ck_assert(OPS->module_waits(module));
	ck_assert_int_eq(
		OPS->function_find(module, "count_down", false, &function, &info), CUDA_ERROR_NOT_FOUND);
	ck_assert_int_eq(
		OPS->function_find(module, "count_up", false, &function, &info), CUDA_ERROR_NOT_READY);
	ck_assert_ptr_null(function);
	ok(OPS->function_find(module, "count_up", true, &function, &info));
	ok(OPS->function_find(module, "count_up", false, &function, &info));
	ck_assert_int_eq(OPS->global_find(module, "nothing", false, &global), CUDA_ERROR_NOT_READY);
	ck_assert_int_eq(OPS->global_find(module, "nothing", true, &global), CUDA_ERROR_NOT_FOUND);
	ok(OPS->module_unload(module));
}

TEST(modules, others_need_none)
{
	struct backend_module *module = bed_load();
	struct backend_function *function = NULL;
	struct backend_global global;

	ck_assert(!OPS->module_waits(module));
	ck_assert_int_eq(
		OPS->function_find(module, "count_down", false, &function, &info), CUDA_ERROR_NOT_FOUND);
	ok(OPS->function_find(module, "count_up", false, &function, &info));
	ok(OPS->global_find(module, "global_words", false, &global));
	ok(OPS->module_unload(module));
}

/* The mirror begins with the constant's value; kernels read the constant. */
TEST(modules, constants_have_a_mirror_in_a_block)
{
	struct backend_variables variables = {.at = 0};
	struct backend_global found, moved;
	struct backend_module *module;

	ck_assert_int_eq(load_moved(&variables, &module), CUDA_ERROR_NOT_READY);
	ck_assert_uint_gt(variables.bytes, 256);
	variables.at = device(4096);
	ok(load_moved(&variables, &module));
	ok(OPS->global_find(module, "settings", true, &found));
	ok(OPS->global_find(module, "tally", true, &moved));
	ck_assert_uint_eq(moved.constant, 0);
	ck_assert_uint_eq(found.bytes, 256);
	ck_assert_uint_ge(found.address, variables.at);
	ck_assert_uint_le(found.address + found.bytes, variables.at + variables.bytes);
	ck_assert_uint_ne(found.constant, 0);
	ck_assert_mem_eq(variables.first + (found.address - variables.at), (void *)(uintptr_t)found.constant,
		found.bytes);
	ok(OPS->module_unload(module));
	free(variables.first);
}

TEST(modules, without_a_block_constants_are_where_they_are)
{
	struct backend_module *module;
	struct backend_global found;

	ok(load_moved(NULL, &module));
	ok(OPS->global_find(module, "settings", true, &found));
	ck_assert_uint_eq(found.constant, 0);
	ck_assert_uint_eq(*(uint32_t *)(uintptr_t)found.address, 1);
	ok(OPS->module_unload(module));
}

TEST(modules, functions_have_attributes)
{
	struct backend_stream *stream = stream_new();
	struct backend_launch wishes = {.grid = {1, 1, 1}, .block = {1, 1, 1}, .shared_bytes = 100000};
	struct count_up_params params = {.word = device(0), .by = 1};
	struct backend_function *function;

	ok(OPS->function_find(bed.module, "count_up", true, &function, &info));
	ck_assert_int_eq(
		OPS->function_find(bed.module, "count_down", true, &function, &info), CUDA_ERROR_NOT_FOUND);
	ck_assert_int_eq(info.attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK], 1024);
	ck_assert_int_eq(try_launch(stream, "count_up", &params, &wishes), CUDA_ERROR_INVALID_VALUE);
	ok(OPS->function_set(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000));
	ok(try_launch(stream, "count_up", &params, &wishes));
	ok(OPS->function_set(function, 1000, CU_FUNC_CACHE_PREFER_L1));
	ck_assert_int_eq(
		OPS->function_set(function, CU_FUNC_ATTRIBUTE_NUM_REGS, 1), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(OPS->function_set(function, 8, INT64_C(1) << 40), CUDA_ERROR_INVALID_VALUE);
	wait_stream(stream);
	ok(OPS->stream_destroy(stream));
}

TEST(modules, occupancy_follows_the_attributes)
{
	struct backend_function *function;
	uint64_t value = 0;

	ok(OPS->function_find(bed.module, "fill", true, &function, &info));
	ok(OPS->occupancy(function, &(struct wire_occupancy){.query = 0, .block_size = 1024}, 0, &value));
	ck_assert_uint_eq(value, 2);
	ok(OPS->occupancy(function, &(struct wire_occupancy){.query = 0, .block_size = 33}, 0, &value));
	ck_assert_uint_eq(value, 32);
	ok(OPS->occupancy(function,
		&(struct wire_occupancy){.query = 0, .block_size = 32, .shared_bytes = 100000}, 0, &value));
	ck_assert_uint_eq(value, 2);
	ok(OPS->occupancy(
		function, &(struct wire_occupancy){.query = 1, .blocks = 2, .block_size = 128}, 0, &value));
	ck_assert_uint_eq(value, 49152);
	ck_assert_int_eq(OPS->occupancy(function, &(struct wire_occupancy){.query = 0}, 0, &value),
		CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(OPS->occupancy(function, &(struct wire_occupancy){.query = 2}, 0, &value),
		CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(OPS->occupancy(function, &(struct wire_occupancy){.query = 9}, 0, &value),
		CUDA_ERROR_INVALID_VALUE);
}

int main(void)
{
	Suite *suite = suite_create("server/backend/modules");
	TCase *tests = suite_case(suite, "modules");

	tcase_add_checked_fixture(tests, bed_init, bed_deinit);
	suite_add(tests, "modules");
	return suite_run(suite);
}
