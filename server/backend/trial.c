// See trial.h. For each culprit:
//
//   survivor counts ─► culprit faults ─► the backend names it ─► survivor has gone on ─► culprit's stream is empty
//                                                                          ─► gate opens ─► all counts are equal
//
// Survivors count in place: in registers, in shared memory and in host memory. A fault that costs a
// survivor a step, or repeats a step, leaves the three different. The culprits follow each other in
// the same context, with the survivor launched anew.
//
// A rehearsal is the first of these trials in a context that stays in use, before any program uses
// the context. At the first fault of a context the driver's firmware stops warps again that have
// just been released, and the executor handles that like another fault. Beside three PyTorch
// programs the others waited 41 ms for the first fault, and 9 after a rehearsal (H200, driver
// 580.159.04).
//
// Single thread, and the backend's own, which calls back.

#include "server/backend/trial.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "server/backend/backend.h"
#include "server/clock.h"
#include "shm/order.h"

#define LOOK_NS 100000
/* Upper bound of a look's share of a step's time. A machine that stood still for longer proves no
 * silence of the device: nobody looked, and the device's threads did not run either. */
#define LOOK_MOST_NS (10 * CLOCK_MS)

enum verdict { VERDICT_NONE, VERDICT_CONTAINED, VERDICT_UNCONTAINED };

/* Written and read by survivors. */
struct board {
	word32 gate;
	word64 counts[TRIAL_THREADS_MAX];
	uint64_t results[TRIAL_THREADS_MAX][2];
};

/* The backend's reports about a fault. */
struct heard {
	struct backend_fault fault; /* the first; written before the verdict, and not again */
	word32 others;		    /* whether other kernels were named */
	word32 verdict;
};

struct trial {
	const struct backend_ops *ops;
	const struct trial_kernels *kernels;
	uint64_t patience_ns;
	char *why;
	struct board *board;
	struct backend_module *module;
	struct backend_stream *beside, *bad;
	const char *culprit;
	uint64_t before[TRIAL_THREADS_MAX]; /* counts as the round began */
	uint64_t seen;			    /* count of the first thread */
	CUresult code;			    /* of the latest query */
};

static struct heard heard;
/* Its objects live to the end of the process, but for a rehearsal's. */
static struct trial latest;

/* ---- the backend's thread ---- */

static void ignore(void *context)
{
	(void)context;
}

static void contained(void *context, const struct backend_fault *faults, uint32_t count)
{
	(void)context;
	if (!count)
		return;
	if (word_acquire(&heard.verdict) == VERDICT_NONE)
		heard.fault = faults[0];
	/* The same fault may be reported again as the device goes on. */
	for (uint32_t i = 0; i < count; i++)
		if (faults[i].module != heard.fault.module ||
			strcmp(faults[i].kernel, heard.fault.kernel) != 0)
			word_release(&heard.others, 1);
	if (word_acquire(&heard.verdict) == VERDICT_NONE)
		word_release(&heard.verdict, VERDICT_CONTAINED);
}

static void uncontained(void *context, const struct backend_fault *faults, uint32_t count)
{
	(void)context;
	(void)faults;
	(void)count;
	word_release(&heard.verdict, VERDICT_UNCONTAINED);
}

static const struct backend_watch watch = {
	.suspected = ignore, .stopped = ignore, .contained = contained, .uncontained = uncontained};

/* ---- the trial's ---- */

/* Return: false, for the caller to return */
static bool fail(struct trial *trial, const char *what)
{
	if (trial->culprit)
		snprintf(trial->why, TRIAL_TEXT, "after %s: %s", trial->culprit, what);
	else
		snprintf(trial->why, TRIAL_TEXT, "%s", what);
	return false;
}

static bool fail_with(struct trial *trial, const char *what, CUresult code)
{
	char text[TRIAL_TEXT / 2];

	snprintf(text, sizeof(text), "%s (code %d)", what, (int)code);
	return fail(trial, text);
}

typedef bool is_so_fn(struct trial *trial);

