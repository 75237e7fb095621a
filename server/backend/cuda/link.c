// The driver's linker. It compiles a text when it is handed over; neither that nor the linking
// holds up what runs on the device or anybody's launches, measured. The driver keeps the options of
// the link and their log buffers until the link is gone, and nothing says that it does not keep an
// input's name, options and text, so they last as long.

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "server/backend/cuda/cuda.h"
#include "server/backend/cuda/jit.h"
#include "server/backend/image.h"

struct input {
	SLIST_ENTRY(input) link;
	struct jit_options options;
	void *text; /* a copy that ends with a NUL; NULL: the input is no text */
	char name[];
};

struct backend_link {
	CUlinkState state;
	struct jit jit;
	SLIST_HEAD(, input) inputs;
};

CUresult cuda_link_create(const struct wire_options *options, struct backend_link **ret_link)
{
	struct backend_link *link = calloc(1, sizeof(*link));
	CUresult code;

	if (!link)
		return CUDA_ERROR_OUT_OF_MEMORY;
	code = jit_init(&link->jit, options);
	if (!code)
		code = driver.link_create(link->jit.options.count, link->jit.options.ids,
			link->jit.options.values, &link->state);
	if (code)
		free(link);
	else
		*ret_link = link;
	return code;
}

/* The driver believes the sizes that are written in what it reads. */
static bool fits(uint32_t type, const void *input, size_t bytes)
{
	switch (type) {
	case CU_JIT_INPUT_CUBIN:
	case CU_JIT_INPUT_OBJECT:
		return image_check(input, bytes) == IMAGE_ELF;
	case CU_JIT_INPUT_FATBINARY:
		return image_check(input, bytes) == IMAGE_FATBIN;
	case CU_JIT_INPUT_LIBRARY:
		return image_is_archive(input, bytes);
	default:
		return true;
	}
}

static struct input *input_new(struct backend_link *link, const char *name)
{
	size_t bytes = strlen(name) + 1;
	struct input *input = calloc(1, sizeof(*input) + bytes);

	if (!input)
		return NULL;
	memcpy(input->name, name, bytes);
	SLIST_INSERT_HEAD(&link->inputs, input, link);
	return input;
}

static void input_free_latest(struct backend_link *link)
{
	struct input *input = SLIST_FIRST(&link->inputs);

	SLIST_REMOVE_HEAD(&link->inputs, link);
	free(input->text);
	free(input);
}

CUresult cuda_link_add(struct backend_link *link, const struct backend_link_input *wish)
{
	struct input *input = input_new(link, wish->name);
	CUresult code = input ? jit_options_init(&input->options, wish->options) : CUDA_ERROR_OUT_OF_MEMORY;
	size_t text_bytes;

	if (!code && !fits(wish->type, wish->at, wish->bytes))
		code = CUDA_ERROR_INVALID_IMAGE;
	if (!code && wish->type == CU_JIT_INPUT_PTX)
		code = jit_text(wish->at, wish->bytes, &input->text, &text_bytes);
	if (!code)
		code = driver.link_add(link->state, (CUjitInputType)wish->type,
			input->text ? input->text : (void *)(uintptr_t)wish->at,
			input->text ? text_bytes : wish->bytes, input->name, input->options.count,
			input->options.ids, input->options.values);
	/* A client may try as often as it likes. */
	if (code && input)
		input_free_latest(link);
	return code;
}

CUresult cuda_link_complete(struct backend_link *link, const void **ret_image, size_t *ret_bytes)
{
	void *image;
	CUresult code = driver.link_complete(link->state, &image, ret_bytes);

	if (!code)
		*ret_image = image;
	return code;
}

void cuda_link_logs(const struct backend_link *link, const char **ret_errors, const char **ret_remarks)
{
	*ret_errors = link->jit.errors;
	*ret_remarks = link->jit.remarks;
}

CUresult cuda_link_destroy(struct backend_link *link)
{
	CUresult code = driver.link_destroy(link->state);

	while (!SLIST_EMPTY(&link->inputs))
		input_free_latest(link);
	free(link);
	return code;
}
