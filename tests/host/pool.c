// Streams and the threads that run their commands.
//
// A stream is a queue of commands. A stream with work is exactly one of: ready (in the pool's
// list), run (a worker has the stream), parked (the next command waits for a record; the stream is
// in that record's list and no thread knows of it). So commands of a stream run in order, streams
// do not block each other, and a wait costs no thread.
//
// 	idle ──push──► ready ──worker takes it──► run ──queue empty──► idle
// 	                 ▲                         │
// 	                 └──record done── parked ◄─┘ next command is a wait for a record that is not done
//
// Threads are made on demand up to HOST_WORKERS_MAX and leave after a while without work; one
// always stays, so that pushing work needs no further resources. More kernels than threads: the
// rest wait, as on a GPU without free multiprocessors.
//
// Some calls of a real driver stop the device: they wait until all issued commands are done, and
// further commands wait as well. host_pool_stop() and host_pool_go_on() enclose such a call.
//
// A fence stops the device at once: threads that run a command get a signal, whose handler never
// returns. Such a thread's locks (of the C library, perhaps) stay taken until the end of the
// process, which follows.
//
// A single lock for everything, which is never held while a command runs. Questions about an end of
// kernels (struct backend_ending) are asked under this lock, as the driver's thread asks with its
// locks held: the executor may take `tenants`, `contain` and `ends` then (shm/locks.def).

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/host/host.h"
#include "server/detached.h"
#include "shm/order.h"

/* A worker without work leaves after this; close waits so long for workers that are busy. */
#define IDLE_SECONDS  2
#define CLOSE_SECONDS 1
#define FENCE_SECONDS 1

struct backend_stream {
	struct host_work *head, **tail;
	uint64_t sms;
	bool active;		     /* ready, run or parked */
	bool detached;		     /* only collects */
	bool dying;		     /* free the stream when idle */
	struct backend_stream *next; /* in the ready list or in a record's list */
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t work;	/* ready list not empty, or closing */
	pthread_cond_t leaving; /* a worker left */
	pthread_cond_t stopped; /* no stream has work any more, or the device is not stopped any more */
	struct backend_stream *ready, **ready_tail;
	unsigned ready_count, sleeping;
	unsigned busy;	  /* streams with work */
	unsigned running; /* commands that run */
	unsigned stops;	  /* calls that stop the device */
	unsigned workers; /* that will still take work */
	unsigned alive;	  /* that still run code */
	bool closing;
	bool fenced;
	bool ends_none, ends_in_vain; /* host_pool_end() */
	struct {
		pthread_t thread;
		struct host_work *runs; /* a command; NULL: none */
	} runners[HOST_WORKERS_MAX];
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Of those that a fence stops. */
#define FENCE_SIGNAL SIGUSR2
static word32 stayed;

static void stay(int number)
{
	(void)number;
	atomic_fetch_add(&stayed, 1);
	for (;;)
		pause();
}

static void *worker_main(void *argument);

static struct timespec in_seconds(int seconds)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	at.tv_sec += seconds;
	return at;
}

static bool is_before(const struct timespec *until)
{
	struct timespec now = in_seconds(0);

	return now.tv_sec < until->tv_sec || (now.tv_sec == until->tv_sec && now.tv_nsec < until->tv_nsec);
}

/* Signals for the process go to threads of its own; only a thread's own signals arrive here. */
static bool spawn_worker(void)
{
	sigset_t others;

	sigfillset(&others);
	sigdelset(&others, SIGSEGV);
	sigdelset(&others, SIGBUS);
	sigdelset(&others, SIGILL);
	sigdelset(&others, SIGFPE);
	sigdelset(&others, SIGABRT);
	sigdelset(&others, SIGTRAP);
	sigdelset(&others, FENCE_SIGNAL);
	sigdelset(&others, HOST_END_SIGNAL);
	if (detached_start(worker_main, NULL, &others))
		return false;
	pool.workers++;
	pool.alive++;
	return true;
}

/* Under the lock. */
static void make_ready(struct backend_stream *stream)
{
	stream->active = true;
	stream->next = NULL;
	*pool.ready_tail = stream;
	pool.ready_tail = &stream->next;
	pool.ready_count++;
	if (pool.ready_count > pool.sleeping && pool.workers < HOST_WORKERS_MAX)
		spawn_worker(); /* on failure, the present threads run the command later */
	pthread_cond_signal(&pool.work);
}

static struct backend_stream *take_ready(void)
{
	struct backend_stream *stream = pool.ready;

	pool.ready = stream->next;
	if (!pool.ready)
		pool.ready_tail = &pool.ready;
	pool.ready_count--;
	return stream;
}

/*
 * Records
 */

static void record_unref(struct host_record *record)
{
	if (record && !--record->refs)
		free(record);
}

