// See text.h. The ring's address is part of our function's code, so there is one for each address; they are
// those of the sessions' windows, some hundred. A function is compiled when it is first needed.
//
// An image that cannot be changed is loaded as it is: what its kernels print goes to this process's standard
// output then, and so into the service's log, which is told why.

#include "server/backend/cuda/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/backend/cuda/cuda.h"
#include "server/backend/cuda/weave.h"
#include "server/log.h"

/* What the driver calls it, and we in our own code. */
#define PRINTF "vprintf"
/* Callers of a function of the driver have this many registers. */
#define REGISTERS 24u

static const char code[] =
#include "server/backend/cuda/text_ptx.inc"
	;
/* Stands in it for the ring's address. */
#define PLACE "0x1122334455667788"

struct function {
	struct function *next;
	uint64_t ring;
	struct fatbin_bytes cubin;
	struct weave_function woven; /* lies in the cubin */
};

static struct function *functions;

static CUresult compile(const char *source, struct fatbin_bytes *ret)
{
	CUjit_option option = CU_JIT_MAX_REGISTERS;
	void *value = (void *)(uintptr_t)REGISTERS, *cubin;
	CUlinkState link;
	size_t size;
	CUresult result = driver.link_create(1, &option, &value, &link);

	if (result)
		return result;
	result = driver.link_add(link, CU_JIT_INPUT_PTX, (void *)(uintptr_t)source, strlen(source) + 1,
		"printf", 0, NULL, NULL);
	if (!result)
		result = driver.link_complete(link, &cubin, &size);
	if (!result) {
		*ret = (struct fatbin_bytes){malloc(size), size};
		if (ret->at)
			memcpy(ret->at, cubin, size);
		else
			result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	driver.link_destroy(link);
	return result;
}

static struct function *function_free(struct function *function)
{
	if (function)
		free(function->cubin.at);
	free(function);
	return NULL;
}

static struct function *function_new(uint64_t ring)
{
	struct function *function = calloc(1, sizeof(*function));
	char source[sizeof(code)], address[sizeof(PLACE)], *place;

	if (!function)
		return NULL;
	memcpy(source, code, sizeof(code));
	snprintf(address, sizeof(address), "0x%016llx", (unsigned long long)ring);
	place = strstr(source, PLACE);
	log_bug_on(!place);
	memcpy(place, address, strlen(address));
	function->ring = ring;
	if (compile(source, &function->cubin) ||
		!weave_take(function->cubin.at, function->cubin.count, PRINTF, &function->woven))
		return function_free(function);
	function->next = functions;
	functions = function;
	return function;
}

static struct function *find(uint64_t ring)
{
	for (struct function *function = functions; function; function = function->next)
		if (function->ring == ring)
			return function;
	return function_new(ring);
}

CUresult cuda_text_direct(
	struct backend_text *text, const uint8_t *cubin, size_t bytes, struct fatbin_bytes *ret)
{
	struct function *function;
	CUresult result;

	if (!weave_wants(cubin, bytes, PRINTF))
		return CUDA_SUCCESS;
	function = find(text->ring);
	result = function ? weave_in(cubin, bytes, &function->woven, ret) : CUDA_ERROR_NOT_SUPPORTED;
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		return result;
	if (result)
		log_warning("what kernels of a module print cannot be directed to its program (code %d)",
			(int)result);
	else
		text->prints = true;
	return CUDA_SUCCESS;
}

void cuda_text_close(void)
{
	struct function *function;

	while ((function = functions)) {
		functions = function->next;
		function_free(function);
	}
}
