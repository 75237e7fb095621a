// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Modules, functions, timing: requests that are answered by the module thread, one after the other.
//
// What a driver does when code or data comes onto the device or leaves it, measured: it waits until all that
// was issued to the context has ended, and holds up every launch of every other thread meanwhile. The backend
// says which call does (backend.h); it does it in a gap that the gate makes (gate.c). So the rules are
//   - never on the main thread: allocations, promotions and closing go on;
//   - loading an image needs no gap (load.c); the first lookup of a function does. It is refused when that
//     cannot be had within the patience;
//   - one queue, but lookups that wait at that moment run back to back in the same gap, for GATE_BATCH_NS;
//   - an unload is answered when the session's own work has ended. The unloading itself, which nobody waits
//     for (the graves), is done in the first gap that is made for anything, before that; or when nothing
//     runs; or in a gap made for it after GRAVE_NS. So it comes before whatever a later request puts on the
//     device, and the standby, which does the same requests, has everything at the same addresses.
// Between requests the thread gives back what clients have left behind (burial.c).
// Placing a newcomer that was refused elsewhere is the daemon's (failover/move.c).
//
// Functions are published to the serving thread in an array by id. Before a function is freed it is
// unpublished, and the serving thread has begun another turn (drain.c).

#include "server/executor/module.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/executor/clock.h"
#include "server/executor/drain.h"
#include "server/executor/load.h"
#include "server/executor/session.h"
#include "server/log.h"

#define GRAVE_NS   (UINT64_C(5000) * CLOCK_MS)
#define UNLOAD_NS  (UINT64_C(10000) * CLOCK_MS)
#define TEXT_BYTES 512u

static bool may_share_gap(const struct job *job);

/* ---- graves ---- */

/* In a gap, or at the end. */
static void clear_graves(struct executor *executor)
{
	struct module_worker *worker = &executor->modules;
	struct module *module;

	array_clear_graves(executor);
	while ((module = worker->graves)) {
		worker->graves = module->next;
		worker->grave_count--;
		contain_forget_module(executor, module->backend);
		if (!executor_is_lost(executor))
			executor_code(executor, executor->ops->module_unload(module->backend));
		free(module);
	}
}

void module_bury(struct executor *executor, struct module *module)
{
	struct module_worker *worker = &executor->modules;

	if (!worker->graves) {
		worker->graves_end = &worker->graves;
		worker->grave_since = clock_now();
	}
	module->next = NULL;
	*worker->graves_end = module;
	worker->graves_end = &module->next;
	worker->grave_count++;
	if (executor->gate.closed)
		clear_graves(executor);
}

int module_enter_gap(struct executor *executor, struct session *session, uint64_t asked_at)
{
	int error = gate_enter(executor, session, asked_at);

	if (!error)
		clear_graves(executor);
	return error;
}

/* ---- the worker ---- */

static bool has_graves(const struct module_worker *worker)
{
	return worker->graves || worker->array_graves.first;
}

/* Whether the graves are cleared now: in a gap, but for the end. */
static bool is_time_for_graves(struct executor *executor)
{
	struct module_worker *worker = &executor->modules;
	uint64_t now = clock_now();
	bool old = (worker->graves && now - worker->grave_since >= GRAVE_NS) ||
		   (worker->array_graves.first && now - worker->array_graves.since >= GRAVE_NS);

	if (!has_graves(worker) || executor_is_lost(executor) || contain_is_worn(executor))
		return false;
	if (gate_try(executor))
		return true;
	if (!old || now - worker->tried_at < GRAVE_NS)
		return false;
	worker->tried_at = now;
	return !gate_enter(executor, NULL, now);
}

static bool is_first_of_session(const struct job_list *queue, const struct job *job)
{
	const struct job *earlier;

	TAILQ_FOREACH (earlier, queue, link) {
		if (earlier == job)
			return true;
		if (earlier->session == job->session)
			return false;
	}
	return false;
}

/* While the gate is closed: a lookup that waits as well, if it may come before what is queued; NULL if none.
 */