static void record_finish(struct host_record *record)
{
	struct backend_stream *stream, *next;
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	record->nanoseconds = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
	record->done = true;
	for (stream = record->waiting; stream; stream = next) {
		next = stream->next;
		make_ready(stream);
	}
	record->waiting = NULL;
}

void host_event_drop_latest(struct backend_event *event)
{
	pthread_mutex_lock(&pool.lock);
	record_unref(event->latest);
	event->latest = NULL;
	pthread_mutex_unlock(&pool.lock);
}

CUresult host_event_time(struct backend_event *event, int64_t *ret_nanoseconds)
{
	CUresult code = CUDA_SUCCESS;

	pthread_mutex_lock(&pool.lock);
	if (!event->latest)
		code = CUDA_ERROR_INVALID_HANDLE;
	else if (!event->latest->done)
		code = CUDA_ERROR_NOT_READY;
	else
		*ret_nanoseconds = event->latest->nanoseconds;
	pthread_mutex_unlock(&pool.lock);
	return code;
}

/*
 * Working off
 */

static struct host_work *take_work(struct backend_stream *stream)
{
	struct host_work *work = stream->head;

	stream->head = work->next;
	if (!stream->head)
		stream->tail = &stream->head;
	return work;
}

/* Under the lock, which is released while the command runs. */
static void run(struct host_work *work)
{
	unsigned i = 0;

	while (pool.runners[i].runs)
		i++; /* there are as many as workers */
	pool.runners[i].thread = pthread_self();
	pool.runners[i].runs = work;
	pool.running++;
	pthread_mutex_unlock(&pool.lock);
	host_work_run(work);
	pthread_mutex_lock(&pool.lock);
	pool.runners[i].runs = NULL;
	if (!--pool.running)
		host_faults_idle();
}

/* The body that is to be worked off now; NULL: none. */
static struct host_work **choose(const struct host_branch *branch)
{
	uint32_t value = word_acquire((word32 *)(uintptr_t)branch->word), number = value;

	if (branch->kind == CU_GRAPH_COND_TYPE_IF)
		number = value ? 0 : 1;
	else if (branch->kind == CU_GRAPH_COND_TYPE_WHILE)
		number = value ? 0 : branch->bodies;
	if (branch->over && word_acquire(branch->over))
		number = branch->bodies;
	return number < branch->bodies ? &branch->body[number] : NULL;
}

static bool stands_still(void)
{
	return host_faults_stopped() || pool.fenced || pool.closing;
}

/* The same commands run again and again in a loop. Return: false: the device stands still. */
static bool run_branch(const struct host_branch *branch)
{
	struct host_work **body;

	while (!stands_still() && (body = choose(branch))) {
		for (struct host_work *work = *body; work; work = work->next) {
			if (stands_still() || (work->kind == HOST_BRANCH && !run_branch(&work->branch)))
				return false;
			if (work->kind != HOST_BRANCH)
				run(work);
		}
		if (branch->kind != CU_GRAPH_COND_TYPE_WHILE)
			return true;
		/* A body may have no commands, and others have to get the lock. */
		pthread_mutex_unlock(&pool.lock);
		sched_yield();
		pthread_mutex_lock(&pool.lock);
	}
	return !stands_still();
}

/* Runs a command, with the lock released meanwhile. False: the stream was parked and does not
 * belong to this thread any more. */
static bool step(struct backend_stream *stream)
{
	struct host_work *work = stream->head;

	if (host_faults_stopped() || pool.fenced)
		return false;
	if (work->kind == HOST_WAIT && !work->record->done) {
		stream->next = work->record->waiting;
		work->record->waiting = stream;
		return false;
	}
	if (work->kind == HOST_BRANCH) {
		if (!run_branch(&work->branch))
			return false;
	} else if (work->kind == HOST_RECORD) {
		record_finish(work->record);
	} else if (work->kind != HOST_WAIT) {
		run(work);
	}
	take_work(stream);
	if (work->kind == HOST_RECORD || work->kind == HOST_WAIT)
		record_unref(work->record);
	host_work_free(work);
	return true;
}

static void run_stream(struct backend_stream *stream)
{
	while (stream->head) {
		if (!step(stream))
			return;
		/* Other streams wait and no thread is free: they get their turn between two
		 * commands. */
		if (stream->head && pool.ready && !pool.sleeping && pool.workers >= HOST_WORKERS_MAX) {
			make_ready(stream);
			return;
		}
	}
	stream->active = false;
	if (!--pool.busy)
		pthread_cond_broadcast(&pool.stopped);
	if (stream->dying)
		free(stream);
}

/* False: without work for so long that this worker may end (the count goes down before the lock is
 * released, so that of two workers at least one stays). */
