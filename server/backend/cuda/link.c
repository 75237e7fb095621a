// The device linker: of texts, which are compiled first, and of machine code in all the forms that
// programs hand over. The linker is a part of the driver's package (nvjit.h) and acts like the
// driver for cuLink*, without a context.
//
// All inputs of the linker stay until the link is destroyed: nothing promises that the linker drops
// all pointers to them.
//
// The linker refuses code for a single architecture, which the driver makes (measured, driver 580).
// A link of a single text needs no linker: the text is compiled once more, as a whole program.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "server/backend/cuda/cuda.h"
#include "server/backend/cuda/jit.h"
#include "server/backend/cuda/nvjit.h"
#include "server/backend/cuda/object.h"
#include "server/backend/cuda/ptx.h"
#include "server/backend/fatbin.h"
#include "server/backend/image.h"

#define LINK_OPTIONS_MAX 2u

struct code {
	SLIST_ENTRY(code) link;
	void *at;
};

struct backend_link {
	nvjit_handle linker;
	struct wire_option options[WIRE_OPTIONS_MAX];
	uint32_t option_count;
	SLIST_HEAD(, code) codes;
	struct nvjit_log log;
	void *image;
	uint32_t parts;	  /* that were added */
	char *alone;	  /* the first input, if a text; NULL: not a text */
	bool has_refused; /* contains code for a single architecture, which the linker refuses */
	bool is_broken;	  /* a text does not fit to the others: there is no image any more */
};

/* ---- begin and end ---- */

static bool wants(const struct wire_options *options, uint32_t id)
{
	for (uint32_t i = 0; options && i < options->count; i++)
		if (options->at[i].id == id)
			return options->at[i].value;
	return false;
}

