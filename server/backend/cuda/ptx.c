// See ptx.h.

#include "server/backend/cuda/ptx.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/backend/cuda/nvjit.h"

/* Of CU_JIT_TARGET: code for a single architecture, for a family of architectures. */
#define TARGET_ACCELERATED 0x10000u
#define TARGET_FAMILY	   0x20000u
/* The registers of a multiprocessor, of which a thread gets a multiple of eight. */
#define REGISTERS     65536u
#define REGISTER_UNIT 8u
#define REGISTER_MOST 255u

/* Results, from the CUDA Toolkit's documentation. */
enum {
	PTX_SUCCESS = 0,
	PTX_OUT_OF_MEMORY = 5,
	PTX_UNSUPPORTED_VERSION = 7,
	PTX_UNSUPPORTED_DEVSIDE_SYNC = 8,
};

/* ---- options ---- */

/* Of both lists, and two of ours. */
#define OPTIONS_MAX 72u

struct arguments {
	unsigned count;
	char text[OPTIONS_MAX][48];
};

static __attribute__((format(printf, 2, 3))) void add(struct arguments *arguments, const char *format, ...)
{
	va_list values;

	if (arguments->count == OPTIONS_MAX)
		return;
	va_start(values, format);
	vsnprintf(arguments->text[arguments->count++], sizeof(arguments->text[0]), format, values);
	va_end(values);
}

/* Above, there is code for a single architecture, and the driver makes that. */
#define ARCH_ACCELERATED 90u

bool ptx_stands_alone(const char *text)
{
	static const char directive[] = ".target";
	const char *at = strstr(text, directive);

	if (!at)
		return false;
	at += strlen(directive);
	at += strspn(at, " \t");
	at += strncmp(at, "sm_", 3) ? 0 : 3;
	at += strspn(at, "0123456789");
	return *at == 'a' || *at == 'f';
}

static void add_target(struct arguments *arguments, const struct ptx *ptx, uint64_t wish)
{
	const char *suffix = wish & TARGET_ACCELERATED ? "a" : wish & TARGET_FAMILY ? "f" : "";
	char target[16];

	if (!wish || wish == ptx->arch) {
		wish = ptx->arch;
		/* A whole program is made for this architecture alone, as by the driver. */
		if (ptx->is_whole || ptx_stands_alone(ptx->text))
			suffix = wish >= ARCH_ACCELERATED ? "a" : "";
	}
	snprintf(target, sizeof(target), "sm_%u%s", (unsigned)(wish & 0xffff), suffix);
	add(arguments, "--gpu-name=%s", target);
}

/* So many that a block of that many threads can be launched. */
static void add_threads(struct arguments *arguments, uint64_t threads)
{
	uint64_t registers = threads ? REGISTERS / threads / REGISTER_UNIT * REGISTER_UNIT : 0;

	if (registers && registers < REGISTER_MOST)
		add(arguments, "--maxrregcount=%u", (unsigned)registers);
}

/* Those that are not here are for texts that are not PTX, or are the driver's own affair. */
static void add_option(struct arguments *arguments, uint32_t id, uint64_t value)
{
	static const char *const caches[] = {NULL, "cg", "ca"};
	unsigned number = (unsigned)value;

	switch (id) {
	case CU_JIT_MAX_REGISTERS:
		if (number)
			add(arguments, "--maxrregcount=%u", number);
		break;
	case CU_JIT_THREADS_PER_BLOCK:
		add_threads(arguments, value);
		break;
	case CU_JIT_OPTIMIZATION_LEVEL:
		add(arguments, "--opt-level=%u", number);
		break;
	case CU_JIT_GENERATE_DEBUG_INFO:
		if (number)
			add(arguments, "--device-debug");
		break;
	case CU_JIT_LOG_VERBOSE:
		if (number)
			add(arguments, "--verbose");
		break;
	case CU_JIT_GENERATE_LINE_INFO:
		if (number)
			add(arguments, "--generate-line-info");
		break;
	case CU_JIT_CACHE_MODE:
		if (number && number < sizeof(caches) / sizeof(caches[0]))
			add(arguments, "--def-load-cache=%s", caches[number]);
		break;
	case CU_JIT_POSITION_INDEPENDENT_CODE:
		if (number)
			add(arguments, "--position-independent-code=true");
		break;
	case CU_JIT_MIN_CTA_PER_SM:
		if (number)
			add(arguments, "--minnctapersm=%u", number);
		break;
	case CU_JIT_MAX_THREADS_PER_BLOCK:
		if (number)
			add(arguments, "--maxntid=%u", number);
		break;
	case CU_JIT_OVERRIDE_DIRECTIVE_VALUES:
		if (number)
			add(arguments, "--override-directive-values");
		break;
	default:
		break;
	}
}

