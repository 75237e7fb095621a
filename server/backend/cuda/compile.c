// What is made of texts before a module can be loaded: in compilers alone. The driver links what it
// compiles, and so does this.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/backend/cuda/cuda.h"
#include "server/backend/image.h"

/* Errors first: where there are any they are what the reader wants. */
static void hand_out(const struct backend_link *link, char *log, size_t log_bytes)
{
	const char *errors, *remarks;

	cuda_link_logs(link, &errors, &remarks);
	if (log && log_bytes)
		snprintf(log, log_bytes, "%s", errors[0] ? errors : remarks);
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

CUresult cuda_module_compile(const void *image, size_t bytes, const struct wire_options *options, char *log,
	size_t log_bytes, void **ret_code, size_t *ret_bytes)
{
	static const struct wire_options none;
	struct backend_link_input input = {.at = image, .bytes = bytes, .name = "image", .options = &none};
	enum image_kind kind = image_check(image, bytes);
	struct backend_link *link;
	const void *code = NULL;
	size_t size = 0;
	CUresult result;

	if (log && log_bytes)
		log[0] = '\0';
	if (kind != IMAGE_TEXT && kind != IMAGE_FATBIN)
		return CUDA_ERROR_INVALID_IMAGE;
	input.type = kind == IMAGE_TEXT ? CU_JIT_INPUT_PTX : CU_JIT_INPUT_FATBINARY;
	result = cuda_link_create(options, &link);
	if (result)
		return result;
	result = cuda_link_add(link, &input);
	if (!result)
		result = cuda_link_complete(link, &code, &size);
	hand_out(link, log, log_bytes);
	if (!result)
		result = copy_code(code, size, ret_code, ret_bytes);
	cuda_link_destroy(link);
	return result;
}
