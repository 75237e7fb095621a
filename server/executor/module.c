// Modules and functions of sessions: their tables, their end, and questions about modules. The
// module thread answers requests one after the other (module_worker.c).
//
// Functions are published to the serving thread in an array by id. Before a function is freed it is
// unpublished, and the serving thread has begun another turn (drain.c).

#include "server/executor/module.h"

#include <stdlib.h>
#include <string.h>

#include "server/executor/drain.h"
#include "server/executor/load.h"
#include "server/executor/lookup.h"
#include "server/executor/module_worker.h"
#include "server/executor/tenant.h"
#include "server/log.h"

/* Bytes of a name in an answer beside its letters, and of an answer beside its names, at most. */
#define NAME_BYTES  16u
#define REPLY_BYTES 1024u

/* ---- modules of a session ---- */

struct module *module_find(struct tenant *tenant, uint32_t id)
{
	struct module *module = NULL;

	if (tenant->modules.modules && id < MODULE_MAX)
		module = tenant->modules.modules[id];
	return module && !module->dying ? module : NULL;
}

struct module **module_slot(struct tenant *tenant, uint32_t id)
{
	struct module_table *table = &tenant->modules;

	if (!table->modules)
		table->modules = calloc(MODULE_MAX, sizeof(struct module *));
	return table->modules && id && id < MODULE_MAX ? &table->modules[id] : NULL;
}

struct function *function_free(struct function *function)
{
	if (function)
		free(function->name);
	free(function);
	return NULL;
}

/* Takes all functions of a module (NULL: of all) out of the array; each module's are chained by
 * `next`. */
static void unpublish(struct tenant *tenant, const struct module *module)
{
	function_word *functions = atomic_load_explicit(&tenant->modules.functions, memory_order_relaxed);

	for (uint32_t id = 0; functions && id < FUNCTION_MAX; id++) {
		struct function *function = atomic_load_explicit(&functions[id], memory_order_relaxed);

		if (!function || (module && function->module != module))
			continue;
		atomic_store_explicit(&functions[id], NULL, memory_order_release);
		function->next = function->module->unpublished;
		function->module->unpublished = function;
	}
}

/* The session gives up the module. */
static void module_leave(struct tenant *tenant, struct module *module)
{
	struct function *function;

	while ((function = module->unpublished)) {
		module->unpublished = function->next;
		function_free(function);
	}
	remains_forget(tenant, module);
	for (uint32_t i = 0; i < module->global_count; i++)
		range_set_remove(&tenant->globals, module->globals[i].start,
			module->globals[i].end - module->globals[i].start);
	module->global_count = 0;
	free(module->globals);
	module->globals = NULL;
}

/* Where many modules wait to be unloaded, the request waits for a gap as well. */
static CUresult wait_for_room(struct job *job, const struct module *module)
{
	struct executor *executor = job->executor;

	return executor->modules.reclaim_count >= RECLAIM_MAX && executor->ops->module_waits(module->backend)
		       ? module_worker_wait_for_gap(job)
		       : CUDA_SUCCESS;
}

static void unload_finish(struct job *job)
{
	struct module **slot = module_slot(job->tenant, job->message.symbol.module);
	CUresult code = slot && *slot ? wait_for_room(job, *slot) : CUDA_SUCCESS;

	if (code == CUDA_ERROR_NOT_READY)
		return;
	/* The session may have ended meanwhile. */
	if (!code && (!slot || !*slot))
		code = CUDA_ERROR_INVALID_HANDLE;
	if (!code) {
		graph_free_forgotten(job->tenant, job->ticket);
		remains_forget_launches(job->tenant, *slot);
		module_leave(job->tenant, *slot);
		module_worker_end(job->executor, *slot);
		*slot = NULL;
	}
	job_reply(job, code, NULL, 0, NULL);
}

static void unload_drained(struct job *job)
{
	if (!job->drained) {
		job_reply(job, CUDA_ERROR_NOT_READY, NULL, 0, "the session's work did not end in time");
		return;
	}
	module_worker_queue(job, unload_finish);
}

/* A module whose unload did not end in time is found again here. */
static void unload(struct job *job)
{
	struct module **slot = module_slot(job->tenant, job->message.symbol.module);
	struct module *module = slot ? *slot : NULL;

	if (!module) {
		job_reply(job, CUDA_ERROR_INVALID_HANDLE, NULL, 0, NULL);
		return;
	}
	module->dying = true;
	unpublish(job->tenant, module);
	graph_forget_module(job->tenant, module);
	constant_forget(job->tenant, module->id);
	if (!word_relaxed(&job->tenant->generation)) {
		/* A standby: no work of the session runs here, and the requests behind this one,
		 * maybe of a module with the same number, must find the unload done. */
		unload_finish(job);
		return;
	}
	drain_park(job, unload_drained);
}

/* ---- questions ---- */

/* Return: the number of names that fit an answer; at least 1. */
static uint32_t count_fitting(const char *const *names, uint32_t count)
{
	uint32_t fitting = 0;
	size_t bytes = 0;

	count = count < WIRE_NAMES_MAX ? count : WIRE_NAMES_MAX;
	while (fitting < count) {
		bytes += strlen(names[fitting]) + NAME_BYTES;
		if (fitting && bytes > WIRE_PACKET_MAX - REPLY_BYTES)
			break;
		fitting++;
	}
	return fitting;
}