static bool wait_for_work(void)
{
	struct timespec until = in_seconds(IDLE_SECONDS);
	int result = 0;

	pool.sleeping++;
	while (!pool.ready && !pool.closing && !(result == ETIMEDOUT && pool.workers > 1)) {
		if (result == ETIMEDOUT)
			until = in_seconds(IDLE_SECONDS);
		result = pthread_cond_timedwait(&pool.work, &pool.lock, &until);
	}
	pool.sleeping--;
	return pool.ready && !pool.closing;
}

static void *worker_main(void *argument)
{
	(void)argument;
	host_faults_enter_thread();
	pthread_mutex_lock(&pool.lock);
	while (wait_for_work())
		run_stream(take_ready());
	pool.workers--;
	pthread_mutex_unlock(&pool.lock);
	host_faults_leave_thread();
	pthread_mutex_lock(&pool.lock);
	pool.alive--;
	pthread_cond_broadcast(&pool.leaving);
	pthread_mutex_unlock(&pool.lock);
	return NULL;
}

/*
 * Interface for the rest of the backend
 */

CUresult host_pool_init(void)
{
	struct sigaction action = {.sa_handler = stay, .sa_flags = SA_ONSTACK};
	pthread_condattr_t monotonic;
	bool there;

	if (sigaction(FENCE_SIGNAL, &action, NULL))
		return CUDA_ERROR_OPERATING_SYSTEM;
	word_set(&stayed, 0);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&pool.work, &monotonic);
	pthread_cond_init(&pool.leaving, &monotonic);
	pthread_cond_init(&pool.stopped, &monotonic);
	pthread_condattr_destroy(&monotonic);
	pthread_mutex_lock(&pool.lock);
	pool.ready = NULL;
	pool.ready_tail = &pool.ready;
	pool.ready_count = 0;
	pool.closing = pool.fenced = false;
	pool.ends_none = host_is_set_to("FRMPS_HOST_END", "none");
	pool.ends_in_vain = host_is_set_to("FRMPS_HOST_END", "vain");
	memset(pool.runners, 0, sizeof(pool.runners));
	there = spawn_worker();
	pthread_mutex_unlock(&pool.lock);
	return there ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

void host_pool_deinit(void)
{
	struct timespec until = in_seconds(CLOSE_SECONDS);

	pthread_mutex_lock(&pool.lock);
	pool.closing = true;
	pthread_cond_broadcast(&pool.work);
	while (pool.alive && pthread_cond_timedwait(&pool.leaving, &pool.lock, &until) != ETIMEDOUT)
		;
	pthread_mutex_unlock(&pool.lock);
}

struct backend_stream *host_stream_new(uint64_t sms)
{
	struct backend_stream *stream = calloc(1, sizeof(*stream));

	if (!stream)
		return NULL;
	stream->tail = &stream->head;
	stream->sms = sms;
	return stream;
}

struct backend_stream *host_stream_new_detached(uint64_t sms)
{
	struct backend_stream *stream = host_stream_new(sms);

	if (stream)
		stream->detached = true;
	return stream;
}

struct host_work *host_stream_take_all(struct backend_stream *stream)
{
	struct host_work *work = stream ? stream->head : NULL;

	free(stream);
	return work;
}

void host_work_free(struct host_work *work)
{
	for (uint32_t i = 0; work->kind == HOST_BRANCH && i < work->branch.bodies; i++) {
		struct host_work *inside = work->branch.body[i], *next;

		for (; inside; inside = next) {
			next = inside->next;
			host_work_free(inside);
		}
	}
	free(work);
}

uint64_t host_stream_sms(const struct backend_stream *stream)
{
	return stream->sms;
}

void host_stream_free(struct backend_stream *stream)
{
	bool active;

	if (!stream)
		return;
	pthread_mutex_lock(&pool.lock);
	active = stream->active;
	stream->dying = true;
	pthread_mutex_unlock(&pool.lock);
	if (!active)
		free(stream);
}

bool host_stream_idle(struct backend_stream *stream)
{
	bool idle;

	pthread_mutex_lock(&pool.lock);
	idle = !stream->active;
	pthread_mutex_unlock(&pool.lock);
	return idle;
}

struct host_work *host_work_new(enum host_work_kind kind, size_t bytes)
{
	struct host_work *work = host_faults_code() ? NULL : calloc(1, sizeof(*work) + bytes);

	if (work)
		work->kind = kind;
	return work;
}

CUresult host_work_error(void)
{
	CUresult code = host_faults_code();

	return code ? code : CUDA_ERROR_OUT_OF_MEMORY;
}

