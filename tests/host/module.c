// Modules: shared objects in memfds. Each load makes a memfd of its own, and the dynamic linker
// takes every inode for a different library, so each load has its own globals. The linker also
// remembers libraries by name, and the descriptor is part of the name: the descriptor stays open as
// long as the library is loaded, so no two have the same.
//
// Nothing here needs a gap. A module with HOST_WAITS needs a gap where a module of a driver does:
// at a function's first lookup, and at that of a global in the context. So the executor and the
// tests see both kinds.
//
// A module's code runs inside the executor with all its rights. The executors of a service that is
// root have the rights of their user (server/identity.h).

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/host/host.h"
#include "server/backend/image.h"
#include "server/backend/statics.h"
#include "shm/text.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

/* Of blocks. */
#define BLOCK_HEAD 256u
#define BLOCK_UNIT 256u

struct backend_module {
	int fd;
	void *library;
	const struct host_global_table *tables[2]; /* globals, variables; NULL: none */
	const struct host_moved_table *moved;	   /* NULL: none */
	const struct host_global_table *constants; /* NULL: none */
	uint64_t mirrors;			   /* address of the constants' mirrors; 0: none */
	struct statics statics;
	bool waits;
	uint32_t count;
	struct host_function functions[];
};

static int make_memfd(const void *image, size_t bytes)
{
	int fd = memfd_create("frmps-module", MFD_CLOEXEC | MFD_EXEC);
	size_t done = 0;

	if (fd < 0) /* a kernel that does not know MFD_EXEC needs none */
		fd = memfd_create("frmps-module", MFD_CLOEXEC);
	while (fd >= 0 && done < bytes) {
		ssize_t written = write(fd, (const char *)image + done, bytes - done);

		if (written <= 0) {
			close(fd);
			return -1;
		}
		done += (size_t)written;
	}
	return fd;
}

static void say(char *log, size_t log_bytes, const char *text)
{
	if (log && log_bytes)
		snprintf(log, log_bytes, "%s", text ? text : "");
}

/* Parameters ascend, do not overlap and fit a launch. */
static bool check_params(const struct host_kernel *kernel, uint32_t *ret_bytes)
{
	uint32_t end = 0;

	if (kernel->param_count > BACKEND_PARAMS_MAX || (kernel->param_count && !kernel->params))
		return false;
	for (uint32_t i = 0; i < kernel->param_count; i++) {
		const struct host_param *param = &kernel->params[i];

		if (param->offset < end || !param->size || param->offset > FRMPS_ARGUMENT_MAX ||
			param->size > FRMPS_ARGUMENT_MAX - param->offset)
			return false;
		end = param->offset + param->size;
	}
	*ret_bytes = end;
	return true;
}

static void set_attributes(int32_t *attributes, const struct host_kernel *kernel)
{
	attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = HOST_THREADS_MAX;
	attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] = 32;
	attributes[CU_FUNC_ATTRIBUTE_PTX_VERSION] = 90;
	attributes[CU_FUNC_ATTRIBUTE_BINARY_VERSION] = 90;
	attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = HOST_SHARED_DEFAULT;
	attributes[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = CU_SHAREDMEM_CARVEOUT_DEFAULT;
	attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] = kernel->alone;
	attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT] = kernel->alone;
	attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH] = kernel->alone;
}

static struct backend_module *read_tables(void *library)
{
	const struct host_kernel_table *kernels = dlsym(library, "frmps_host_kernels");
	const struct host_global_table *globals = dlsym(library, "frmps_host_globals");
	const struct host_global_table *variables = dlsym(library, "frmps_host_variables");
	const struct host_moved_table *moved = dlsym(library, "frmps_host_moved");
	const struct host_global_table *constants = dlsym(library, "frmps_host_constants");
	struct backend_module *module;

	if (!kernels || kernels->magic != HOST_KERNEL_MAGIC ||
		(globals && globals->magic != HOST_KERNEL_MAGIC) ||
		(variables && variables->magic != HOST_KERNEL_MAGIC) ||
		(moved && moved->magic != HOST_KERNEL_MAGIC) ||
		(constants && constants->magic != HOST_KERNEL_MAGIC))
		return NULL;
	module = calloc(1, sizeof(*module) + kernels->count * sizeof(module->functions[0]));
	if (!module)
		return NULL;
	module->library = library;
	module->tables[0] = globals;
	module->tables[1] = variables;
	module->moved = moved;
	module->constants = constants;
	module->waits = dlsym(library, "frmps_host_waits");
	module->count = kernels->count;
	for (uint32_t i = 0; i < kernels->count; i++) {
		struct host_function *function = &module->functions[i];

		function->kernel = &kernels->kernels[i];
		function->module = module;
		set_attributes(function->attributes, function->kernel);
		if (!check_params(function->kernel, &function->argument_bytes)) {
			free(module);
			return NULL;
		}
	}
	return module;
}

