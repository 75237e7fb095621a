// See jit.h.

#include "server/backend/cuda/jit.h"

#include <stdlib.h>
#include <string.h>

#include "server/backend/cuda/driver.h"

#define OPTIONS_MAX 32u

/* Options that are plain numbers, a bit per id. Those for logs and the wall time are the client
 * library's affair; a single program must not choose the number of threads of a compilation. */
#define BIT(id)	      (UINT64_C(1) << (id))
#define RANGE(lo, hi) (((UINT64_C(1) << ((hi) - (lo) + 1)) - 1) << (lo))
static const uint64_t known_options = RANGE(CU_JIT_MAX_REGISTERS, CU_JIT_FAST_COMPILE) |
				      RANGE(CU_JIT_LTO, CU_JIT_FMA) |
				      RANGE(CU_JIT_OPTIMIZE_UNUSED_DEVICE_VARIABLES, CU_JIT_SPLIT_COMPILE);

CUresult jit_check_options(const struct wire_options *options)
{
	if (options && options->count > OPTIONS_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; options && i < options->count; i++)
		if (options->at[i].id >= 64 || !(known_options & BIT(options->at[i].id)))
			return CUDA_ERROR_NOT_SUPPORTED; /* symbol tables: pointers into the client */
	return CUDA_SUCCESS;
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