static struct job *next_in_gap(struct executor *executor)
{
	struct module_worker *worker = &executor->modules;
	struct job *job = NULL;

	if (clock_now() - executor->gate.closed_at >= executor->gate.batch_ns)
		return NULL;
	pthread_mutex_lock(&worker->lock);
	TAILQ_FOREACH (job, &worker->queue, link)
		if (may_share_gap(job) && is_first_of_session(&worker->queue, job))
			break;
	if (job)
		TAILQ_REMOVE(&worker->queue, job, link);
	pthread_mutex_unlock(&worker->lock);
	return job;
}

/* The first of the queue; NULL: it is empty. */
static struct job *take_first(struct module_worker *worker)
{
	struct job *job;

	pthread_mutex_lock(&worker->lock);
	job = TAILQ_FIRST(&worker->queue);
	if (job)
		TAILQ_REMOVE(&worker->queue, job, link);
	pthread_mutex_unlock(&worker->lock);
	return job;
}

/* Until something comes, or it is time to look at what nobody waits for. Return: false at the end. */
static bool wait_for_more(struct executor *executor)
{
	struct module_worker *worker = &executor->modules;
	uint64_t at = clock_now() + BURIAL_LOOK_NS;
	struct timespec until = {.tv_sec = (time_t)(at / 1000000000u), .tv_nsec = (long)(at % 1000000000u)};
	bool goes_on;

	pthread_mutex_lock(&worker->lock);
	goes_on = !worker->stop || !TAILQ_EMPTY(&worker->queue);
	if (goes_on && !worker->stop && TAILQ_EMPTY(&worker->queue)) {
		if (!burial_waits(executor) && !has_graves(worker))
			pthread_cond_wait(&worker->more, &worker->lock);
		else
			pthread_cond_timedwait(&worker->more, &worker->lock, &until);
	}
	pthread_mutex_unlock(&worker->lock);
	return goes_on;
}

/* The next job, in order but for lookups in a gap; NULL at the end. */
static struct job *next_job(struct executor *executor)
{
	struct module_worker *worker = &executor->modules;
	struct job *job;

	do {
		job = executor->gate.closed ? next_in_gap(executor) : NULL;
		if (job)
			return job;
		/* In this gap, or in one of its own. */
		if (burial_presses(executor))
			burial_work(executor);
		gate_leave(executor);
		job = take_first(worker);
		while (!job && burial_work(executor))
			job = take_first(worker);
		if (!job && is_time_for_graves(executor))
			clear_graves(executor);
		if (!job)
			gate_leave(executor);
	} while (!job && wait_for_more(executor));
	return job;
}

static void *work(void *argument)
{
	struct executor *executor = argument;
	struct job *job;

	prctl(PR_SET_NAME, "frmps-modules");
	executor_code(executor, executor->ops->thread_enter());
	while ((job = next_job(executor))) {
		if (executor_is_lost(executor))
			job_free(job);
		else
			job->run(job);
	}
	burial_finish(executor);
	clear_graves(executor);
	return NULL;
}

int module_worker_init(struct executor *executor)
{
	struct module_worker *worker = &executor->modules;
	pthread_condattr_t monotonic;
	int error;

	TAILQ_INIT(&worker->queue);
	pthread_mutex_init(&worker->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&worker->more, &monotonic);
	pthread_condattr_destroy(&monotonic);
	error = pthread_create(&worker->thread, NULL, work, executor);
	if (error)
		return -error;
	worker->started = true;
	return 0;
}

void module_worker_deinit(struct executor *executor)
{
	struct module_worker *worker = &executor->modules;

	pthread_mutex_lock(&worker->lock);
	worker->stop = true;
	pthread_cond_signal(&worker->more);
	pthread_mutex_unlock(&worker->lock);
	if (worker->started)
		pthread_join(worker->thread, NULL);
	worker->started = false;
	pthread_cond_destroy(&worker->more);
	pthread_mutex_destroy(&worker->lock);
}