static void note_statics(struct backend_module *module)
{
	const struct host_global_table *variables = module->tables[1];

	for (uint32_t i = 0; variables && i < variables->count; i++)
		statics_add(&module->statics, variables->globals[i].name, variables->globals[i].bytes);
	for (uint32_t i = 0; i < module->count; i++)
		if (module->functions[i].kernel->keeps)
			statics_add_kernel(&module->statics, module->functions[i].kernel->name);
}

/* Sets the destination of output in a module with kernels that print (print.h). */
static void direct_text(void *library, struct backend_text *text)
{
	struct shm_text **variable = dlsym(library, "frmps_host_text");

	if (!variable || !text)
		return;
	*variable = (struct shm_text *)(uintptr_t)text->ring;
	text->uses |= SHM_TEXT_PRINTS;
}

/* A library that the linker does not unload (it may) retains its name too: then the descriptor must
 * not be used again. */
static void unload(void *library, int fd)
{
	char path[64];
	void *kept;

	dlclose(library);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	kept = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
	if (kept)
		dlclose(kept);
	else
		close(fd);
}

/* ---- variables that move ---- */

static uint64_t in_units(uint64_t bytes)
{
	return (bytes + BLOCK_UNIT - 1) / BLOCK_UNIT * BLOCK_UNIT;
}

/* In a block. @ret_offset: of a variable; count: of the end */
static uint64_t moved_offset(const struct host_moved_table *table, uint32_t count)
{
	uint64_t offset = BLOCK_HEAD;

	for (uint32_t i = 0; i < count; i++)
		offset += in_units(table->variables[i].bytes);
	return offset;
}

/* Behind where the mirrors begin: the same. */
static uint64_t mirror_offset(const struct host_global_table *table, uint32_t count)
{
	uint64_t offset = 0;

	for (uint32_t i = 0; i < count; i++)
		offset += in_units(table->globals[i].bytes);
	return offset;
}

static void fill_block(
	const struct backend_module *module, const struct backend_variables *variables, uint64_t mirrors)
{
	for (uint32_t i = 0; module->moved && i < module->moved->count; i++) {
		const struct host_moved *one = &module->moved->variables[i];
		uint64_t offset = moved_offset(module->moved, i);

		memcpy(variables->first + offset, *one->pointer, one->bytes);
		*one->pointer = (void *)(uintptr_t)(variables->at + offset);
	}
	for (uint32_t i = 0; module->constants && i < module->constants->count; i++)
		memcpy(variables->first + mirrors + mirror_offset(module->constants, i),
			module->constants->globals[i].address, module->constants->globals[i].bytes);
}

/* Return: CUDA_ERROR_NOT_READY: without a block */
static CUresult move_variables(struct backend_module *module, struct backend_variables *variables)
{
	uint64_t mirrors = moved_offset(module->moved, module->moved ? module->moved->count : 0);
	uint64_t end =
		mirrors + mirror_offset(module->constants, module->constants ? module->constants->count : 0);

	if (end == BLOCK_HEAD || !variables)
		return CUDA_SUCCESS;
	variables->bytes = end;
	variables->is_managed = dlsym(module->library, "frmps_host_managed");
	if (!variables->at)
		return CUDA_ERROR_NOT_READY;
	variables->first = calloc(1, variables->bytes);
	if (!variables->first)
		return CUDA_ERROR_OUT_OF_MEMORY;
	fill_block(module, variables, mirrors);
	module->mirrors = variables->at + mirrors;
	return CUDA_SUCCESS;
}

CUresult host_module_load(struct backend_load *load, struct backend_module **ret_module)
{
	struct backend_module *module;
	CUresult result;
	char path[64];
	void *library;
	int fd;

	say(load->log, load->log_bytes, "");
	if (image_check(load->image, load->bytes) == IMAGE_FATBIN)
		return CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
	if (image_check(load->image, load->bytes) != IMAGE_ELF) {
		say(load->log, load->log_bytes,
			"The host backend runs ELF shared objects that export frmps_host_kernels.");
		return CUDA_ERROR_INVALID_IMAGE;
	}
	fd = make_memfd(load->image, load->bytes);
	if (fd < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		say(load->log, load->log_bytes, dlerror());
		close(fd);
		return CUDA_ERROR_INVALID_IMAGE;
	}
	module = read_tables(library);
	if (!module) {
		say(load->log, load->log_bytes, "The shared object has no valid frmps_host_kernels.");
		unload(library, fd);
		return CUDA_ERROR_INVALID_IMAGE;
	}
	result = move_variables(module, load->variables);
	if (result) {
		unload(library, fd);
		free(module);
		return result;
	}
	direct_text(library, load->text);
	note_statics(module);
	load->code = WIRE_CODE_OF_DRIVER;
	module->fd = fd;
	*ret_module = module;
	return CUDA_SUCCESS;
}

