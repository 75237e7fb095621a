// Modules. The service loads most images itself (loader.h), which waits for nothing; the rest
// become libraries of the driver. Executors run with CUDA_MODULE_LOADING=LAZY (server/role.c); the
// driver's work at each call, measured:
//   - cuLibraryLoadData, the device linker, and all calls that only read their results (names, the
//     kernel of a name) block nobody, even where they compile;
//   - the first use of the library in the context waits until all issued work has ended, and every
//     launch waits meanwhile; so does cuLibraryUnload;
//   - after that the first call that asks for a kernel's function or parameters (not for its
//     attributes) puts the kernel on the device, in some 60 us and without a wait in the call. But
//     launches by anybody after that call begin only when all work issued before has ended: never,
//     beside a kernel without end. Variables are there from the first use on, and asking for them
//     costs nothing.
// So a load needs no gap, and the first lookup of each function does; in the gap of a library's
// first use its kernels are put on the device as well, if they are few. The addresses of variables
// depend on nothing but the order in which libraries are first used, and the standby makes the same
// lookups.
//
// An image that must be compiled first (text, fat binaries without code for the device) never
// reaches the driver here, which crashes at some. A compiler process (server/compiler/) passes such
// images to the device linker, which reports errors of a text at once; loading the text as a
// library does not.

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/backend/cubin.h"
#include "server/backend/cuda/condition.h"
#include "server/backend/cuda/code.h"
#include "server/backend/cuda/cuda.h"
#include "server/backend/cuda/debugger.h"
#include "server/backend/cuda/exception.h"
#include "server/backend/cuda/jit.h"
#include "server/backend/cuda/loader.h"
#include "server/backend/cuda/text.h"
#include "server/backend/image.h"
#include "server/backend/relocate.h"
#include "server/bytes.h"
#include "server/log.h"

/* Of a library with no more kernels than this all are put on the device with the first: 60 us each,
 * as long as a gap is used for lookups that wait (GATE_BATCH_NS). */
#define KERNELS_FEW 8u

struct backend_module {
	struct loader_module *own; /* loaded by the service; NULL: by the driver, which has: */
	CUlibrary library;
	CUmodule module;	     /* the library in this context; NULL: not in use yet */
	struct cuda_kernel *kernels; /* all, in the driver's order */
	unsigned int count;
	struct code_facts facts;
	struct statics statics;
	struct relocate_plan moved; /* variables that are in the client's memory, in a block at: */
	uint64_t moved_to;
};

/* ---- load and unload ---- */

unsigned cuda_arch(void)
{
	int major = 0, minor = 0;

	if (driver.device_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, cuda.device) ||
		driver.device_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, cuda.device))
		return 0;
	return (unsigned)(major * 10 + minor);
}

static struct backend_module *module_free(struct backend_module *module)
{
	if (module) {
		free(module->kernels);
		code_facts_deinit(&module->facts);
		statics_deinit(&module->statics);
		relocate_deinit(&module->moved);
	}
	free(module);
	return NULL;
}

static CUresult drop(struct backend_module *module)
{
	CUresult code;

	code_forget(module);
	loader_unload(module->own);
	code = module->library ? driver.library_unload(module->library) : CUDA_SUCCESS;
	module_free(module);
	return code;
}

static CUresult list_kernels(struct backend_module *module)
{
	CUresult code = driver.library_count(&module->count, module->library);
	CUkernel *all;

	if (code || !module->count)
		return code;
	all = calloc(module->count, sizeof(all[0]));
	module->kernels = calloc(module->count, sizeof(module->kernels[0]));
	code = all && module->kernels ? driver.library_kernels(all, module->count, module->library)
				      : CUDA_ERROR_OUT_OF_MEMORY;
	for (unsigned i = 0; !code && i < module->count; i++)
		module->kernels[i].kernel = all[i];
	free(all);
	return code;
}

struct look {
	struct backend_text *text; /* NULL: not ours to direct */
	struct statics *statics;
	struct code_facts *facts;
	uint64_t room;		     /* as in struct backend_load */
	struct relocate_plan *moved; /* NULL: variables stay in the context */
	uint64_t moved_to;	     /* 0: variables are only looked for */
	bool only_plans;	     /* there will be another look */
	struct fatbin_bytes latest;  /* the latest cubin, in the form to load */
	uint32_t count;		     /* of cubins that the driver could choose */
};

/* Takes over the replacement of a cubin. */
static void replace(struct fatbin_bytes *now, struct fatbin_bytes by)
{
	if (!by.at)
		return;
	free(now->at);
	*now = by;
}

