// Preparing texts before a module can be loaded: in compilers alone. A text is a whole program, so
// nothing is linked.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/backend/cuda/cuda.h"
#include "server/backend/cuda/jit.h"
#include "server/backend/cuda/ptx.h"
#include "server/backend/fatbin.h"
#include "server/backend/image.h"

/* Errors first: a reader wants errors if there are any. */
static void hand_out(const struct nvjit_log *said, char *log, size_t log_bytes)
{
	if (log && log_bytes)
		snprintf(log, log_bytes, "%s", said->errors[0] ? said->errors : said->remarks);
}

static CUresult compile(const void *source, size_t bytes, const struct wire_options *options,
	struct nvjit_log *said, void **ret_code, size_t *ret_bytes)
{
	struct ptx ptx = {.options = {options}, .arch = nvjit.arch, .is_whole = true};
	void *text;
	size_t size;
	CUresult code = jit_text(source, bytes, &text, &size);

	if (code)
		return code;
	ptx.text = text;
	/* As in the driver: a text without this directive is no PTX at all. */
	code = strstr(text, ".version") ? ptx_compile(&ptx, said, ret_code, ret_bytes)
					: CUDA_ERROR_INVALID_IMAGE;
	free(text);
	return code;
}

static CUresult compile_any(const void *image, size_t bytes, uint64_t room,
	const struct wire_options *options, struct nvjit_log *said, void **ret_code, size_t *ret_bytes)
{
	struct fatbin_bytes found = {0};
	CUresult code;

	switch (image_check(image, bytes)) {
	case IMAGE_TEXT:
		return compile(image, bytes, options, said, ret_code, ret_bytes);
	case IMAGE_FATBIN:
		code = fatbin_text(image, nvjit.arch, room, &found);
		if (!code)
			code = compile(found.at, found.count, options, said, ret_code, ret_bytes);
		free(found.at);
		return code;
	default:
		return CUDA_ERROR_INVALID_IMAGE;
	}
}

CUresult cuda_module_compile(const void *image, size_t bytes, uint64_t room,
	const struct wire_options *options, char *log, size_t log_bytes, void **ret_code, size_t *ret_bytes)
{
	struct nvjit_log *said;
	CUresult code = jit_check_options(options);

	if (log && log_bytes)
		log[0] = '\0';
	if (code)
		return code;
	if (!nvjit_open())
		return CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
	said = calloc(1, sizeof(*said));
	if (!said)
		return CUDA_ERROR_OUT_OF_MEMORY;
	code = compile_any(image, bytes, room, options, said, ret_code, ret_bytes);
	hand_out(said, log, log_bytes);
	free(said);
	return code;
}
