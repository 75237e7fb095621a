// The module thread: works off a queue of jobs, one after the other, and deferred work that needs a
// gap.
//
// When code or data comes onto the device or leaves it, a driver (measured) waits until all work
// that was issued to the context has ended. Until then every launch of every other thread is held
// up. The service's own loader (backend/cuda/loader.h) does not wait, but does not take every
// image. The backend reports the calls that wait (backend.h). The thread makes such a call in a gap
// that the gate makes (gate.c). So the rules are
//   - no such call on the main thread: allocations, promotions and closing go on;
//   - loading an image needs no gap (load.c); the first lookup of a function that the driver has
//     loaded does. The lookup never fails because of others' work: its program waits, no other;
//   - a single queue, in the order of the requests. Lookups that wait at that moment run back to
//     back in the same gap, for GATE_BATCH_NS;
//   - while a session waits for its gap, the thread does requests of others about modules and
//     graphs. A request that turns out to need a gap goes back to its place in the queue and is not
//     touched before a gap: no request in between waits at the gate itself. Other requests wait,
//     for GATE_PATIENCE_NS. Then these come first;
//   - a request whose try for a gap failed rests, for as long as the try took and at least REST_NS.
//     The gate is open then, and the thread does all other work. Tries beside a kernel without end
//     are over at the first look, so others hardly notice such tries;
//   - requests of a session stay in order, despite rests and precedence;
//   - an unload is answered when the session's own work has ended. Modules that the driver has
//     loaded then wait in the reclaim list. The thread unloads these at the beginning
//     of the first gap that is made for any reason; or when nothing runs; or in a gap of their own
//     after GATE_DEFER_NS. So the unload comes before any code of a later request. The standby does
//     the same requests, and so its driver places all at the same addresses.
// In each gap the thread first makes the groups of multiprocessors that sessions want, and for
// groups alone a gap is made at once (cap.c). Between requests the thread does deferred frees
// (deferred.c).
//
// A call of the driver that does not return blocks all jobs behind it, and is not visible from
// outside. So the thread notes its present work, and an executor that is halted logs work that took
// long.

#include "server/executor/module_worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "server/clock.h"
#include "server/executor/lookup.h"
#include "server/executor/tenant.h"
#include "server/log.h"

/* Unobstructed work never takes as long. */
#define LONG_NS (UINT64_C(1000) * CLOCK_MS)
/* Pause between two tries for a gap for groups of multiprocessors. */
#define CAP_NS (UINT64_C(500) * CLOCK_MS)
/* Shortest rest between two tries for a gap on behalf of a request. */
#define REST_NS (100 * CLOCK_MS)

/* ---- the reclaim list ---- */

static void unload(struct executor *executor, struct module *module)
{
	contain_forget_module(executor, module->backend);
	if (!executor_is_lost(executor))
		executor_code(executor, executor->ops->module_unload(module->backend));
	free(module);
}

/* In a gap, or at the end. */
static void reclaim_all(struct executor *executor)
{
	struct module_worker *worker = &executor->modules;
	struct module *module;

	array_reclaim_all(executor);
	while ((module = worker->reclaim)) {
		worker->reclaim = module->next;
		worker->reclaim_count--;
		unload(executor, module);
	}
}

void module_worker_end(struct executor *executor, struct module *module)
{
	if (executor->ops->module_waits(module->backend))
		module_worker_reclaim(executor, module);
	else
		unload(executor, module);
}

void module_worker_reclaim(struct executor *executor, struct module *module)
{
	struct module_worker *worker = &executor->modules;

	if (!worker->reclaim) {
		worker->reclaim_end = &worker->reclaim;
		worker->reclaim_since = clock_now();
	}
	module->next = NULL;
	*worker->reclaim_end = module;
	worker->reclaim_end = &module->next;
	worker->reclaim_count++;
	if (executor->gate.closed)
		reclaim_all(executor);
}

/* ---- the present work ---- */

static void begin_work(struct executor *executor, const char *what, const struct tenant *tenant)
{
	struct module_work *work = &executor->modules.work;

	atomic_store_explicit(&work->what, what, memory_order_relaxed);
	word_set(&work->session, tenant ? tenant->id : 0);
	/* Pairs with the acquire in tell_work(). */
	word_release(&work->since, clock_now());
}

static void end_work(struct executor *executor)
{
	word_set(&executor->modules.work.since, 0);
}

/* Bytes of the text: "gate" and a phase, "it waits there". */
#define GATE_TEXT 96u

static void describe_gate(const struct executor *executor, uint64_t now, char text[GATE_TEXT])
{
	static const char *const phases[] = {"open", "shallow", "shut for what is long", "closed"};
	uint64_t since = word_relaxed(&executor->modules.work.gate_since);
	int length = snprintf(text, GATE_TEXT, "the gate is %s", phases[gate_phase(&executor->gate)]);

	if (since)
		snprintf(text + length, GATE_TEXT - (size_t)length, ", where it has waited for %llu ms",
			(unsigned long long)((now - since) / CLOCK_MS));
}