static void list_functions(struct job *job)
{
	struct module *module = module_find(job->tenant, job->message.symbol.module);
	uint32_t from = job->message.symbol.from, count = WIRE_NAMES_MAX;
	struct wire_reply reply = {.code = CUDA_ERROR_INVALID_VALUE};
	const char *names[WIRE_NAMES_MAX];
	uint64_t all;

	if (module)
		reply.code = executor_code(job->executor,
			job->executor->ops->function_list(module->backend, from, names, &count));
	if (!reply.code) {
		all = count;
		reply.values = (struct wire_u64s){&all, 1};
		reply.names =
			(struct wire_names){names, count_fitting(names, count > from ? count - from : 0)};
	}
	job_reply_with(job, &reply);
}

static void set_function(struct job *job)
{
	const struct wire_set_function *wish = &job->message.set_function;
	struct function *function = module_function(&job->tenant->modules, wish->function);
	CUresult code = CUDA_ERROR_INVALID_HANDLE;

	if (function)
		code = executor_code(job->executor,
			job->executor->ops->function_set(function->backend, wish->attribute, wish->value));
	job_reply(job, code, NULL, 0, NULL);
}

static void query_occupancy(struct job *job)
{
	const struct wire_occupancy *wish = &job->message.occupancy;
	struct function *function = module_function(&job->tenant->modules, wish->function);
	CUresult code = CUDA_ERROR_INVALID_HANDLE;
	uint64_t sms = cap_sms(job->tenant, wish->part);
	uint64_t values[2] = {0, sms ? backend_sms_count(&job->executor->device, sms) : 0};

	if (wish->attributes.count % sizeof(struct frmps_launch_attribute) ||
		(wish->grid.count != 0 && wish->grid.count != 3) ||
		(wish->block.count != 0 && wish->block.count != 3))
		code = CUDA_ERROR_INVALID_VALUE;
	else if (function)
		code = executor_code(job->executor,
			job->executor->ops->occupancy(function->backend, wish, sms, &values[0]));
	job_reply(job, code, values, code ? 0 : 2, NULL);
}

/* The daemon asks an executor that serves this session alone: no other session waits until nothing
 * runs. */
static void set_limit(struct job *job)
{
	const struct wire_limit *wish = &job->message.limit;
	uint64_t value = 0;
	CUresult code = executor_code(
		job->executor, job->executor->ops->limit_set((CUlimit)wish->limit, wish->value, &value));

	job_reply(job, code, &value, code ? 0 : 1, NULL);
}

/* ---- entry ---- */

static void (*const handlers[WIRE_TYPES])(struct job *job) = {
	[WIRE_LOAD_MODULE] = load_module,
	[WIRE_UNLOAD_MODULE] = unload,
	[WIRE_FIND_FUNCTION] = lookup_function,
	[WIRE_FIND_GLOBAL] = lookup_global,
	[WIRE_LIST_FUNCTIONS] = list_functions,
	[WIRE_SET_FUNCTION] = set_function,
	[WIRE_SET_LIMIT] = set_limit,
	[WIRE_QUERY_OCCUPANCY] = query_occupancy,
	[WIRE_MAKE_GRAPH] = graph_make,
	[WIRE_DROP_GRAPH] = graph_drop,
	[WIRE_MAKE_ARRAY] = array_make,
	[WIRE_BACK_ARRAY] = array_back,
	[WIRE_DROP_ARRAY] = array_drop,
	[WIRE_MAKE_OBJECT] = object_make,
	[WIRE_DROP_OBJECT] = object_drop,
};

bool module_runs_beside(const struct job *job)
{
	switch (job->message.type) {
	case WIRE_LOAD_MODULE:
	case WIRE_UNLOAD_MODULE:
	case WIRE_FIND_FUNCTION:
	case WIRE_FIND_GLOBAL:
	case WIRE_LIST_FUNCTIONS:
	case WIRE_SET_FUNCTION:
	case WIRE_QUERY_OCCUPANCY:
	case WIRE_MAKE_GRAPH:
	case WIRE_DROP_GRAPH:
		return true;
	default:
		return false;
	}
}

void module_handle(struct job *job)
{
	log_bug_on(!handlers[job->message.type]);
	module_worker_queue(job, handlers[job->message.type]);
}

void module_table_deinit(struct tenant *tenant)
{
	struct module_table *table = &tenant->modules;

	/* Once for all modules: no work of the session runs. */
	unpublish(tenant, NULL);
	for (uint32_t id = 0; table->modules && id < MODULE_MAX; id++)
		if (table->modules[id]) {
			module_leave(tenant, table->modules[id]);
			/* Kernels of the module may be on the device: of a program that was
			 * killed. */
			module_worker_reclaim(tenant->executor, table->modules[id]);
		}
	free(table->modules);
	free(atomic_load_explicit(&table->functions, memory_order_relaxed));
	table->modules = NULL;
	atomic_store_explicit(&table->functions, NULL, memory_order_relaxed);
}