void module_worker_queue_again(struct job *job)
{
	struct module_worker *worker = &job->executor->modules;

	pthread_mutex_lock(&worker->lock);
	TAILQ_INSERT_TAIL(&worker->queue, job, link);
	pthread_cond_signal(&worker->more);
	pthread_mutex_unlock(&worker->lock);
}

void module_worker_queue(struct job *job)
{
	job->since = clock_now();
	module_worker_queue_again(job);
}

/* ---- modules of a session ---- */

static struct module *find_module(struct session *session, uint32_t id)
{
	struct module *module = NULL;

	if (session->modules.modules && id < MODULE_MAX)
		module = session->modules.modules[id];
	return module && !module->dying ? module : NULL;
}

struct module **module_slot(struct session *session, uint32_t id)
{
	struct module_table *table = &session->modules;

	if (!table->modules)
		table->modules = calloc(MODULE_MAX, sizeof(struct module *));
	return table->modules && id && id < MODULE_MAX ? &table->modules[id] : NULL;
}

/* A private copy: the file may change under us, whatever its seals say. */
CUresult module_read_file(int fd, uint64_t bytes, uint8_t **ret_image)
{
	struct stat status;
	uint64_t at = 0;
	uint8_t *image;

	if (fd < 0 || !bytes || bytes > MODULE_IMAGE_MAX || fstat(fd, &status) < 0 || status.st_size < 0 ||
		(uint64_t)status.st_size < bytes)
		return CUDA_ERROR_INVALID_VALUE;
	image = malloc(bytes);
	if (!image)
		return CUDA_ERROR_OUT_OF_MEMORY;
	while (at < bytes) {
		ssize_t n = pread(fd, image + at, bytes - at, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			free(image);
			return CUDA_ERROR_INVALID_IMAGE;
		}
		at += (uint64_t)n;
	}
	*ret_image = image;
	return CUDA_SUCCESS;
}