CUresult host_module_unload(struct backend_module *module)
{
	host_faults_wait_for_idle();
	unload(module->library, module->fd);
	statics_deinit(&module->statics);
	free(module);
	return CUDA_SUCCESS;
}

bool host_module_waits(const struct backend_module *module)
{
	return module->waits;
}

const struct statics *host_module_statics(const struct backend_module *module)
{
	return &module->statics;
}

static struct host_function *find(struct backend_module *module, const char *name)
{
	for (uint32_t i = 0; i < module->count; i++)
		if (!strcmp(module->functions[i].kernel->name, name))
			return &module->functions[i];
	return NULL;
}

CUresult host_function_find(struct backend_module *module, const char *name, bool gap,
	struct backend_function **ret_function, struct backend_function_info *ret_info)
{
	struct host_function *function = find(module, name);
	bool waits = function && module->waits && !function->is_settled;

	if (!function)
		return CUDA_ERROR_NOT_FOUND;
	if (waits && !gap)
		return CUDA_ERROR_NOT_READY;
	if (waits)
		host_faults_wait_for_idle();
	function->is_settled = true;
	ret_info->param_count = function->kernel->param_count;
	for (uint32_t i = 0; i < function->kernel->param_count; i++) {
		ret_info->params[i].offset = function->kernel->params[i].offset;
		ret_info->params[i].size = function->kernel->params[i].size;
	}
	ret_info->argument_bytes = function->argument_bytes;
	memcpy(ret_info->attributes, function->attributes, sizeof(ret_info->attributes));
	ret_info->shape = (struct backend_shape){.cluster_most = 0};
	memcpy(ret_info->shape.block, function->kernel->block, sizeof(ret_info->shape.block));
	*ret_function = (struct backend_function *)(void *)function;
	return CUDA_SUCCESS;
}

static const struct host_global *find_global(const struct host_global_table *table, const char *name)
{
	for (uint32_t i = 0; table && i < table->count; i++)
		if (!strcmp(table->globals[i].name, name))
			return &table->globals[i];
	return NULL;
}

static const struct host_moved *find_moved(const struct host_moved_table *table, const char *name)
{
	for (uint32_t i = 0; table && i < table->count; i++)
		if (!strcmp(table->variables[i].name, name))
			return &table->variables[i];
	return NULL;
}

/* Finds variables in the context. @ret_global: left unchanged if there is none */
static void find_here(struct backend_module *module, const char *name, struct backend_global *ret_global)
{
	const struct host_global *constant = find_global(module->constants, name), *global = constant;

	for (int i = 0; i < 2 && !global; i++)
		global = find_global(module->tables[i], name);
	if (global)
		*ret_global = (struct backend_global){
			.address = (uintptr_t)global->address, .bytes = global->bytes};
	if (!constant || !module->mirrors)
		return;
	ret_global->constant = ret_global->address;
	ret_global->address = module->mirrors + mirror_offset(module->constants,
							(uint32_t)(constant - module->constants->globals));
}

CUresult host_global_find(
	struct backend_module *module, const char *name, bool gap, struct backend_global *ret_global)
{
	const struct host_moved *moved = find_moved(module->moved, name);
	struct backend_global found = {.bytes = 0};

	if (moved) {
		*ret_global =
			(struct backend_global){.address = (uintptr_t)*moved->pointer, .bytes = moved->bytes};
		return CUDA_SUCCESS;
	}
	if (module->waits && !gap)
		return CUDA_ERROR_NOT_READY;
	if (module->waits)
		host_faults_wait_for_idle();
	find_here(module, name, &found);
	if (!found.address)
		return CUDA_ERROR_NOT_FOUND;
	*ret_global = found;
	return CUDA_SUCCESS;
}

CUresult host_function_list(
	struct backend_module *module, uint32_t from, const char **ret_names, uint32_t *count)
{
	for (uint32_t i = from; i < module->count && i - from < *count; i++)
		ret_names[i - from] = module->functions[i].kernel->name;
	*count = module->count;
	return CUDA_SUCCESS;
}

static bool settable(uint32_t attribute, int64_t value)
{
	switch (attribute) {
	case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
		return value >= 0 && value <= HOST_SHARED_MAX;
	case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
		return value >= CU_SHAREDMEM_CARVEOUT_DEFAULT && value <= CU_SHAREDMEM_CARVEOUT_MAX_SHARED;
	default:
		return false;
	}
}

CUresult host_function_set(struct backend_function *function, uint32_t attribute, int64_t value)
{
	if (attribute == 1000)
		return value >= CU_FUNC_CACHE_PREFER_NONE && value <= CU_FUNC_CACHE_PREFER_EQUAL
			       ? CUDA_SUCCESS
			       : CUDA_ERROR_INVALID_VALUE;
	if (!settable(attribute, value))
		return CUDA_ERROR_INVALID_VALUE;
	host_function(function)->attributes[attribute] = (int32_t)value;
	return CUDA_SUCCESS;
}