static bool says(const struct wire_options *options, uint32_t id)
{
	for (uint32_t i = 0; options && i < options->count; i++)
		if (options->at[i].id == id)
			return true;
	return false;
}

/* Return: the target among the options; `before` if there is none */
static uint64_t add_options(struct arguments *arguments, const struct wire_options *options,
	const struct wire_options *stronger, uint64_t before)
{
	for (uint32_t i = 0; options && i < options->count; i++) {
		const struct wire_option *option = &options->at[i];

		if (option->id == CU_JIT_TARGET)
			before = option->value;
		else if (!says(stronger, option->id))
			add_option(arguments, option->id, option->value);
	}
	return before;
}

static void fill(struct arguments *arguments, const struct ptx *ptx)
{
	uint64_t target;

	arguments->count = 0;
	/* Functions that the code calls may be in another text. */
	if (!ptx->is_whole)
		add(arguments, "--compile-only");
	target = add_options(arguments, ptx->options[0], ptx->options[1], 0);
	target = add_options(arguments, ptx->options[1], NULL, target);
	add_target(arguments, ptx, target);
}

/* ---- compiling ---- */

static CUresult code_of(int result)
{
	switch (result) {
	case PTX_SUCCESS:
		return CUDA_SUCCESS;
	case PTX_OUT_OF_MEMORY:
		return CUDA_ERROR_OUT_OF_MEMORY;
	case PTX_UNSUPPORTED_VERSION:
		return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
	case PTX_UNSUPPORTED_DEVSIDE_SYNC:
		return CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC;
	default:
		return CUDA_ERROR_INVALID_PTX;
	}
}

static CUresult take_code(nvjit_handle compiler, void **ret_code, size_t *ret_bytes)
{
	size_t bytes = 0;
	void *code;

	if (nvjit.ptx_bytes(compiler, &bytes) || !bytes)
		return CUDA_ERROR_INVALID_PTX;
	code = malloc(bytes);
	if (!code)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (nvjit.ptx_code(compiler, code)) {
		free(code);
		return CUDA_ERROR_INVALID_PTX;
	}
	*ret_code = code;
	*ret_bytes = bytes;
	return CUDA_SUCCESS;
}

static CUresult run(nvjit_handle compiler, const struct ptx *ptx)
{
	const char *list[OPTIONS_MAX];
	struct arguments arguments;

	fill(&arguments, ptx);
	for (unsigned i = 0; i < arguments.count; i++)
		list[i] = arguments.text[i];
	return code_of(nvjit.ptx_compile(compiler, (int)arguments.count, list));
}

CUresult ptx_compile(const struct ptx *ptx, struct nvjit_log *log, void **ret_code, size_t *ret_bytes)
{
	nvjit_handle compiler;
	CUresult code = code_of(nvjit.ptx_create(&compiler, strlen(ptx->text), ptx->text));

	if (code)
		return code;
	code = run(compiler, ptx);
	nvjit_take_log(&nvjit.ptx_logs, compiler, log);
	if (!code)
		code = take_code(compiler, ret_code, ret_bytes);
	nvjit.ptx_destroy(&compiler);
	return code;
}
