// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Modules, functions, timing: requests that are answered by the module thread, one after the other.
//
// What a driver does on a load, measured: it waits until all that was issued to the context has ended, and
// holds up every launch of every other thread meanwhile; unloading waits as well, but nobody else does. So
// the rules are
//   - never on the main thread: allocations, promotions and closing go on;
//   - a load begins when the device has run empty, in a gap that the gate makes (gate.c), or is refused when
//     that cannot be had within the patience;
//   - one queue, but loads that wait at that moment run back to back in the same gap, for GATE_BATCH_NS;
//   - text that the driver must compile first would stretch the gap to seconds: for it the gate is left ajar,
//     queues are kept short, and the gap is what the driver makes of it;
//   - unloads wait until the session's own work has ended, and what nobody waits for (the modules of a
//     client that is gone, unpinning its staging memory) until no session has work on the device, or
//     BURIAL_NS at most.
// Placing a newcomer that was refused, or the long runner, elsewhere is the daemon's to decide.
//
// Functions are published to the serving thread in an array by id. Before a function is freed it is
// unpublished, and the serving thread has begun another turn (drain.c).

#include "server/executor/module.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/backend/image.h"
#include "server/executor/clock.h"
#include "server/executor/drain.h"
#include "server/executor/session.h"
#include "server/log.h"

#define BURIAL_NS   (UINT64_C(5000) * CLOCK_MS)
#define BURIAL_LOOK (UINT64_C(100) * CLOCK_MS)
#define UNLOAD_NS   (UINT64_C(10000) * CLOCK_MS)
#define LOG_BYTES   16384u

static void load(struct job *job);

/* ---- the worker ---- */

static bool device_is_idle(struct executor *executor)
{
	struct session *session;
	bool busy = false;

	pthread_mutex_lock(&executor->sessions_lock);
	TAILQ_FOREACH (session, &executor->sessions, link)
		busy = busy || (word_acquire(&session->generation) && session_is_busy(session));
	pthread_mutex_unlock(&executor->sessions_lock);
	return !busy;
}

/* A burial whose moment has come; NULL if none. Under the lock but for the look at the device. */
static struct job *take_burial(struct executor *executor, bool stopping)
{
	struct module_worker *worker = &executor->modules;
	struct job *job = TAILQ_FIRST(&worker->burials);

	if (!job)
		return NULL;
	if (!stopping && clock_now() - job->since < BURIAL_NS) {
		bool idle;

		pthread_mutex_unlock(&worker->lock);
		idle = device_is_idle(executor);
		pthread_mutex_lock(&worker->lock);
		if (!idle)
			return NULL;
	}
	TAILQ_REMOVE(&worker->burials, job, link);
	return job;
}