static bool is_long(uint64_t since, uint64_t now)
{
	return since && now > since && now - since >= LONG_NS;
}

/* Return: true if the thread is at work, short or long. */
static bool tell_work(struct executor *executor, uint64_t now, bool *ret_long)
{
	const struct module_work *work = &executor->modules.work;
	uint64_t since = word_acquire(&work->since);
	char gate[GATE_TEXT];

	*ret_long = is_long(since, now);
	if (!*ret_long)
		return since;
	describe_gate(executor, now, gate);
	log_warning("the module thread has been at %s, session %llu, for %llu ms; %s",
		atomic_load_explicit(&work->what, memory_order_relaxed),
		(unsigned long long)word_relaxed(&work->session),
		(unsigned long long)((now - since) / CLOCK_MS), gate);
	return true;
}

void module_worker_tell(struct executor *executor, uint64_t now)
{
	struct module_worker *worker = &executor->modules;
	uint64_t since;
	bool takes_long;

	if (!worker->started)
		return;
	if (!tell_work(executor, now, &takes_long)) {
		since = job_queue_waits_since(&worker->queue, now);
		takes_long = is_long(since, now);
		if (takes_long)
			log_warning("the module thread is at nothing, and work has waited for it for %llu ms",
				(unsigned long long)((now - since) / CLOCK_MS));
	}
	if (takes_long)
		executor->ops->thread_show(worker->thread);
}

/* ---- gaps ---- */

static void run(struct executor *executor, struct job *job)
{
	if (executor_is_lost(executor)) {
		job_free(job);
		return;
	}
	begin_work(executor, wire_type_name(job->message.type), job->tenant);
	job->run(job);
	end_work(executor);
}

/* As far as known. */
static bool needs_no_gap(const struct job *job)
{
	return !job->needs_gap;
}

/* For jobs of other sessions than the one that waits for a gap. */
static bool may_run_beside(const struct job *job)
{
	return needs_no_gap(job) && module_runs_beside(job);
}

/* Afterwards the noted work is the wait at the gate again. */
static void run_beside(struct executor *executor, struct job *job)
{
	struct module_work *work = &executor->modules.work;
	const char *what = atomic_load_explicit(&work->what, memory_order_relaxed);
	uint64_t session = word_relaxed(&work->session), since = word_relaxed(&work->since);

	run(executor, job);
	atomic_store_explicit(&work->what, what, memory_order_relaxed);
	word_set(&work->session, session);
	word_release(&work->since, since);
}

/* True if a try has lasted for long enough, and another session waits for a job that must wait
 * until the gate is open. */
static bool is_pressed(struct executor *executor, const struct tenant *tenant)
{
	const struct gate *gate = &executor->gate;

	return clock_now() - gate->begun_at >= gate->patience_ns &&
	       job_queue_has(&executor->modules.queue, needs_no_gap, tenant);
}

static int give_way(struct executor *executor)
{
	gate_leave(executor);
	return GATE_E_BUSY;
}

/* gate_enter(), with jobs of other sessions done in between. */
static int wait_at_gate(struct executor *executor, struct tenant *tenant, uint64_t asked_at)
{
	struct job *job;
	int error;

	while ((error = gate_enter(executor, tenant, asked_at)) == GATE_E_WAIT) {
		job = job_queue_take_fitting(&executor->modules.queue, may_run_beside, tenant);
		if (job)
			run_beside(executor, job);
		else if (is_pressed(executor, tenant))
			return give_way(executor);
	}
	return error;
}

int module_worker_enter_gap(struct executor *executor, struct tenant *tenant, uint64_t asked_at)
{
	bool begins = !executor->gate.closed;
	int error = wait_at_gate(executor, tenant, asked_at);

	if (!error) {
		if (begins)
			cap_make_all(executor);
		else
			cap_make_wanted(executor);
		reclaim_all(executor);
	}
	return error;
}

/* ---- on behalf of a job ---- */

static void tell_obstacle(const struct job *job)
{
	const struct gate_obstacle *obstacle = &job->executor->gate.obstacle;
	const struct tenant *tenant = job->tenant;

	log_info("session %llu (%s, pid %d) waits for code that the driver loads: a kernel of %s, pid %d, "
		 "has been running for %llu ms, and loading would stop everybody until it ends",
		(unsigned long long)tenant->id, tenant->program, tenant->pid, obstacle->program,
		obstacle->pid, (unsigned long long)(obstacle->ns / CLOCK_MS));
}

/* After a try that failed. */
static void rest(struct job *job, uint64_t begun_at)
{
	uint64_t now = clock_now(), tried = now - begun_at;

	job->not_before = now + (tried > REST_NS ? tried : REST_NS);
	job_queue_put_back(&job->executor->modules.queue, job);
}

/* True if the thread waits at the gate already, on behalf of another job. */
static bool is_beside(const struct executor *executor)
{
	return gate_is_shut(&executor->gate) && !executor->gate.closed;
}