/* No event reports the device's writes. Return: true if the condition holds within the time */
static bool await(struct trial *trial, is_so_fn *is_so)
{
	const struct timespec pause = {.tv_nsec = LOOK_NS};
	uint64_t looked_ns = clock_now(), waited_ns = 0;

	while (!is_so(trial)) {
		uint64_t now = clock_now(), elapsed = now - looked_ns;

		waited_ns += elapsed < LOOK_MOST_NS ? elapsed : LOOK_MOST_NS;
		if (waited_ns >= trial->patience_ns)
			return false;
		looked_ns = now;
		nanosleep(&pause, NULL);
	}
	return true;
}

static bool has_counted(struct trial *trial)
{
	return word_acquire(&trial->board->counts[0]) > trial->seen;
}

static bool is_judged(struct trial *trial)
{
	(void)trial;
	return word_acquire(&heard.verdict) != VERDICT_NONE;
}

static bool is_empty(struct trial *trial, struct backend_stream *stream)
{
	trial->code = trial->ops->stream_query(stream);
	return trial->code != CUDA_ERROR_NOT_READY;
}

static bool bad_is_empty(struct trial *trial)
{
	return is_empty(trial, trial->bad);
}

static bool beside_is_empty(struct trial *trial)
{
	return is_empty(trial, trial->beside);
}

static CUresult launch(struct trial *trial, struct backend_stream *stream, const char *name,
	const void *arguments, uint32_t blocks, uint32_t threads)
{
	struct backend_function_info info;
	struct backend_launch launch = {
		.grid = {blocks, 1, 1}, .block = {threads, 1, 1}, .info = &info, .arguments = arguments};
	CUresult code = trial->ops->function_find(trial->module, name, true, &launch.function, &info);

	launch.argument_bytes = info.argument_bytes;
	return code ? code : trial->ops->launch(stream, &launch);
}

static CUresult load(struct trial *trial, const void *image, size_t bytes)
{
	struct backend_load load = {.image = image, .bytes = bytes, .room = UINT64_MAX};

	return trial->ops->module_load(&load, &trial->module);
}

static CUresult load_kernels(struct trial *trial)
{
	const struct trial_kernels *kernels = trial->kernels;
	void *compiled;
	size_t bytes;
	CUresult code;

	if (!kernels->compile)
		return load(trial, kernels->image, kernels->bytes);
	code = kernels->compile(kernels->image, kernels->bytes, &compiled, &bytes);
	if (code)
		return code;
	code = load(trial, compiled, bytes);
	free(compiled);
	return code;
}

