// The device linker of a machine without a device: the image of a link is its only shared object,
// which was the input, or the result of compiling a fat binary (compile.c). Other texts are
// refused.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/host/host.h"
#include "server/backend/image.h"

struct backend_link {
	void *image;
	size_t bytes;
	char errors[1024], remarks[256];
};

CUresult host_link_create(const struct wire_options *options, struct backend_link **ret_link)
{
	struct backend_link *link = calloc(1, sizeof(*link));

	(void)options; /* wishes for a compiler that is not there */
	if (!link)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret_link = link;
	return CUDA_SUCCESS;
}

static CUresult refuse(
	struct backend_link *link, const struct backend_link_input *input, CUresult code, const char *why)
{
	size_t length = strlen(link->errors);

	snprintf(link->errors + length, sizeof(link->errors) - length, "%s: %s\n", input->name, why);
	return code;
}

/* Makes a shared object the image. */
static CUresult take_object(struct backend_link *link, const struct backend_link_input *input)
{
	if (image_check(input->at, input->bytes) != IMAGE_ELF)
		return refuse(link, input, CUDA_ERROR_INVALID_IMAGE, "no shared object");
	link->image = malloc(input->bytes);
	if (!link->image)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(link->image, input->at, input->bytes);
	link->bytes = input->bytes;
	return CUDA_SUCCESS;
}

CUresult host_link_add(struct backend_link *link, const struct backend_link_input *input)
{
	CUresult code;

	if (input->type == CU_JIT_INPUT_PTX)
		return refuse(link, input, CUDA_ERROR_INVALID_PTX, "the host backend compiles no text");
	if (link->image)
		return refuse(link, input, CUDA_ERROR_NOT_SUPPORTED, "the host backend links one object");
	if (input->type == CU_JIT_INPUT_FATBINARY)
		code = host_module_compile(
			input->at, input->bytes, UINT64_MAX, NULL, NULL, 0, &link->image, &link->bytes);
	else
		code = take_object(link, input);
	if (!code)
		snprintf(link->remarks, sizeof(link->remarks), "%s: taken\n", input->name);
	return code;
}

CUresult host_link_complete(struct backend_link *link, const void **ret_image, size_t *ret_bytes)
{
	if (!link->image)
		return CUDA_ERROR_INVALID_IMAGE;
	*ret_image = link->image;
	*ret_bytes = link->bytes;
	return CUDA_SUCCESS;
}

void host_link_logs(const struct backend_link *link, const char **ret_errors, const char **ret_remarks)
{
	*ret_errors = link->errors;
	*ret_remarks = link->remarks;
}

CUresult host_link_destroy(struct backend_link *link)
{
	free(link->image);
	free(link);
	return CUDA_SUCCESS;
}
