// See jit.h.

#include "server/backend/cuda/jit.h"

#include <stdlib.h>
#include <string.h>

#include "server/backend/cuda/driver.h"

/* Options that are plain numbers, one bit per id. The log buffers are ours; wall time is an answer,
 * not a wish; how many threads a compilation has is not for one of many programs to say. */
#define BIT(id)	      (UINT64_C(1) << (id))
#define RANGE(lo, hi) (((UINT64_C(1) << ((hi) - (lo) + 1)) - 1) << (lo))
static const uint64_t scalar_options =
	BIT(CU_JIT_MAX_REGISTERS) | BIT(CU_JIT_THREADS_PER_BLOCK) |
	RANGE(CU_JIT_OPTIMIZATION_LEVEL, CU_JIT_FAST_COMPILE) | RANGE(CU_JIT_LTO, CU_JIT_FMA) |
	RANGE(CU_JIT_OPTIMIZE_UNUSED_DEVICE_VARIABLES, CU_JIT_OVERRIDE_DIRECTIVE_VALUES);
static const uint64_t ignored_options =
	RANGE(CU_JIT_WALL_TIME, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) | BIT(CU_JIT_SPLIT_COMPILE);

static void add(struct jit_options *options, CUjit_option id, uint64_t value)
{
	options->ids[options->count] = id;
	options->values[options->count++] = (void *)(uintptr_t)value;
}

static CUresult add_wishes(struct jit_options *options, const struct wire_options *wishes)
{
	if (wishes && wishes->count > JIT_OPTIONS_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; wishes && i < wishes->count; i++) {
		const struct wire_option *wish = &wishes->at[i];

		if (wish->id >= 64 || !((scalar_options | ignored_options) & BIT(wish->id)))
			return CUDA_ERROR_NOT_SUPPORTED; /* symbol tables: pointers into the client */
		if (scalar_options & BIT(wish->id))
			add(options, (CUjit_option)wish->id, wish->value);
	}
	return CUDA_SUCCESS;
}

CUresult jit_options_init(struct jit_options *options, const struct wire_options *wishes)
{
	options->count = 0;
	return add_wishes(options, wishes);
}

CUresult jit_init(struct jit *jit, const struct wire_options *wishes)
{
	struct jit_options *options = &jit->options;

	options->count = 0;
	jit->errors[0] = jit->remarks[0] = '\0';
	add(options, CU_JIT_ERROR_LOG_BUFFER, (uintptr_t)jit->errors);
	add(options, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, sizeof(jit->errors));
	add(options, CU_JIT_INFO_LOG_BUFFER, (uintptr_t)jit->remarks);
	add(options, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, sizeof(jit->remarks));
	return add_wishes(options, wishes);
}

CUresult jit_text(const void *text, size_t bytes, void **ret_copy, size_t *ret_bytes)
{
	size_t length = strnlen(text, bytes);
	char *copy;

	if (length == SIZE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	copy = malloc(length + 1);
	if (!copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(copy, text, length);
	copy[length] = '\0';
	*ret_copy = copy;
	*ret_bytes = length + 1;
	return CUDA_SUCCESS;
}

static CUresult copy_code(const void *code, size_t bytes, void **ret_code, size_t *ret_bytes)
{
	void *copy = malloc(bytes);

	if (!copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(copy, code, bytes);
	*ret_code = copy;
	*ret_bytes = bytes;
	return CUDA_SUCCESS;
}

CUresult jit_compile(CUjitInputType type, const void *source, size_t bytes, unsigned count,
	CUjit_option *options, void **values, void **ret_code, size_t *ret_bytes)
{
	CUlinkState link;
	void *cubin;
	size_t size;
	CUresult code = driver.link_create(count, options, values, &link);

	if (code)
		return code;
	code = driver.link_add(link, type, (void *)(uintptr_t)source, bytes, "image", 0, NULL, NULL);
	if (!code)
		code = driver.link_complete(link, &cubin, &size);
	if (!code)
		code = copy_code(cubin, size, ret_code, ret_bytes);
	driver.link_destroy(link);
	return code;
}