/* The driver gets the cubin without a length. Not CUDA_ERROR_INVALID_IMAGE: that is for images that
 * cannot be unpacked. */
static CUresult check(const void *cubin, size_t bytes)
{
	return image_check(cubin, bytes) == IMAGE_ELF ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

/* For the service's own loader, which accepts a single cubin. */
static CUresult keep(struct look *look, const uint8_t *cubin, size_t bytes)
{
	free(look->latest.at);
	look->latest = (struct fatbin_bytes){malloc(bytes), bytes};
	if (!look->latest.at)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(look->latest.at, cubin, bytes);
	look->count++;
	return CUDA_SUCCESS;
}

/* fatbin_visit, for checked images. A replacement is checked again: tables that are written to may
 * overlap its headers. */
static CUresult look_at(void *context, const uint8_t *cubin, size_t bytes, struct fatbin_bytes *ret)
{
	struct look *look = context;
	struct fatbin_bytes moved = {0}, directed = {0};
	CUresult code = CUDA_SUCCESS;

	if (look->moved && look->moved_to)
		code = relocate_move(look->moved, look->moved_to, cubin, bytes, &moved);
	else if (look->moved)
		relocate_look(look->moved, cubin, bytes);
	if (look->only_plans)
		return CUDA_SUCCESS;
	if (moved.at) {
		cubin = moved.at;
		bytes = moved.count;
	}
	if (!code)
		cubin_add_statics(look->statics, cubin, bytes);
	if (!code && look->text)
		code = cuda_text_direct(look->text, cubin, bytes, &directed);
	replace(&moved, directed);
	directed = (struct fatbin_bytes){0};
	if (!code && look->text)
		code = cuda_condition_direct(
			moved.at ? moved.at : cubin, moved.at ? moved.count : bytes, &directed);
	replace(&moved, directed);
	if (!code && moved.at)
		code = check(moved.at, moved.count);
	if (code) {
		free(moved.at);
		return code;
	}
	if (moved.at) {
		cubin = moved.at;
		bytes = moved.count;
	}
	code_facts_add(look->facts, cubin, bytes);
	*ret = moved;
	return keep(look, cubin, bytes);
}

/* fatbin_visit: of a fat binary only the outer structure was checked. */
static CUresult look_at_member(void *context, const uint8_t *cubin, size_t bytes, struct fatbin_bytes *ret)
{
	CUresult code = check(cubin, bytes);

	return code ? code : look_at(context, cubin, bytes, ret);
}

/* Each cubin of the image that the driver may choose. @ret: the replacement */
static CUresult look_at_all(struct look *look, const void *image, size_t bytes, struct fatbin_bytes *ret)
{
	CUresult code;

	if (image_check(image, bytes) != IMAGE_FATBIN)
		return look_at(look, image, bytes, ret);
	code = fatbin_rewrite(image, cuda_arch(), look->room, look_at_member, look, ret);
	if (code != CUDA_ERROR_INVALID_IMAGE)
		return code;
	log_warning("a module cannot be unpacked, or would become too large: the output of its kernels "
		    "does not reach its program");
	statics_add_more(look->statics, "its image cannot be unpacked");
	/* No cubin is changed then: the plan for the cubins before is void. */
	if (look->moved)
		relocate_deinit(look->moved);
	return CUDA_SUCCESS;
}

static void look_anew(struct look *look, struct fatbin_bytes *ret)
{
	statics_deinit(look->statics);
	*look->statics = (struct statics){0};
	free(ret->at);
	*ret = (struct fatbin_bytes){0};
	look->count = 0;
}

/*
 * Moves all variables that the first look has planned to move.
 * @ret: the replacement so far, and the final replacement
 * Return: CUDA_ERROR_NOT_READY: without a block
 */
static CUresult move_variables(struct look *look, struct backend_variables *variables, const void *image,
	size_t bytes, struct fatbin_bytes *ret)
{
	CUresult code;

	relocate_lay_out(look->moved);
	variables->bytes = look->moved->bytes;
	variables->is_managed = look->moved->is_managed;
	if (!variables->at)
		return variables->bytes ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
	if (!variables->bytes)
		look->moved = NULL;
	look->moved_to = variables->at;
	look->only_plans = false;
	code = look_at_all(look, image, bytes, ret);
	if (code == CUDA_ERROR_NOT_SUPPORTED && look->moved) {
		relocate_deinit(look->moved);
		look->moved = NULL;
		variables->bytes = 0;
		look_anew(look, ret);
		code = look_at_all(look, image, bytes, ret);
	}
	if (!code && look->moved) {
		variables->bytes = look->moved->bytes;
		variables->first = look->moved->first;
		look->moved->first = NULL;
	}
	return code;
}

/* By the service's own loader. CUDA_ERROR_NOT_SUPPORTED: for the driver to load */
static CUresult load_here(struct backend_module *module, struct look *look, struct backend_load *load)
{
	enum load_reason why = LOAD_REASON_SEVERAL;
	CUresult code = CUDA_ERROR_NOT_SUPPORTED;

	if (look->count == 1)
		code = loader_load(&look->latest, module, load, &module->own, &why);
	if (!code) {
		look->latest.at = NULL; /* the loader's */
	} else if (code == CUDA_ERROR_NOT_SUPPORTED) {
		load->reason = why;
		log_info("the driver loads a module, which waits for running kernels: %s",
			load_reason_text(why));
	}
	return code;
}

static CUresult load_by_driver(struct backend_module *module, struct backend_load *load, const void *image)
{
	CUresult code = driver.library_load(&module->library, image, NULL, NULL, 0, NULL, NULL, 0);

	load->code = WIRE_CODE_OF_DRIVER;
	return code ? code : list_kernels(module);
}

/* At its former place; reloading uses the same loader. */
static CUresult load_anywhere(
	struct backend_module *module, struct look *look, struct backend_load *load, const void *image)
{
	CUresult code =
		load->code == WIRE_CODE_OF_DRIVER ? CUDA_ERROR_NOT_SUPPORTED : load_here(module, look, load);

	if (code == CUDA_ERROR_NOT_SUPPORTED && load->code <= WIRE_CODE_OF_DRIVER)
		code = load_by_driver(module, load, image);
	return code;
}

/* The driver unpacks as well, without a bound. */
static CUresult measure(struct backend_load *load)
{
	if (image_check(load->image, load->bytes) == IMAGE_FATBIN)
		load->unpacked = fatbin_unpacks_to(load->image, cuda_arch());
	if (load->unpacked <= load->room)
		return CUDA_SUCCESS;
	log_info("a module is refused: its code unpacks to %s, and image_limit has room for %s",
		BYTES_OF(load->unpacked), BYTES_OF(load->room));
	if (load->log)
		snprintf(load->log, load->log_bytes,
			"its code unpacks to %s, and the service's image_limit has room for %s",
			BYTES_OF(load->unpacked), BYTES_OF(load->room));
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* @image: with code for the device */
static CUresult load_code(struct backend_module *module, struct backend_load *load)
{
	struct backend_variables *variables = load->variables;
	/* With a block there is most likely something to move, which needs a look of its own. */
	struct look look = {.text = load->text,
		.statics = &module->statics,
		.facts = &module->facts,
		.room = load->room,
		.moved = variables ? &module->moved : NULL,
		.only_plans = variables && variables->at};
	struct fatbin_bytes changed = {0};
	CUresult code = measure(load);

	if (!code)
		code = look_at_all(&look, load->image, load->bytes, &changed);
	if (!code && variables)
		code = move_variables(&look, variables, load->image, load->bytes, &changed);
	module->moved_to = look.moved_to;
	code_facts_sort(&module->facts);
	if (!code)
		code = load_anywhere(module, &look, load, changed.at ? changed.at : load->image);
	free(look.latest.at);
	free(changed.at);
	return code;
}

static bool is_source(const void *image, size_t bytes)
{
	enum image_kind kind = image_check(image, bytes);

	return kind == IMAGE_TEXT || (kind == IMAGE_FATBIN && !image_has_code(image, bytes, cuda_arch()));
}

/* Without options: they are for a compiler, and the driver may write to log buffers as late as at
 * the use of the library. */
static CUresult make(struct backend_load *load, struct backend_module **ret_module)
{
	struct backend_module *module = calloc(1, sizeof(*module));
	CUresult code = module ? load_code(module, load) : CUDA_ERROR_OUT_OF_MEMORY;

	if (!code)
		*ret_module = module;
	else if (module)
		drop(module);
	return code;
}

CUresult cuda_module_load(struct backend_load *load, struct backend_module **ret_module)
{
	enum image_kind kind = image_check(load->image, load->bytes);
	CUresult code;

	if (load->log && load->log_bytes)
		load->log[0] = '\0';
	if (kind == IMAGE_BAD)
		return CUDA_ERROR_INVALID_IMAGE;
	if (kind == IMAGE_ELF && !image_has_code(load->image, load->bytes, cuda_arch()))
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	if (is_source(load->image, load->bytes))
		return CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
	/* Refused are the same options with and without a compiler. */
	code = jit_check_options(load->options);
	return code ? code : make(load, ret_module);
}

CUresult cuda_module_unload(struct backend_module *module)
{
	return drop(module);
}

bool cuda_module_waits(const struct backend_module *module)
{
	return !module->own;
}

const struct statics *cuda_module_statics(const struct backend_module *module)
{
	return &module->statics;
}

/* ---- functions ---- */

#define CODE_BYTES 16u /* of an instruction */

static void note_code(struct backend_module *module, const struct cuda_kernel *kernel)
{
	/* Without `more` its kernels call no function of the driver with a state (cubin.c). */
	struct code code = {.module = module, .calls = module->statics.more != NULL};
	const char *name;

	if (!exception_is_ours() || driver.kernel_name(&name, kernel->kernel))
		return;
	code.entry = cuda_function_entry(kernel->function);
	code.bytes = code_length(&module->facts, name);
	if (debugger_has(code.entry, CODE_BYTES))
		code_note(&code, name);
	else
		log_debug("where kernel %.80s lies is not known", name);
}

/* In a gap. Loads the kernel, should asking for the function not have put it on the device. */
static CUresult settle(struct backend_module *module, struct cuda_kernel *kernel)
{
	CUfunction function;
	CUresult code = driver.kernel_function(&function, kernel->kernel);

	if (!code)
		code = driver.function_load(function);
	if (code)
		return code;
	kernel->function = function;
	note_code(module, kernel);
	return CUDA_SUCCESS;
}

/* The library's first use in the context. A failure for one of its kernels is reported at that
 * kernel's lookup. */
static CUresult use(struct backend_module *module, bool gap)
{
	CUresult code;

	if (module->module)
		return CUDA_SUCCESS;
	code = gap ? driver.library_module(&module->module, module->library) : CUDA_ERROR_NOT_READY;
	if (code)
		return code;
	for (unsigned i = 0; module->count <= KERNELS_FEW && i < module->count; i++)
		if (!module->kernels[i].function)
			settle(module, &module->kernels[i]);
	return CUDA_SUCCESS;
}

static CUresult find_function(
	struct backend_module *module, CUkernel wanted, bool gap, struct cuda_kernel **ret_kernel)
{
	CUresult code = CUDA_SUCCESS;
	unsigned i = 0;

	while (i < module->count && module->kernels[i].kernel != wanted)
		i++;
	if (i == module->count)
		return CUDA_ERROR_NOT_FOUND;
	if (!module->kernels[i].function)
		code = gap ? settle(module, &module->kernels[i]) : CUDA_ERROR_NOT_READY;
	*ret_kernel = &module->kernels[i];
	return code;
}

/* The driver ends the list of parameters with CUDA_ERROR_INVALID_VALUE. */
static CUresult read_params(CUfunction function, struct backend_function_info *info)
{
	size_t offset, size;
	uint32_t i;

	info->argument_bytes = 0;
	for (i = 0; i < BACKEND_PARAMS_MAX; i++) {
		CUresult code = driver.function_param(function, i, &offset, &size);

		if (code == CUDA_ERROR_INVALID_VALUE)
			break;
		if (code)
			return code;
		if (offset > FRMPS_ARGUMENT_MAX || size > FRMPS_ARGUMENT_MAX - offset)
			return CUDA_ERROR_NOT_SUPPORTED;
		info->params[i].offset = (uint32_t)offset;
		info->params[i].size = (uint32_t)size;
		if (offset + size > info->argument_bytes)
			info->argument_bytes = (uint32_t)(offset + size);
	}
	info->param_count = i;
	return CUDA_SUCCESS;
}

static CUresult describe(const struct backend_module *module, CUfunction function, const char *name,
	struct backend_function_info *info)
{
	CUresult code = read_params(function, info);

	if (code)
		return code;
	info->shape = code_shape(&module->facts, name);
	for (int i = 0; i < (int)BACKEND_FUNC_ATTRS; i++) {
		int value = 0;

		info->attributes[i] =
			driver.function_attribute(&value, (CUfunction_attribute)i, function) ? 0 : value;
	}
	return CUDA_SUCCESS;
}

/* So that no launch waits for local memory, and nobody for that launch. Memory that cannot be had
 * ahead (memory is short) is requested by the launch itself. */
static CUresult prepare_local_memory(int bytes, bool gap)
{
	CUresult code;

	if (cuda_has_room(bytes))
		return CUDA_SUCCESS;
	if (!gap)
		return CUDA_ERROR_NOT_READY;
	code = cuda_make_room(bytes);
	return backend_is_fatal(code) ? code : CUDA_SUCCESS;
}

static int local_bytes(const struct backend_module *module, const struct backend_function_info *info)
{
	int bytes = info->attributes[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES];

	return module->statics.nests && bytes < CUDA_NESTED_ROOM ? CUDA_NESTED_ROOM : bytes;
}

/* The same for the needs of functions of the driver. */
static CUresult prepare_calls(const struct backend_module *module, bool gap)
{
	CUresult code;

	if ((!module->statics.calls && !module->statics.more) || cuda_has_calls())
		return CUDA_SUCCESS;
	if (!gap)
		return CUDA_ERROR_NOT_READY;
	code = cuda_make_calls();
	return backend_is_fatal(code) ? code : CUDA_SUCCESS;
}

CUresult cuda_function_find(struct backend_module *module, const char *name, bool gap,
	struct backend_function **ret_function, struct backend_function_info *ret_info)
{
	struct cuda_kernel *found = NULL;
	CUkernel kernel;
	CUresult code;

	if (module->own) {
		code = loader_find(module->own, name, ret_function, ret_info);
		return code ? code : prepare_local_memory((int)cuda_kernel(*ret_function)->own->local, gap);
	}
	code = driver.library_kernel(&kernel, module->library, name);
	if (!code)
		code = use(module, gap);
	if (!code)
		code = find_function(module, kernel, gap, &found);
	if (!code)
		code = describe(module, found->function, name, ret_info);
	if (!code)
		code = prepare_local_memory(local_bytes(module, ret_info), gap);
	if (!code)
		code = prepare_calls(module, gap);
	if (code)
		return code;
	*ret_function = (struct backend_function *)(void *)found;
	return CUDA_SUCCESS;
}

static CUresult list_own(
	const struct loader_module *own, uint32_t from, const char **ret_names, uint32_t *count)
{
	uint32_t all = loader_count(own);

	for (uint32_t i = from; i < all && i - from < *count; i++)
		ret_names[i - from] = loader_name(own, i);
	*count = all;
	return CUDA_SUCCESS;
}

CUresult cuda_function_list(
	struct backend_module *module, uint32_t from, const char **ret_names, uint32_t *count)
{
	if (module->own)
		return list_own(module->own, from, ret_names, count);
	for (uint32_t i = from; i < module->count && i - from < *count; i++) {
		CUresult code = driver.kernel_name(&ret_names[i - from], module->kernels[i].kernel);

		if (code)
			return code;
	}
	*count = module->count;
	return CUDA_SUCCESS;
}

static CUresult find_in_context(
	struct backend_module *module, const char *name, bool gap, struct backend_global *ret_global)
{
	CUdeviceptr address;
	size_t bytes;
	CUresult code;

	if (module->own)
		return loader_global(module->own, name, ret_global);
	code = use(module, gap);
	if (!code)
		code = driver.library_global(&address, &bytes, module->library, name);
	if (!code)
		*ret_global = (struct backend_global){.address = address, .bytes = bytes};
	return code;
}

CUresult cuda_global_find(
	struct backend_module *module, const char *name, bool gap, struct backend_global *ret_global)
{
	const struct relocate_variable *moved = relocate_find(&module->moved, name);
	struct backend_global found = {.bytes = moved ? moved->bytes : 0};
	CUresult code = CUDA_SUCCESS;

	if (!moved || moved->is_constant)
		code = find_in_context(module, name, gap, &found);
	/* A variable larger than in the file would have no mirror. */
	if (!code && moved && found.bytes != moved->bytes)
		code = CUDA_ERROR_NOT_SUPPORTED;
	if (code)
		return code;
	*ret_global = found;
	if (moved) {
		ret_global->address = module->moved_to + moved->offset;
		ret_global->constant = found.address;
	}
	return CUDA_SUCCESS;
}

CUresult cuda_function_set(struct backend_function *function, uint32_t attribute, int64_t value)
{
	if (cuda_kernel(function)->own)
		return loader_set(cuda_kernel(function)->own, attribute, value);
	if (value < INT_MIN || value > INT_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	if (attribute == 1000)
		return driver.function_set_cache(cuda_function(function), (CUfunc_cache)value);
	if (attribute >= BACKEND_FUNC_ATTRS)
		return CUDA_ERROR_INVALID_VALUE;
	return driver.function_set_attribute(
		cuda_function(function), (CUfunction_attribute)attribute, (int)value);
}