static bool prepare(struct trial *trial)
{
	const struct backend_ops *ops = trial->ops;
	CUresult code;

	trial->board =
		mmap(NULL, sizeof(*trial->board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (trial->board == MAP_FAILED)
		return fail(trial, "no memory for it");
	code = ops->host_register(trial->board, sizeof(*trial->board));
	if (!code)
		code = load_kernels(trial);
	if (!code)
		code = ops->stream_create(0, 0, &trial->beside);
	if (!code)
		code = ops->stream_create(0, 0, &trial->bad);
	return code ? fail_with(trial, "its kernels cannot be loaded", code) : true;
}

/* Return: true if the survivor counts */
static bool start_survivor(struct trial *trial)
{
	const uint64_t arguments[] = {(uintptr_t)trial->board->counts, (uintptr_t)trial->board->results,
		(uintptr_t)&trial->board->gate};
	CUresult code;

	for (uint32_t i = 0; i < TRIAL_THREADS_MAX; i++)
		trial->before[i] = word_acquire(&trial->board->counts[i]);
	memset(trial->board->results, 0, sizeof(trial->board->results));
	word_release(&trial->board->gate, 0);
	trial->seen = trial->before[0];
	code = launch(trial, trial->beside, trial->kernels->survivor, arguments, trial->kernels->blocks,
		trial->kernels->threads);
	if (code)
		return fail_with(trial, "a kernel cannot be launched", code);
	return await(trial, has_counted) || fail(trial, "a kernel does not begin");
}

static bool is_exact(const struct trial *trial)
{
	uint32_t threads = trial->kernels->blocks * trial->kernels->threads;

	for (uint32_t i = 0; i < threads; i++) {
		uint64_t counted = word_acquire(&trial->board->counts[i]) - trial->before[i];

		if (!counted || trial->board->results[i][0] != counted ||
			trial->board->results[i][1] != counted)
			return false;
	}
	return true;
}

/* True if exactly the culprit was named. */
static bool is_named(struct trial *trial, CUresult code)
{
	const struct backend_fault *fault = &heard.fault;

	if (word_acquire(&heard.verdict) == VERDICT_UNCONTAINED)
		return fail(trial, "the fault is not contained");
	if (word_acquire(&heard.others) || fault->module != trial->module ||
		strcmp(fault->kernel, trial->culprit) != 0)
		return fail(trial, "another kernel was named");
	return fault->code == code || fail_with(trial, "another fault was named", fault->code);
}

static bool end_survivor(struct trial *trial, CUresult wanted)
{
	word_release(&trial->board->gate, 1);
	if (!await(trial, beside_is_empty))
		return fail(trial, "the kernel beside it does not end");
	if (trial->code)
		return fail_with(trial, "the kernel beside it fails", trial->code);
	/* Reports since then. */
	if (!is_named(trial, wanted))
		return false;
	return is_exact(trial) || fail(trial, "the kernel beside it has counted wrong");
}

static bool fault(struct trial *trial, CUresult wanted)
{
	CUresult code;

	word_release(&heard.others, 0);
	word_release(&heard.verdict, VERDICT_NONE);
	code = launch(trial, trial->bad, trial->culprit, NULL, 1, 1);
	if (code)
		return fail_with(trial, "it cannot be launched", code);
	if (!await(trial, is_judged))
		return fail(trial, "the fault was not reported in time");
	if (!is_named(trial, wanted))
		return false;
	if (!await(trial, bad_is_empty))
		return fail(trial, "it does not end");
	if (trial->code)
		return fail_with(trial, "its stream fails", trial->code);
	/* The writes of one step of a thread may be on their way: two more steps are certainly
	 * after the fault. */
	trial->seen = word_acquire(&trial->board->counts[0]) + 1;
	return await(trial, has_counted) || fail(trial, "the kernel beside it does not go on");
}

/* @count: how many of the culprits, if there are so many */
static bool try_culprits(struct trial *trial, uint32_t count)
{
	for (uint32_t i = 0; i < count && trial->kernels->culprits[i].name; i++) {
		trial->culprit = NULL;
		if (!start_survivor(trial))
			return false;
		trial->culprit = trial->kernels->culprits[i].name;
		if (!fault(trial, trial->kernels->culprits[i].code) ||
			!end_survivor(trial, trial->kernels->culprits[i].code))
			return false;
	}
	return true;
}

/* Return: true if proved, and the trial's objects are to be freed */
static bool run(const struct backend_ops *ops, const struct trial_kernels *kernels, uint32_t count,
	unsigned patience_ms, char *ret_why)
{
	*ret_why = '\0';
	latest = (struct trial){
		.ops = ops, .kernels = kernels, .patience_ns = patience_ms * CLOCK_MS, .why = ret_why};
	atomic_store_explicit(&backend_watch, &watch, memory_order_release);
	return prepare(&latest) && try_culprits(&latest, count);
}

/* Nothing of the trial runs any more. */
static void give_back(struct trial *trial)
{
	trial->ops->stream_destroy(trial->bad);
	trial->ops->stream_destroy(trial->beside);
	trial->ops->module_unload(trial->module);
	if (!trial->ops->host_unregister(trial->board))
		munmap(trial->board, sizeof(*trial->board));
}

void trial_run(const struct backend_ops *ops, const struct trial_kernels *kernels, unsigned patience_ms,
	char *ret_why)
{
	run(ops, kernels, TRIAL_CULPRITS, patience_ms, ret_why);
}

bool trial_rehearse(const struct backend_ops *ops, const struct trial_kernels *kernels, unsigned patience_ms,
	char *ret_why)
{
	bool done = run(ops, kernels, 1, patience_ms, ret_why);

	if (done)
		give_back(&latest);
	return done;
}