/* A thread that has ended its command meanwhile waits for the lock, and is stopped there. */
CUresult host_pool_fence(void)
{
	struct timespec until = in_seconds(FENCE_SECONDS);
	uint32_t asked = 0;
	bool there;

	pthread_mutex_lock(&pool.lock);
	pool.fenced = true;
	for (unsigned i = 0; i < HOST_WORKERS_MAX; i++)
		if (pool.runners[i].runs && !pthread_kill(pool.runners[i].thread, FENCE_SIGNAL))
			asked++;
	while (word_acquire(&stayed) < asked && is_before(&until))
		sched_yield();
	there = word_acquire(&stayed) == asked;
	pthread_mutex_unlock(&pool.lock);
	return there ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

static bool is_of(const struct host_work *work, struct backend_module *const *modules, uint32_t count)
{
	for (uint32_t i = 0; i < count && work->kind == HOST_LAUNCH; i++)
		if (work->launch.module == modules[i])
			return true;
	return false;
}

/* Under the lock. Return: true if no kernel of the modules runs, and a kernel of others does */
static bool is_waiting(struct backend_module *const *modules, uint32_t count)
{
	bool others = false;

	for (unsigned i = 0; i < HOST_WORKERS_MAX; i++) {
		const struct host_work *work = pool.runners[i].runs;

		if (!work || work->kind != HOST_LAUNCH)
			continue;
		if (is_of(work, modules, count))
			return false;
		others = true;
	}
	return others;
}

/* Only kernels that run: there is no list of commands in all queues. The word identifies the kernel
 * that the signal is for, and is valid as long as the lock is held. Under the lock. */
static void end_kernels(struct backend_module *const *modules, uint32_t count, char *ret_kernel)
{
	for (unsigned i = 0; i < HOST_WORKERS_MAX; i++) {
		struct host_work *work = pool.runners[i].runs;

		if (!work || !is_of(work, modules, count))
			continue;
		snprintf(ret_kernel, BACKEND_KERNEL_BYTES, "%s", work->launch.kernel->name);
		word_release(&work->launch.over, 1);
		pthread_kill(pool.runners[i].thread, HOST_END_SIGNAL);
	}
}

/* Under the lock. */
static void ask_and_end(const struct backend_ending *ending, char *ret_kernel)
{
	uint32_t count;
	struct backend_module **modules = ending->list(ending->context, &count);
	bool may_end = !ending->may_end || ending->may_end(ending->context, is_waiting(modules, count));

	if (may_end && !pool.fenced && !pool.ends_in_vain)
		end_kernels(modules, count, ret_kernel);
	free(modules);
}

/* With FRMPS_HOST_END=none the backend cannot, with vain no kernel ends. */
CUresult host_pool_end(const struct backend_ending *ending, char *ret_kernel)
{
	*ret_kernel = '\0';
	if (pool.ends_none)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!ending)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&pool.lock);
	ask_and_end(ending, ret_kernel);
	pthread_mutex_unlock(&pool.lock);
	return CUDA_SUCCESS;
}

void host_pool_stop(void)
{
	pthread_mutex_lock(&pool.lock);
	pool.stops++;
	while (pool.busy)
		pthread_cond_wait(&pool.stopped, &pool.lock);
	pthread_mutex_unlock(&pool.lock);
}

void host_pool_go_on(void)
{
	pthread_mutex_lock(&pool.lock);
	if (!--pool.stops)
		pthread_cond_broadcast(&pool.stopped);
	pthread_mutex_unlock(&pool.lock);
}

/* Under the lock, which is released while the device is stopped. */
static void push(struct backend_stream *stream, struct host_work *work)
{
	while (pool.stops && !stream->detached)
		pthread_cond_wait(&pool.stopped, &pool.lock);
	*stream->tail = work;
	stream->tail = &work->next;
	if (stream->active || stream->detached)
		return;
	pool.busy++;
	make_ready(stream);
}

void host_stream_push(struct backend_stream *stream, struct host_work *work)
{
	pthread_mutex_lock(&pool.lock);
	push(stream, work);
	pthread_mutex_unlock(&pool.lock);
}

CUresult host_stream_push_record(
	struct backend_stream *stream, struct backend_event *event, struct host_work *work)
{
	struct host_record *record = calloc(1, sizeof(*record));

	if (!record) {
		free(work);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	record->refs = 2; /* the event's and the command's */
	work->record = record;
	pthread_mutex_lock(&pool.lock);
	record_unref(event->latest);
	event->latest = record;
	push(stream, work);
	pthread_mutex_unlock(&pool.lock);
	return CUDA_SUCCESS;
}

CUresult host_stream_push_wait(
	struct backend_stream *stream, struct backend_event *event, struct host_work *work)
{
	pthread_mutex_lock(&pool.lock);
	work->record = event->latest;
	if (work->record) {
		work->record->refs++;
		push(stream, work);
		work = NULL;
	}
	pthread_mutex_unlock(&pool.lock);
	free(work); /* an event without a record is nothing to wait for */
	return CUDA_SUCCESS;
}
