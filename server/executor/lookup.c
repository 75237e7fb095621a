// See lookup.h.

#include "server/executor/lookup.h"

#include <stdlib.h>
#include <string.h>

#include "server/executor/module.h"
#include "server/executor/module_worker.h"
#include "server/executor/tenant.h"

/* With a gap or without. Return: as from the backend. */
typedef CUresult lookup_fn(struct job *job, struct module *module, bool gap, void *ret);

/* Does a lookup, without a gap if possible. Answers, or leaves the job to the queue, unless it
 * returns true. */
static bool look_up(struct job *job, struct module *module, lookup_fn *lookup, void *ret)
{
	CUresult code = lookup(job, module, job->executor->gate.closed, ret);

	if (code == CUDA_ERROR_NOT_READY) {
		code = module_worker_wait_for_gap(job);
		if (code == CUDA_ERROR_NOT_READY)
			return false;
		if (!code)
			code = lookup(job, module, true, ret);
	}
	if (!executor_code(job->executor, code))
		return true;
	job_reply(job, code, NULL, 0, NULL);
	return false;
}

/* ---- functions ---- */

static function_word *function_slot(struct tenant *tenant, uint32_t id)
{
	struct module_table *table = &tenant->modules;
	function_word *functions = atomic_load_explicit(&table->functions, memory_order_relaxed);

	if (!id || id >= FUNCTION_MAX)
		return NULL;
	if (!functions) {
		functions = calloc(FUNCTION_MAX, sizeof(*functions));
		atomic_store_explicit(&table->functions, functions, memory_order_release);
	}
	return functions ? &functions[id] : NULL;
}

static struct function *function_new(struct module *module, struct backend_function *backend,
	const char *name, const struct backend_function_info *info)
{
	size_t info_bytes =
		offsetof(struct backend_function_info, params) + info->param_count * sizeof(info->params[0]);
	struct function *function = malloc(offsetof(struct function, info) + info_bytes);

	if (!function)
		return NULL;
	function->backend = backend;
	function->module = module;
	function->next = NULL;
	function->leaves = false;
	memcpy(&function->info, info, info_bytes);
	function->name = strdup(name);
	return function->name ? function : function_free(function);
}

static void reply_info(struct job *job, const struct backend_function_info *info)
{
	uint32_t count = 1 + 2 * info->param_count + BACKEND_FUNC_ATTRS + 5, at = 0;
	uint64_t *values = malloc(count * sizeof(*values));

	if (!values) {
		job_reply(job, CUDA_ERROR_OUT_OF_MEMORY, NULL, 0, NULL);
		return;
	}
	values[at++] = info->param_count;
	for (uint32_t i = 0; i < info->param_count; i++) {
		values[at++] = info->params[i].offset;
		values[at++] = info->params[i].size;
	}
	for (uint32_t i = 0; i < BACKEND_FUNC_ATTRS; i++)
		values[at++] = (uint64_t)(int64_t)info->attributes[i];
	for (uint32_t i = 0; i < 3; i++)
		values[at++] = info->shape.block[i];
	values[at++] = info->shape.cluster_most;
	values[at] = info->shape.counts_clusters;
	job_reply(job, CUDA_SUCCESS, values, count, NULL);
	free(values);
}

struct found_function {
	struct backend_function *backend;
	struct backend_function_info info;
};

static CUresult look_up_function(struct job *job, struct module *module, bool gap, void *ret)
{
	struct found_function *found = ret;
	const char *name = job->message.symbol.name;

	return job->executor->ops->function_find(
		module->backend, name ? name : "", gap, &found->backend, &found->info);
}

void lookup_function(struct job *job)
{
	const struct wire_symbol *wish = &job->message.symbol;
	struct module *module = module_find(job->tenant, wish->module);
	function_word *slot = function_slot(job->tenant, wish->function);
	struct found_function found;
	struct function *function;

	if (!module || !slot || atomic_load_explicit(slot, memory_order_relaxed)) {
		job_reply(job, CUDA_ERROR_INVALID_VALUE, NULL, 0, NULL);
		return;
	}
	if (!look_up(job, module, look_up_function, &found))
		return;
	function = function_new(module, found.backend, wish->name ? wish->name : "", &found.info);
	if (!function) {
		job_reply(job, CUDA_ERROR_OUT_OF_MEMORY, NULL, 0, NULL);
		return;
	}
	function->leaves = remains_are_left_by(job->tenant, module, function->name);
	/* Pairs with the acquire in module_function(). */
	atomic_store_explicit(slot, function, memory_order_release);
	reply_info(job, &found.info);
}

/* ---- globals ---- */

/* From now on copies may name the global. */
static CUresult admit_global(struct tenant *tenant, struct module *module, uint64_t address, uint64_t bytes)
{
	struct range *globals;

	if (!bytes)
		return CUDA_SUCCESS;
	for (uint32_t i = 0; i < module->global_count; i++)
		if (module->globals[i].start == address)
			return CUDA_SUCCESS;
	globals = realloc(module->globals, (module->global_count + 1) * sizeof(*globals));
	if (!globals)
		return CUDA_ERROR_OUT_OF_MEMORY;
	module->globals = globals;
	if (range_set_add(&tenant->globals, address, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	globals[module->global_count++] = (struct range){address, address + bytes};
	return CUDA_SUCCESS;
}

static CUresult look_up_global(struct job *job, struct module *module, bool gap, void *ret)
{
	const char *name = job->message.symbol.name;

	return job->executor->ops->global_find(module->backend, name ? name : "", gap, ret);
}

/* Moved variables lie in the client's memory anyway. */
static CUresult admit_moved(
	struct tenant *tenant, const struct module *module, const struct backend_global *found)
{
	const struct constant constant = {.mirror = {found->address, found->address + found->bytes},
		.at = found->constant,
		.module = module->id};

	return found->constant ? constant_add(tenant, &constant) : CUDA_SUCCESS;
}

void lookup_global(struct job *job)
{
	struct module *module = module_find(job->tenant, job->message.symbol.module);
	struct backend_global found = {.bytes = 0};
	CUresult code;

	if (!module) {
		job_reply(job, CUDA_ERROR_INVALID_VALUE, NULL, 0, NULL);
		return;
	}
	if (!look_up(job, module, look_up_global, &found))
		return;
	code = range_holds(&module->variables, found.address, found.bytes)
		       ? admit_moved(job->tenant, module, &found)
		       : admit_global(job->tenant, module, found.address, found.bytes);
	job_reply(job, code, (const uint64_t[]){found.address, found.bytes}, code ? 0 : 2, NULL);
}

bool lookup_shares_gap(const struct job *job)
{
	return job->run == lookup_function || job->run == lookup_global;
}
