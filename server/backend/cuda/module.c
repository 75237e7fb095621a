// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Modules: every client's image becomes a module of the executor's context. The executor role sets
// CUDA_MODULE_LOADING=EAGER before it opens the backend, so all kernels are on the device when module_load
// returns and no launch ever loads code. Loading waits for running kernels (the driver's rule); the caller
// schedules it.

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "server/backend/cuda/cuda.h"
#include "server/backend/image.h"

#define OPTIONS_MAX 32u
/* Ours in front of the client's: two log buffers and their sizes. */
#define OWN_OPTIONS 4u

/* Options that are plain numbers, one bit per id. The log buffers are ours; wall time is an answer, not a
 * wish. */
#define BIT(id)	      (UINT64_C(1) << (id))
#define RANGE(lo, hi) (((UINT64_C(1) << ((hi) - (lo) + 1)) - 1) << (lo))
static const uint64_t scalar_options = BIT(CU_JIT_MAX_REGISTERS) | BIT(CU_JIT_THREADS_PER_BLOCK) |
				       RANGE(CU_JIT_OPTIMIZATION_LEVEL, CU_JIT_FAST_COMPILE) |
				       RANGE(CU_JIT_LTO, CU_JIT_FMA) |
				       RANGE(CU_JIT_OPTIMIZE_UNUSED_DEVICE_VARIABLES, CU_JIT_SPLIT_COMPILE);
static const uint64_t ignored_options = RANGE(CU_JIT_WALL_TIME, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);

struct jit {
	unsigned count;
	CUjit_option ids[OWN_OPTIONS + OPTIONS_MAX];
	void *values[OWN_OPTIONS + OPTIONS_MAX];
	char errors[8192], remarks[8192];
};

static void add(struct jit *jit, CUjit_option id, uint64_t value)
{
	jit->ids[jit->count] = id;
	jit->values[jit->count++] = (void *)(uintptr_t)value;
}

static CUresult jit_init(struct jit *jit, const struct wire_options *options)
{
	jit->count = 0;
	jit->errors[0] = jit->remarks[0] = '\0';
	add(jit, CU_JIT_ERROR_LOG_BUFFER, (uintptr_t)jit->errors);
	add(jit, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, sizeof(jit->errors));
	add(jit, CU_JIT_INFO_LOG_BUFFER, (uintptr_t)jit->remarks);
	add(jit, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, sizeof(jit->remarks));
	if (options && options->count > OPTIONS_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; options && i < options->count; i++) {
		const struct wire_option *option = &options->at[i];

		if (option->id >= 64 || !((scalar_options | ignored_options) & BIT(option->id)))
			return CUDA_ERROR_NOT_SUPPORTED; /* symbol tables: pointers into the client */
		if (scalar_options & BIT(option->id))
			add(jit, (CUjit_option)option->id, option->value);
	}
	return CUDA_SUCCESS;
}

/* Errors first: where there are any they are what the reader wants. */
static void hand_out_log(const struct jit *jit, char *log, size_t size)
{
	const char *text = jit->errors[0] ? jit->errors : jit->remarks;
	size_t length;

	if (!log || !size)
		return;
	length = strnlen(text, sizeof(jit->errors) - 1);
	length = length < size ? length : size - 1;
	memcpy(log, text, length);
	log[length] = '\0';
}