static void wait_for_more(struct module_worker *worker)
{
	struct timespec until;
	uint64_t at = clock_now() + BURIAL_LOOK;

	if (TAILQ_EMPTY(&worker->burials)) {
		pthread_cond_wait(&worker->more, &worker->lock);
		return;
	}
	until = (struct timespec){.tv_sec = (time_t)(at / 1000000000u), .tv_nsec = (long)(at % 1000000000u)};
	pthread_cond_timedwait(&worker->more, &worker->lock, &until);
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

/* While the gate is closed: a load that waits as well, if it may come before what is queued; NULL if none. */
static struct job *next_in_gap(struct executor *executor)
{
	struct module_worker *worker = &executor->modules;
	struct job *job = NULL;

	if (clock_now() - executor->gate.closed_at >= GATE_BATCH_NS)
		return NULL;
	pthread_mutex_lock(&worker->lock);
	TAILQ_FOREACH (job, &worker->queue, link)
		if (job->run == load && job->message.load_module.bytes <= GATE_BATCH_BYTES &&
			is_first_of_session(&worker->queue, job))
			break;
	if (job)
		TAILQ_REMOVE(&worker->queue, job, link);
	pthread_mutex_unlock(&worker->lock);
	return job;
}

/* The next job, in order but for loads in a gap; NULL at the end. */
static struct job *next_job(struct executor *executor)
{
	struct module_worker *worker = &executor->modules;
	struct job *job = executor->gate.closed ? next_in_gap(executor) : NULL;

	if (job)
		return job;
	gate_leave(executor);
	pthread_mutex_lock(&worker->lock);
	for (;;) {
		job = TAILQ_FIRST(&worker->queue);
		if (job)
			TAILQ_REMOVE(&worker->queue, job, link);
		else
			job = take_burial(executor, worker->stop);
		/* Something may have come while the lock was open. */
		if (job || (worker->stop && TAILQ_EMPTY(&worker->queue)))
			break;
		if (TAILQ_EMPTY(&worker->queue))
			wait_for_more(worker);
	}
	pthread_mutex_unlock(&worker->lock);
	return job;
}

static void *work(void *argument)
{
	struct executor *executor = argument;
	struct job *job;

	executor_code(executor, executor->ops->thread_enter());
	while ((job = next_job(executor))) {
		if (executor_is_lost(executor))
			job_free(job);
		else
			job->run(job);
	}
	return NULL;
}

int module_worker_init(struct executor *executor)
{
	struct module_worker *worker = &executor->modules;
	pthread_condattr_t monotonic;
	int error;

	TAILQ_INIT(&worker->queue);
	TAILQ_INIT(&worker->burials);
	pthread_mutex_init(&worker->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&worker->more, &monotonic);
	pthread_condattr_destroy(&monotonic);
	error = pthread_create(&worker->thread, NULL, work, executor);
	if (error)
		return -error;
	worker->started = true;
	pthread_setname_np(worker->thread, "frmps-modules");
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

static void enqueue(struct job *job, struct job_list *list)
{
	struct module_worker *worker = &job->executor->modules;

	job->since = clock_now();
	pthread_mutex_lock(&worker->lock);
	TAILQ_INSERT_TAIL(list, job, link);
	pthread_cond_signal(&worker->more);
	pthread_mutex_unlock(&worker->lock);
}

void module_worker_queue(struct job *job)
{
	enqueue(job, &job->executor->modules.queue);
}

void module_worker_bury(struct job *job)
{
	enqueue(job, &job->executor->modules.burials);
}

/* ---- modules of a session ---- */

static struct module *find_module(struct session *session, uint32_t id)
{
	struct module *module = NULL;

	if (session->modules.modules && id < MODULE_MAX)
		module = session->modules.modules[id];
	return module && !module->dying ? module : NULL;
}

/* Where module `id` is kept; NULL if the id is out of range or no memory. */
static struct module **module_slot(struct session *session, uint32_t id)
{
	struct module_table *table = &session->modules;

	if (!table->modules)
		table->modules = calloc(MODULE_MAX, sizeof(struct module *));
	return table->modules && id && id < MODULE_MAX ? &table->modules[id] : NULL;
}

/* A private copy: the file may change under us, whatever its seals say. */
static CUresult read_image(int fd, uint64_t bytes, uint8_t **ret_image)
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

static CUresult load_module(struct job *job, const uint8_t *image, char *log, struct module **slot)
{
	const struct wire_load_module *wish = &job->message.load_module;
	struct module *module = calloc(1, sizeof(*module));
	CUresult code;

	if (!module)
		return CUDA_ERROR_OUT_OF_MEMORY;
	code = job->executor->ops->module_load(
		image, wish->bytes, &wish->options, log, LOG_BYTES, &module->backend);
	if (executor_code(job->executor, code)) {
		free(module);
		return code;
	}
	*slot = module;
	return CUDA_SUCCESS;
}

/* Waits for a gap. Return: CUDA_SUCCESS, or why there is none; the text says more, but for NOT_READY: later.
 */
static CUresult wait_for_gap(struct job *job, const uint8_t *image, char *text)
{
	struct gate *gate = &job->executor->gate;
	int error = gate_enter(job->executor, job->session);

	if (!error && image_check(image, job->message.load_module.bytes) == IMAGE_TEXT)
		gate_thin(job->executor);
	if (error == GATE_E_OWN)
		return CUDA_ERROR_NOT_READY;
	if (error == GATE_E_REFUSED)
		snprintf(text, LOG_BYTES,
			"work of another program has been running for %llu ms; loading would stop everybody",
			(unsigned long long)(gate->refused_ns / CLOCK_MS));
	else if (error)
		snprintf(text, LOG_BYTES, "the session ends");
	return error ? CUDA_ERROR_SYSTEM_NOT_READY : CUDA_SUCCESS;
}

static void load(struct job *job)
{
	struct module **slot = module_slot(job->session, job->message.load_module.module);
	int fd = job->packet.fd_count ? job->packet.fds[0] : -1;
	char *log = calloc(1, LOG_BYTES);
	uint8_t *image = NULL;
	CUresult code = CUDA_SUCCESS;
	bool waits;

	if (!slot || *slot)
		code = CUDA_ERROR_INVALID_VALUE;
	else if (!log)
		code = CUDA_ERROR_OUT_OF_MEMORY;
	if (!code)
		code = read_image(fd, job->message.load_module.bytes, &image);
	if (!code)
		code = wait_for_gap(job, image, log);
	waits = code == CUDA_ERROR_NOT_READY;
	if (!code)
		code = load_module(job, image, log, slot);
	free(image);
	if (waits)
		module_worker_queue(job);
	else
		job_reply(job, code, NULL, 0, log);
	free(log);
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
static CUresult module_end(struct session *session, struct module *module)
{
	CUresult code =
		executor_code(session->executor, session_ops(session)->module_unload(module->backend));
	struct function *function;

	while ((function = module->unpublished)) {
		module->unpublished = function->next;
		function_free(function);
	}
	free(module->globals);
	free(module);
	return code;
}

static void unload_finish(struct job *job)
{
	struct module **slot = module_slot(job->session, job->message.symbol.module);
	struct module *module = *slot;

	*slot = NULL;
	job_reply(job, module_end(job->session, module), NULL, 0, NULL);
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
	for (uint32_t i = 0; i < module->global_count; i++)
		range_set_remove(&job->session->globals, module->globals[i].start,
			module->globals[i].end - module->globals[i].start);
	module->global_count = 0;
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

static void find_function(struct job *job)
{
	const struct wire_symbol *wish = &job->message.symbol;
	struct module *module = find_module(job->session, wish->module);
	function_word *slot = function_slot(job->session, wish->function);
	struct backend_function *backend;
	struct backend_function_info info;
	struct function *function = NULL;
	CUresult code = CUDA_ERROR_INVALID_VALUE;

	if (module && slot && !atomic_load_explicit(slot, memory_order_relaxed)) {
		code = executor_code(job->executor, job->executor->ops->function_find(module->backend,
							    wish->name ? wish->name : "", &backend, &info));
		if (!code)
			function = function_new(module, backend, wish->name ? wish->name : "", &info);
		if (!code && !function)
			code = CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (code) {
		job_reply(job, code, NULL, 0, NULL);
		return;
	}
	/* Pairs with the acquire in module_function(). */
	atomic_store_explicit(slot, function, memory_order_release);
	reply_info(job, &info);
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

static void find_global(struct job *job)
{
	const struct wire_symbol *wish = &job->message.symbol;
	struct module *module = find_module(job->session, wish->module);
	CUresult code = CUDA_ERROR_INVALID_VALUE;
	uint64_t values[2] = {0, 0};

	if (module)
		code = executor_code(
			job->executor, job->executor->ops->global_find(module->backend,
					       wish->name ? wish->name : "", &values[0], &values[1]));
	if (!code)
		code = admit_global(job->session, module, values[0], values[1]);
	job_reply(job, code, values, code ? 0 : 2, NULL);
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
	[WIRE_LOAD_MODULE] = load,
	[WIRE_UNLOAD_MODULE] = unload,
	[WIRE_FIND_FUNCTION] = find_function,
	[WIRE_FIND_GLOBAL] = find_global,
	[WIRE_LIST_FUNCTIONS] = list_functions,
	[WIRE_SET_FUNCTION] = set_function,
	[WIRE_QUERY_OCCUPANCY] = query_occupancy,
	[WIRE_QUERY_ELAPSED] = query_elapsed,
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