CUresult module_write_file(int fd, const void *bytes, uint64_t count)
{
	uint64_t at = 0;

	while (at < count) {
		ssize_t n = pwrite(fd, (const uint8_t *)bytes + at, count - at, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return CUDA_ERROR_OUT_OF_MEMORY;
		at += (uint64_t)n;
	}
	return CUDA_SUCCESS;
}

/* There are no gaps any more, and whoever takes over has not come yet. */
static CUresult wait_for_successor(struct job *job, char *text)
{
	struct gate *gate = &job->executor->gate;
	struct timespec time = {.tv_nsec = (long)CLOCK_MS};

	if (clock_now() - job->since < gate->patience_ns) {
		nanosleep(&time, NULL);
		return CUDA_ERROR_NOT_READY;
	}
	gate->refused_session = gate->refused_ns = 0;
	snprintf(text, TEXT_BYTES,
		"nothing can be put on the GPU beside what is left of a kernel that faulted, and the other "
		"programs' "
		"kernels leave no moment to go on without it. Nothing was changed; it can be tried again");
	return CUDA_ERROR_SYSTEM_NOT_READY;
}

/* Waits for a gap. text: TEXT_BYTES. Return: CUDA_SUCCESS, or why there is none, and the text says more;
 * CUDA_ERROR_NOT_READY: the job is to be queued again. */
static CUresult wait_for_gap(struct job *job, char *text)
{
	struct gate *gate = &job->executor->gate;
	int error;

	if (contain_is_worn(job->executor))
		return wait_for_successor(job, text);
	error = module_enter_gap(job->executor, job->session, job->since);

	if (error == GATE_E_OWN)
		return CUDA_ERROR_NOT_READY;
	if (error == GATE_E_REFUSED)
		snprintf(text, TEXT_BYTES,
			"putting code on the GPU stops every program that shares it until all running "
			"kernels "
			"have ended; a kernel of another program (%s, pid %d) has been running for %llu ms, "
			"longer than the %llu ms that are waited (load_patience_ms of the service). "
			"Nothing was changed; it can be tried again",
			gate->refused_by, (int)gate->refused_pid,
			(unsigned long long)(gate->refused_ns / CLOCK_MS),
			(unsigned long long)(gate->patience_ns / CLOCK_MS));
	else if (error)
		snprintf(text, TEXT_BYTES, "the session ends");
	return error ? CUDA_ERROR_SYSTEM_NOT_READY : CUDA_SUCCESS;
}

/* With whose work there was no gap, and for how long that has been running, ms. */
static void refuse(struct job *job, CUresult code, const char *text)
{
	const struct gate *gate = &job->executor->gate;
	const uint64_t values[] = {gate->refused_session, gate->refused_ns / CLOCK_MS};

	job_reply(job, code, values, code == CUDA_ERROR_SYSTEM_NOT_READY ? 2 : 0, text);
}

static struct function *function_free(struct function *function)
{
	if (function)
		free(function->name);
	free(function);
	return NULL;
}

/* Takes all functions of a module out of the array; they are chained by `next`. */
static void unpublish(struct session *session, struct module *module)
{
	function_word *functions = atomic_load_explicit(&session->modules.functions, memory_order_relaxed);

	for (uint32_t id = 0; functions && id < FUNCTION_MAX; id++) {
		struct function *function = atomic_load_explicit(&functions[id], memory_order_relaxed);

		if (!function || function->module != module)
			continue;
		atomic_store_explicit(&functions[id], NULL, memory_order_release);
		function->next = module->unpublished;
		module->unpublished = function;
	}
}

/* Nothing of the module is in use any more. */
static void module_end(struct session *session, struct module *module)
{
	struct function *function;

	while ((function = module->unpublished)) {
		module->unpublished = function->next;
		function_free(function);
	}
	remains_forget(session, module);
	free(module->globals);
	module->globals = NULL;
	module_bury(session->executor, module);
}

static void unload_finish(struct job *job)
{
	struct module **slot = module_slot(job->session, job->message.symbol.module);
	char text[TEXT_BYTES] = "";
	CUresult code = CUDA_SUCCESS;

	if (job->executor->modules.grave_count >= GRAVES_MAX)
		code = wait_for_gap(job, text);
	if (code == CUDA_ERROR_NOT_READY) {
		module_worker_queue_again(job);
		return;
	}
	if (!code) {
		graph_free_forgotten(job->session, job->ticket);
		remains_forget_launches(job->session, *slot);
		module_end(job->session, *slot);
		*slot = NULL;
	}
	refuse(job, code, text);
}

static void unload_drained(struct job *job)
{
	if (!job->drained) {
		job_reply(job, CUDA_ERROR_NOT_READY, NULL, 0, "the session's work did not end in time");
		return;
	}
	job->run = unload_finish;
	module_worker_queue(job);
}

static int unload_drain(struct job *job)
{
	drain_begin(job, UNLOAD_NS, unload_drained);
	return 0;
}

/* A module whose unload ran out of patience is found here again. */
static void unload(struct job *job)
{
	struct module **slot = module_slot(job->session, job->message.symbol.module);
	struct module *module = slot ? *slot : NULL;

	if (!module) {
		job_reply(job, CUDA_ERROR_INVALID_HANDLE, NULL, 0, NULL);
		return;
	}
	module->dying = true;
	unpublish(job->session, module);
	graph_forget_module(job->session, module);
	for (uint32_t i = 0; i < module->global_count; i++)
		range_set_remove(&job->session->globals, module->globals[i].start,
			module->globals[i].end - module->globals[i].start);
	module->global_count = 0;
	constant_forget(job->session, module->id);
	if (!word_relaxed(&job->session->generation)) {
		/* A standby: nothing of the session runs here, and what was sent behind this, perhaps a
		 * module with the same number, must find it done. */
		unload_finish(job);
		return;
	}
	job->step = unload_drain;
	job_park(job);
}

/* ---- functions and globals ---- */

static function_word *function_slot(struct session *session, uint32_t id)
{
	struct module_table *table = &session->modules;
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
	uint32_t count = 1 + 2 * info->param_count + BACKEND_FUNC_ATTRS, at = 0;
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
	job_reply(job, CUDA_SUCCESS, values, count, NULL);
	free(values);
}

/* With a gap or without. Return: as from the backend. */
typedef CUresult lookup_fn(struct job *job, struct module *module, bool gap, void *ret);

/* Does a lookup, without a gap if that will do. Answers, or queues the job again, unless it returns true. */
static bool look_up(struct job *job, struct module *module, lookup_fn *lookup, void *ret)
{
	char text[TEXT_BYTES] = "";
	CUresult code = lookup(job, module, job->executor->gate.closed, ret);

	if (code == CUDA_ERROR_NOT_READY) {
		code = wait_for_gap(job, text);
		if (code == CUDA_ERROR_NOT_READY) {
			module_worker_queue_again(job);
			return false;
		}
		if (!code)
			code = lookup(job, module, true, ret);
	}
	if (!executor_code(job->executor, code))
		return true;
	refuse(job, code, text);
	return false;
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

static void find_function(struct job *job)
{
	const struct wire_symbol *wish = &job->message.symbol;
	struct module *module = find_module(job->session, wish->module);
	function_word *slot = function_slot(job->session, wish->function);
	struct found_function found;
	struct function *function;

	if (!module || !slot || atomic_load_explicit(slot, memory_order_relaxed)) {
		job_reply(job, CUDA_ERROR_INVALID_VALUE, NULL, 0, NULL);
		return;
	}
	if (!look_up(job, module, look_up_function, &found))
		return;
	remains_find(job->session, module);
	function = function_new(module, found.backend, wish->name ? wish->name : "", &found.info);
	if (!function) {
		job_reply(job, CUDA_ERROR_OUT_OF_MEMORY, NULL, 0, NULL);
		return;
	}
	function->leaves = remains_are_left_by(job->session, module, function->name);
	/* Pairs with the acquire in module_function(). */
	atomic_store_explicit(slot, function, memory_order_release);
	reply_info(job, &found.info);
}

/* From now on copies may name the global. */
static CUresult admit_global(struct session *session, struct module *module, uint64_t address, uint64_t bytes)
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
	if (range_set_add(&session->globals, address, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	globals[module->global_count++] = (struct range){address, address + bytes};
	return CUDA_SUCCESS;
}

static CUresult look_up_global(struct job *job, struct module *module, bool gap, void *ret)
{
	const char *name = job->message.symbol.name;

	return job->executor->ops->global_find(module->backend, name ? name : "", gap, ret);
}

/* What was moved is the client's memory anyway. */
static CUresult admit_moved(
	struct session *session, const struct module *module, const struct backend_global *found)
{
	const struct constant constant = {.mirror = {found->address, found->address + found->bytes},
		.at = found->constant,
		.module = module->id};

	return found->constant ? constant_add(session, &constant) : CUDA_SUCCESS;
}

static void find_global(struct job *job)
{
	struct module *module = find_module(job->session, job->message.symbol.module);
	struct backend_global found = {.bytes = 0};
	CUresult code;

	if (!module) {
		job_reply(job, CUDA_ERROR_INVALID_VALUE, NULL, 0, NULL);
		return;
	}
	if (!look_up(job, module, look_up_global, &found))
		return;
	code = range_holds(&module->variables, found.address, found.bytes)
		       ? admit_moved(job->session, module, &found)
		       : admit_global(job->session, module, found.address, found.bytes);
	job_reply(job, code, (const uint64_t[]){found.address, found.bytes}, code ? 0 : 2, NULL);
}

static bool may_share_gap(const struct job *job)
{
	return job->run == find_function || job->run == find_global;
}

static void list_functions(struct job *job)
{
	struct module *module = find_module(job->session, job->message.symbol.module);
	const char *names[WIRE_NAMES_MAX];
	uint32_t count = WIRE_NAMES_MAX;
	struct wire_reply reply = {.code = CUDA_ERROR_INVALID_VALUE};

	if (module)
		reply.code = executor_code(
			job->executor, job->executor->ops->function_list(module->backend, names, &count));
	if (!reply.code && count > WIRE_NAMES_MAX) {
		reply.code = CUDA_ERROR_NOT_SUPPORTED;
		reply.text = "more kernels than an answer can name";
	}
	if (!reply.code)
		reply.names = (struct wire_names){names, count};
	job_reply_with(job, &reply);
}

static void set_function(struct job *job)
{
	const struct wire_set_function *wish = &job->message.set_function;
	struct function *function = module_function(&job->session->modules, wish->function);
	CUresult code = CUDA_ERROR_INVALID_HANDLE;

	if (function)
		code = executor_code(job->executor,
			job->executor->ops->function_set(function->backend, wish->attribute, wish->value));
	job_reply(job, code, NULL, 0, NULL);
}

static void query_occupancy(struct job *job)
{
	const struct wire_occupancy *wish = &job->message.occupancy;
	struct function *function = module_function(&job->session->modules, wish->function);
	CUresult code = CUDA_ERROR_INVALID_HANDLE;
	uint64_t value = 0;

	if (wish->attributes.count % sizeof(struct frmps_launch_attribute) ||
		(wish->grid.count != 0 && wish->grid.count != 3) ||
		(wish->block.count != 0 && wish->block.count != 3))
		code = CUDA_ERROR_INVALID_VALUE;
	else if (function)
		code = executor_code(
			job->executor, job->executor->ops->occupancy(function->backend, wish, &value));
	job_reply(job, code, &value, code ? 0 : 1, NULL);
}

static void query_elapsed(struct job *job)
{
	const struct wire_elapsed *wish = &job->message.elapsed;
	CUresult code = CUDA_ERROR_INVALID_HANDLE;
	uint64_t value = 0;
	uint32_t bits = 0;
	float ms = 0;

	if (wish->start_event < SHM_EVENTS && wish->end_event < SHM_EVENTS)
		code = executor_code(
			job->executor, event_elapsed(job->session, wish->start_event, wish->end_event, &ms));
	memcpy(&bits, &ms, sizeof(bits));
	value = bits;
	job_reply(job, code, &value, code ? 0 : 1,
		code == CUDA_ERROR_ILLEGAL_STATE
			? "not recorded with time, or the time was lost when the service changed executors"
			: NULL);
}

/* ---- entry ---- */

static void (*const handlers[WIRE_TYPES])(struct job *job) = {
	[WIRE_LOAD_MODULE] = load_module,
	[WIRE_UNLOAD_MODULE] = unload,
	[WIRE_FIND_FUNCTION] = find_function,
	[WIRE_FIND_GLOBAL] = find_global,
	[WIRE_LIST_FUNCTIONS] = list_functions,
	[WIRE_SET_FUNCTION] = set_function,
	[WIRE_QUERY_OCCUPANCY] = query_occupancy,
	[WIRE_QUERY_ELAPSED] = query_elapsed,
	[WIRE_MAKE_GRAPH] = graph_make,
	[WIRE_DROP_GRAPH] = graph_drop,
	[WIRE_MAKE_ARRAY] = array_make,
	[WIRE_BACK_ARRAY] = array_back,
	[WIRE_DROP_ARRAY] = array_drop,
	[WIRE_MAKE_OBJECT] = object_make,
	[WIRE_DROP_OBJECT] = object_drop,
};

void module_handle(struct job *job)
{
	job->run = handlers[job->message.type];
	log_bug_on(!job->run);
	module_worker_queue(job);
}

void module_table_deinit(struct session *session)
{
	struct module_table *table = &session->modules;

	for (uint32_t id = 0; table->modules && id < MODULE_MAX; id++) {
		if (!table->modules[id])
			continue;
		unpublish(session, table->modules[id]);
		module_end(session, table->modules[id]);
	}
	free(table->modules);
	free(atomic_load_explicit(&table->functions, memory_order_relaxed));
	table->modules = NULL;
	atomic_store_explicit(&table->functions, NULL, memory_order_relaxed);
}
