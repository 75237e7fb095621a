// What is made of texts before a module can be loaded: in compilers, and of the service's own in
// its trial. See ptx.h.

#include <stdio.h>
#include <stdlib.h>

#include "server/backend/cuda/cuda.h"
#include "server/backend/cuda/jit.h"
#include "server/backend/cuda/ptx.h"
#include "server/backend/fatbin.h"
#include "server/backend/image.h"

static unsigned device_arch;

void cuda_compile_for(unsigned arch)
{
	device_arch = arch;
}

/* A copy that ends with a NUL, of the text or of the one in a fat binary. free() it. */
static CUresult find_text(const void *image, size_t bytes, char **ret_text)
{
	struct fatbin_bytes found = {0};
	size_t unused;
	void *text;
	CUresult code;

	if (image_check(image, bytes) == IMAGE_TEXT) {
		code = jit_text(image, bytes, &text, &unused);
	} else {
		code = fatbin_text(image, device_arch, &found);
		if (!code)
			code = jit_text(found.at, found.count, &text, &unused);
		free(found.at);
	}
	if (!code)
		*ret_text = text;
	return code;
}

static void hand_out(const char *text, char *log, size_t log_bytes)
{
	if (log && log_bytes)
		snprintf(log, log_bytes, "%s", text);
}

CUresult cuda_module_compile(const void *image, size_t bytes, const struct wire_options *options, char *log,
	size_t log_bytes, void **ret_code, size_t *ret_bytes)
{
	struct ptx ptx = {.options = options, .arch = device_arch};
	struct jit_options unused;
	struct ptx_result *result;
	enum image_kind kind = image_check(image, bytes);
	CUresult code = jit_options_init(&unused, options);
	char *text = NULL;

	hand_out("", log, log_bytes);
	if (!code && kind != IMAGE_TEXT && kind != IMAGE_FATBIN)
		code = CUDA_ERROR_INVALID_IMAGE;
	if (!code)
		code = find_text(image, bytes, &text);
	if (code)
		return code;
	result = malloc(sizeof(*result));
	ptx.text = text;
	code = result ? ptx_compile(&ptx, result) : CUDA_ERROR_OUT_OF_MEMORY;
	free(text);
	if (!result)
		return code;
	/* Errors first: where there are any they are what the reader wants. */
	hand_out(result->errors[0] ? result->errors : result->remarks, log, log_bytes);
	*ret_code = result->code;
	*ret_bytes = result->bytes;
	free(result);
	return code;
}
