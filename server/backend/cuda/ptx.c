// See ptx.h.

#include "server/backend/cuda/ptx.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/backend/cuda/driver.h"

#define LIBRARY "libnvidia-ptxjitcompiler.so.1"
/* Of CU_JIT_TARGET: code for one architecture alone, for a family of them. */
#define TARGET_ACCELERATED 0x10000u
#define TARGET_FAMILY	   0x20000u
/* The registers of a multiprocessor, of which a thread gets a multiple of eight. */
#define REGISTERS     65536u
#define REGISTER_UNIT 8u
#define REGISTER_MOST 255u

/* Results, as the CUDA Toolkit documents them. */
enum {
	PTX_SUCCESS = 0,
	PTX_OUT_OF_MEMORY = 5,
	PTX_UNSUPPORTED_VERSION = 7,
	PTX_UNSUPPORTED_DEVSIDE_SYNC = 8,
};

typedef void *handle;

static struct {
	bool tried;
	int (*create)(handle *ret, size_t bytes, const char *text);
	int (*compile)(handle compiler, int count, const char *const *options);
	int (*destroy)(handle *compiler);
	int (*code_bytes)(handle compiler, size_t *ret);
	int (*code)(handle compiler, void *ret);
	int (*error_bytes)(handle compiler, size_t *ret);
	int (*errors)(handle compiler, char *ret);
	int (*remark_bytes)(handle compiler, size_t *ret);
	int (*remarks)(handle compiler, char *ret);
} library;

static const struct {
	const char *name;
	void *function;
} functions[] = {
	{"nvPTXCompilerCreate", &library.create},
	{"nvPTXCompilerCompile", &library.compile},
	{"nvPTXCompilerDestroy", &library.destroy},
	{"nvPTXCompilerGetCompiledProgramSize", &library.code_bytes},
	{"nvPTXCompilerGetCompiledProgram", &library.code},
	{"nvPTXCompilerGetErrorLogSize", &library.error_bytes},
	{"nvPTXCompilerGetErrorLog", &library.errors},
	{"nvPTXCompilerGetInfoLogSize", &library.remark_bytes},
	{"nvPTXCompilerGetInfoLog", &library.remarks},
};

static bool resolve(void *opened)
{
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		void *function = dlsym(opened, functions[i].name);

		if (!function)
			return false;
		memcpy(functions[i].function, &function, sizeof(function));
	}
	return true;
}

void ptx_open(void)
{
	void *opened = library.tried ? NULL : driver_library(LIBRARY);

	library.tried = true;
	if (opened && !resolve(opened))
		library.create = NULL;
}

/* ---- options ---- */

#define OPTIONS_MAX 40u

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

/* As the driver does: for this architecture alone, where there is such code. */
#define ARCH_ACCELERATED 90u

static void add_target(struct arguments *arguments, const struct ptx *ptx, uint64_t wish)
{
	if (!wish)
		add(arguments, "--gpu-name=sm_%u%s", ptx->arch, ptx->arch >= ARCH_ACCELERATED ? "a" : "");
	else
		add(arguments, "--gpu-name=sm_%u%s", (unsigned)(wish & 0xffff),
			wish & TARGET_ACCELERATED ? "a"
			: wish & TARGET_FAMILY	  ? "f"
						  : "");
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

static void fill(struct arguments *arguments, const struct ptx *ptx)
{
	const struct wire_options *options = ptx->options;
	uint64_t target = 0;

	arguments->count = 0;
	for (uint32_t i = 0; options && i < options->count; i++) {
		if (options->at[i].id == CU_JIT_TARGET)
			target = options->at[i].value;
		else
			add_option(arguments, options->at[i].id, options->at[i].value);
	}
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

/* A log without its end where it is too long. */
static void take_log(handle compiler, int (*size)(handle, size_t *), int (*get)(handle, char *), char *log)
{
	size_t bytes = 0;
	char *whole;

	log[0] = '\0';
	if (size(compiler, &bytes) || !bytes)
		return;
	whole = calloc(1, bytes + 1);
	if (whole && !get(compiler, whole))
		snprintf(log, PTX_LOG_BYTES, "%s", whole);
	free(whole);
}

static CUresult take_code(handle compiler, struct ptx_result *result)
{
	if (library.code_bytes(compiler, &result->bytes) || !result->bytes)
		return CUDA_ERROR_INVALID_PTX;
	result->code = malloc(result->bytes);
	if (!result->code)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!library.code(compiler, result->code))
		return CUDA_SUCCESS;
	free(result->code);
	result->code = NULL;
	return CUDA_ERROR_INVALID_PTX;
}

static CUresult run(handle compiler, const struct ptx *ptx, struct ptx_result *result)
{
	const char *list[OPTIONS_MAX];
	struct arguments arguments;
	CUresult code;

	fill(&arguments, ptx);
	for (unsigned i = 0; i < arguments.count; i++)
		list[i] = arguments.text[i];
	code = code_of(library.compile(compiler, (int)arguments.count, list));
	take_log(compiler, library.error_bytes, library.errors, result->errors);
	take_log(compiler, library.remark_bytes, library.remarks, result->remarks);
	return code ? code : take_code(compiler, result);
}

CUresult ptx_compile(const struct ptx *ptx, struct ptx_result *result)
{
	handle compiler;
	CUresult code;

	*result = (struct ptx_result){0};
	ptx_open();
	if (!library.create)
		return CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
	code = code_of(library.create(&compiler, strlen(ptx->text), ptx->text));
	if (code)
		return code;
	code = run(compiler, ptx, result);
	library.destroy(&compiler);
	return code;
}