static CUresult begin(struct backend_link *link, const struct wire_options *options)
{
	char arch[24];
	const char *list[LINK_OPTIONS_MAX] = {arch};
	uint32_t count = 1;

	snprintf(arch, sizeof(arch), "-arch=sm_%u", nvjit.arch);
	if (wants(options, CU_JIT_GENERATE_DEBUG_INFO))
		list[count++] = "-g";
	return nvjit.link_create(&link->linker, count, list) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

CUresult cuda_link_create(const struct wire_options *options, struct backend_link **ret_link)
{
	struct backend_link *link;
	CUresult code = jit_check_options(options);

	if (code)
		return code;
	if (!nvjit_open())
		return CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
	link = calloc(1, sizeof(*link));
	if (!link)
		return CUDA_ERROR_OUT_OF_MEMORY;
	code = begin(link, options);
	if (code) {
		free(link);
		return code;
	}
	link->option_count = options ? options->count : 0;
	if (link->option_count)
		memcpy(link->options, options->at, link->option_count * sizeof(link->options[0]));
	*ret_link = link;
	return CUDA_SUCCESS;
}

CUresult cuda_link_destroy(struct backend_link *link)
{
	struct code *code;

	nvjit.link_destroy(&link->linker);
	while ((code = SLIST_FIRST(&link->codes))) {
		SLIST_REMOVE_HEAD(&link->codes, link);
		free(code->at);
		free(code);
	}
	free(link->image);
	free(link->alone);
	free(link);
	return CUDA_SUCCESS;
}

void cuda_link_logs(const struct backend_link *link, const char **ret_errors, const char **ret_remarks)
{
	*ret_errors = link->log.errors;
	*ret_remarks = link->log.remarks;
}

/* ---- inputs ---- */

/* An input, while its parts are extracted. */
struct adding {
	struct backend_link *link;
	const struct backend_link_input *input;
	bool is_text;	   /* compiled just now, so the code itself is well-formed */
	bool stands_alone; /* a text for a single architecture */
};

/* @at: on the heap, taken over */
static CUresult add_code(const struct adding *adding, void *at, size_t bytes)
{
	struct code *code = malloc(sizeof(*code));

	if (!code) {
		free(at);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	code->at = at;
	SLIST_INSERT_HEAD(&adding->link->codes, code, link);
	if (adding->stands_alone) {
		adding->link->has_refused = true;
		return CUDA_SUCCESS;
	}
	if (!nvjit.link_add(adding->link->linker, at, bytes, adding->input->name))
		return CUDA_SUCCESS;
	adding->link->is_broken = adding->is_text;
	return adding->is_text ? CUDA_ERROR_INVALID_SOURCE : CUDA_ERROR_INVALID_IMAGE;
}

/* The linker believes the sizes in its input. */
static CUresult add_cubin(const struct adding *adding, const void *at, size_t bytes)
{
	void *copy;

	if (image_check(at, bytes) != IMAGE_ELF)
		return CUDA_ERROR_INVALID_IMAGE;
	copy = malloc(bytes);
	if (!copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(copy, at, bytes);
	return add_code(adding, copy, bytes);
}

static CUresult add_text(struct adding *adding, const void *at, size_t bytes)
{
	struct backend_link *link = adding->link;
	const struct wire_options all = {link->options, link->option_count};
	struct ptx ptx = {.options = {&all, adding->input->options}, .arch = nvjit.arch};
	void *text, *compiled;
	size_t size;
	CUresult code = jit_text(at, bytes, &text, &size);

	if (code)
		return code;
	ptx.text = text;
	code = ptx_compile(&ptx, &link->log, &compiled, &size);
	adding->is_text = true;
	adding->stands_alone = ptx_stands_alone(text);
	if (!code && !link->parts && !adding->input->options->count)
		link->alone = text;
	else
		free(text);
	return code ? code : add_code(adding, compiled, size);
}

/* The latest code for the device, or a text. Each is small enough to be unpacked (image_check()),
 * and the compiler's limit of memory holds for all together. */
static CUresult add_fatbin(void *context, const uint8_t *at, size_t bytes)
{
	struct adding *adding = context;
	struct fatbin_bytes found = {0};
	CUresult code;

	if (image_check(at, bytes) != IMAGE_FATBIN)
		return CUDA_ERROR_INVALID_IMAGE;
	code = fatbin_code(at, nvjit.arch, UINT64_MAX, &found);
	if (!code) {
		code = add_cubin(adding, found.at, found.count);
	} else if (code == CUDA_ERROR_NO_BINARY_FOR_GPU) {
		code = fatbin_text(at, nvjit.arch, UINT64_MAX, &found);
		if (!code)
			code = add_text(adding, (const char *)found.at, found.count);
	}
	free(found.at);
	return code;
}

static CUresult add_object(void *context, const uint8_t *at, size_t bytes)
{
	struct adding *adding = context;

	if (image_check(at, bytes) != IMAGE_ELF)
		return CUDA_ERROR_INVALID_IMAGE;
	if (object_is_device_code(at))
		return add_cubin(adding, at, bytes);
	return object_each_fatbin(at, add_fatbin, adding);
}

static CUresult add(struct adding *adding)
{
	const struct backend_link_input *input = adding->input;

	switch (input->type) {
	case CU_JIT_INPUT_PTX:
		return add_text(adding, input->at, input->bytes);
	case CU_JIT_INPUT_CUBIN:
		return add_cubin(adding, input->at, input->bytes);
	case CU_JIT_INPUT_FATBINARY:
		return add_fatbin(adding, input->at, input->bytes);
	case CU_JIT_INPUT_OBJECT:
		return add_object(adding, input->at, input->bytes);
	case CU_JIT_INPUT_LIBRARY:
		if (!image_is_archive(input->at, input->bytes))
			return CUDA_ERROR_INVALID_IMAGE;
		return object_each_member(input->at, input->bytes, add_object, adding);
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

CUresult cuda_link_add(struct backend_link *link, const struct backend_link_input *input)
{
	struct adding adding = {.link = link, .input = input};
	CUresult code = jit_check_options(input->options);

	if (!code)
		code = add(&adding);
	link->parts += !code;
	return code;
}

/* ---- the image ---- */

/* The text has been compiled before, so its messages are known. */
static CUresult finish_alone(struct backend_link *link, size_t *ret_bytes)
{
	const struct wire_options all = {link->options, link->option_count};
	const struct ptx ptx = {.text = link->alone, .options = {&all}, .arch = nvjit.arch, .is_whole = true};
	struct nvjit_log *said = calloc(1, sizeof(*said));
	CUresult code = said ? ptx_compile(&ptx, said, &link->image, ret_bytes) : CUDA_ERROR_OUT_OF_MEMORY;

	/* A function that the code calls is missing. */
	if (code == CUDA_ERROR_INVALID_PTX) {
		memcpy(&link->log, said, sizeof(*said));
		code = CUDA_ERROR_INVALID_SOURCE;
	}
	free(said);
	return code;
}

static CUresult finish(struct backend_link *link, size_t *ret_bytes)
{
	size_t bytes = 0;

	if (link->is_broken)
		return CUDA_ERROR_INVALID_SOURCE;
	if (link->parts == 1 && link->alone)
		return finish_alone(link, ret_bytes);
	if (link->has_refused)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (nvjit.link_finish(link->linker) || nvjit.link_bytes(link->linker, &bytes) || !bytes)
		return CUDA_ERROR_UNKNOWN;
	link->image = malloc(bytes);
	if (!link->image)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret_bytes = bytes;
	return nvjit.link_code(link->linker, link->image) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

CUresult cuda_link_complete(struct backend_link *link, const void **ret_image, size_t *ret_bytes)
{
	CUresult code = link->image ? CUDA_ERROR_INVALID_VALUE : finish(link, ret_bytes);

	nvjit_take_log(&nvjit.link_logs, link->linker, &link->log);
	if (!code)
		*ret_image = link->image;
	return code;
}