/* The JIT reads up to a NUL; the client's text may come without one. */
static CUresult terminated(const void *image, size_t bytes, void **ret_copy)
{
	char *copy;

	if (bytes == SIZE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	copy = malloc(bytes + 1);
	if (!copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(copy, image, bytes);
	copy[bytes] = '\0';
	*ret_copy = copy;
	return CUDA_SUCCESS;
}

CUresult cuda_module_load(const void *image, size_t bytes, const struct wire_options *options, char *log,
	size_t log_bytes, struct backend_module **ret_module)
{
	enum image_kind kind = image_check(image, bytes);
	void *copy = NULL;
	struct jit jit;
	CUmodule module;
	CUresult code;

	if (log && log_bytes)
		log[0] = '\0';
	if (kind == IMAGE_BAD)
		return CUDA_ERROR_INVALID_IMAGE;
	code = jit_init(&jit, options);
	if (!code && kind == IMAGE_TEXT)
		code = terminated(image, bytes, &copy);
	if (code)
		return code;
	code = driver.module_load(&module, copy ? copy : image, jit.count, jit.ids, jit.values);
	free(copy);
	hand_out_log(&jit, log, log_bytes);
	if (code)
		return code;
	*ret_module = (struct backend_module *)(void *)module;
	return CUDA_SUCCESS;
}

CUresult cuda_module_unload(struct backend_module *module)
{
	return driver.module_unload(cuda_module(module));
}

/* The driver ends the list of parameters with CUDA_ERROR_INVALID_VALUE. */
static CUresult read_params(CUfunction function, struct backend_function_info *info)
{
	size_t offset, size;
	uint32_t i;

	info->argument_bytes = 0;
	for (i = 0; i < BACKEND_PARAMS_MAX; i++) {
		CUresult code = driver.function_param(function, i, &offset, &size);

		if (code == CUDA_ERROR_INVALID_VALUE)
			break;
		if (code)
			return code;
		if (offset > FRMPS_ARGUMENT_MAX || size > FRMPS_ARGUMENT_MAX - offset)
			return CUDA_ERROR_NOT_SUPPORTED;
		info->params[i].offset = (uint32_t)offset;
		info->params[i].size = (uint32_t)size;
		if (offset + size > info->argument_bytes)
			info->argument_bytes = (uint32_t)(offset + size);
	}
	info->param_count = i;
	return CUDA_SUCCESS;
}

CUresult cuda_function_find(struct backend_module *module, const char *name,
	struct backend_function **ret_function, struct backend_function_info *ret_info)
{
	CUfunction function;
	CUresult code;

	code = driver.module_function(&function, cuda_module(module), name);
	if (!code)
		code = read_params(function, ret_info);
	if (code)
		return code;
	for (int i = 0; i < (int)BACKEND_FUNC_ATTRS; i++) {
		int value = 0;

		ret_info->attributes[i] =
			driver.function_attribute(&value, (CUfunction_attribute)i, function) ? 0 : value;
	}
	*ret_function = (struct backend_function *)(void *)function;
	return CUDA_SUCCESS;
}

CUresult cuda_global_find(
	struct backend_module *module, const char *name, uint64_t *ret_address, uint64_t *ret_bytes)
{
	CUdeviceptr address;
	size_t bytes;
	CUresult code = driver.module_global(&address, &bytes, cuda_module(module), name);

	if (code)
		return code;
	*ret_address = address;
	*ret_bytes = bytes;
	return CUDA_SUCCESS;
}

static CUresult name_all(const CUfunction *functions, uint32_t count, const char **ret_names)
{
	for (uint32_t i = 0; i < count; i++) {
		CUresult code = driver.function_name(&ret_names[i], functions[i]);

		if (code)
			return code;
	}
	return CUDA_SUCCESS;
}

CUresult cuda_function_list(struct backend_module *module, const char **ret_names, uint32_t *count)
{
	unsigned int there = 0, wanted;
	CUfunction *functions;
	CUresult code;

	code = driver.module_count(&there, cuda_module(module));
	if (code)
		return code;
	wanted = there < *count ? there : *count;
	if (wanted) {
		functions = calloc(wanted, sizeof(CUfunction));
		if (!functions)
			return CUDA_ERROR_OUT_OF_MEMORY;
		code = driver.module_functions(functions, wanted, cuda_module(module));
		if (!code)
			code = name_all(functions, wanted, ret_names);
		free(functions);
	}
	if (!code)
		*count = there;
	return code;
}

CUresult cuda_function_set(struct backend_function *function, uint32_t attribute, int64_t value)
{
	if (value < INT_MIN || value > INT_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	if (attribute == 1000)
		return driver.function_set_cache(cuda_function(function), (CUfunc_cache)value);
	if (attribute >= BACKEND_FUNC_ATTRS)
		return CUDA_ERROR_INVALID_VALUE;
	return driver.function_set_attribute(
		cuda_function(function), (CUfunction_attribute)attribute, (int)value);
}