CUresult module_worker_wait_for_gap(struct job *job)
{
	uint64_t begun_at = clock_now();
	int error;

	job->needs_gap = true;
	if (is_beside(job->executor)) {
		job_queue_put_back(&job->executor->modules.queue, job);
		return CUDA_ERROR_NOT_READY;
	}
	error = module_worker_enter_gap(job->executor, job->tenant, job->since);
	if (error != GATE_E_LONG && error != GATE_E_BUSY)
		return error ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
	if (error == GATE_E_LONG && !job->not_before)
		tell_obstacle(job);
	rest(job, begun_at);
	return CUDA_ERROR_NOT_READY;
}

/* ---- the worker ---- */

/* True if deferred work needs a gap. */
static bool wants_gap(struct executor *executor)
{
	const struct module_worker *worker = &executor->modules;

	return worker->reclaim || worker->array_reclaim.first || cap_waits(executor);
}

/* True if the time has come for such a gap. */
static bool is_time_for_gap(struct executor *executor)
{
	struct module_worker *worker = &executor->modules;
	uint64_t now = clock_now();
	bool old = (worker->reclaim && now - worker->reclaim_since >= GATE_DEFER_NS) ||
		   (worker->array_reclaim.first && now - worker->array_reclaim.since >= GATE_DEFER_NS);

	if (!wants_gap(executor) || executor_is_lost(executor))
		return false;
	if (gate_try(executor))
		return true;
	if (now - worker->tried_at < (cap_waits(executor) ? CAP_NS : GATE_DEFER_NS))
		return false;
	if (!old && !cap_waits(executor))
		return false;
	worker->tried_at = now;
	return !gate_enter(executor, NULL, now);
}

/* While the gate is closed: a lookup that waits as well; NULL if none. */
static struct job *next_in_gap(struct executor *executor)
{
	if (clock_now() - executor->gate.closed_at >= executor->gate.batch_ns)
		return NULL;
	return job_queue_take_fitting(&executor->modules.queue, lookup_shares_gap, NULL);
}

/* Sleeps until a job comes, a rest is over, or deferred work is due for a look. Return: false at
 * the end. */
static bool wait_for_more(struct executor *executor)
{
	bool looks = deferred_waits(executor) || wants_gap(executor);

	return job_queue_sleep(&executor->modules.queue, looks ? clock_now() + DEFERRED_LOOK_NS : UINT64_MAX);
}

/* Does deferred frees, between jobs. Return: true if more may be possible now. */
static bool free_deferred(struct executor *executor)
{
	bool more;

	begin_work(executor, "what clients have left behind", NULL);
	more = deferred_work(executor);
	end_work(executor);
	return more;
}

static void look_for_gap(struct executor *executor)
{
	begin_work(executor, "what is to be made, unloaded and freed", NULL);
	if (is_time_for_gap(executor)) {
		cap_make_wanted(executor);
		reclaim_all(executor);
	}
	end_work(executor);
}

/* Where the device is idle a new session has its group before its first kernel is looked up. */
static void make_groups_at_once(struct executor *executor)
{
	if (cap_waits(executor) && !executor_is_lost(executor) && gate_try(executor))
		cap_make_wanted(executor);
}

/* The next job, in order but for lookups in a gap; NULL at the end. */
static struct job *next_job(struct executor *executor)
{
	struct module_worker *worker = &executor->modules;
	struct job *job;

	do {
		if (executor->gate.closed)
			cap_make_wanted(executor);
		job = executor->gate.closed ? next_in_gap(executor) : NULL;
		if (job)
			return job;
		/* In this gap, or in a later one. */
		if (deferred_presses(executor))
			free_deferred(executor);
		make_groups_at_once(executor);
		gate_leave(executor);
		job = job_queue_take(&worker->queue);
		while (!job && free_deferred(executor))
			job = job_queue_take(&worker->queue);
		if (!job)
			look_for_gap(executor);
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
	while ((job = next_job(executor)))
		run(executor, job);
	deferred_finish(executor);
	reclaim_all(executor);
	return NULL;
}

int module_worker_init(struct executor *executor)
{
	struct module_worker *worker = &executor->modules;
	int error;

	job_queue_init(&worker->queue);
	error = pthread_create(&worker->thread, NULL, work, executor);
	if (error)
		return -error;
	worker->started = true;
	return 0;
}

void module_worker_deinit(struct executor *executor)
{
	struct module_worker *worker = &executor->modules;

	job_queue_stop(&worker->queue);
	if (worker->started)
		pthread_join(worker->thread, NULL);
	worker->started = false;
	job_queue_deinit(&worker->queue);
}

void module_worker_wake(struct executor *executor)
{
	job_queue_wake(&executor->modules.queue);
}

void module_worker_queue_again(struct job *job)
{
	job_queue_append(&job->executor->modules.queue, job);
}

void module_worker_queue(struct job *job, void (*handle)(struct job *job))
{
	job->run = handle;
	job->since = clock_now();
	module_worker_queue_again(job);
}
