// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// The driver's linker. It compiles a text when it is handed over; neither that nor the linking holds up what
// runs on the device or anybody's launches, measured. The driver keeps nothing of an input after the call,
// but the log buffers until the link is gone.

#include <stdlib.h>
#include <string.h>

#include "server/backend/cuda/cuda.h"
#include "server/backend/cuda/jit.h"
#include "server/backend/image.h"

struct backend_link {
	CUlinkState state;
	struct jit jit;
};

CUresult cuda_link_create(const struct wire_options *options, struct backend_link **ret_link)
{
	struct backend_link *link = calloc(1, sizeof(*link));
	CUresult code;

	if (!link)
		return CUDA_ERROR_OUT_OF_MEMORY;
	code = jit_init(&link->jit, options);
	if (!code)
		code = driver.link_create(link->jit.count, link->jit.ids, link->jit.values, &link->state);
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

CUresult cuda_link_add(struct backend_link *link, const struct backend_link_input *input)
{
	struct jit *own = malloc(sizeof(*own));
	void *text = NULL;
	CUresult code = own ? jit_init_input(own, input->options) : CUDA_ERROR_OUT_OF_MEMORY;

	if (!code && !fits(input->type, input->at, input->bytes))
		code = CUDA_ERROR_INVALID_IMAGE;
	if (!code && input->type == CU_JIT_INPUT_PTX)
		code = jit_text(input->at, input->bytes, &text);
	if (!code)
		code = driver.link_add(link->state, (CUjitInputType)input->type,
			text ? text : (void *)(uintptr_t)input->at, text ? input->bytes + 1 : input->bytes,
			input->name, own->count, own->ids, own->values);
	free(text);
	free(own);
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

	free(link);
	return code;
}
