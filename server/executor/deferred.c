// Deferred frees of pinned memory and ended sessions. Module thread; other threads only add and
// look.
//
// Memory that waits stays mapped and registered, its addresses are not used again, and it counts as
// the session's. First come, first served: a session comes behind the ranges that the session freed
// before its end. One of three ways leads to the moment when nothing runs:
//
//   at leisure   at every look, if no session has work on the device: the gate is closed, at most
//                for GATE_CLOSED_NS if work has come after all (gate_try)
//   old          the first has waited for GATE_DEFER_NS, because some session always has work: the
//                gate makes a gap, as for other deferred work (GATE_NOBODY_NS), and tries again
//                after as long
//   pressing     more than the limit waits: the gate makes a gap, as for a request (gate_enter).
//                The gate is closed for a tenth of the time at most. If no gap comes within the
//                gate's patience, because of a kernel that does not end, the next try is
//                DEFERRED_RETRY_NS later
//
// A gap is used for GATE_BATCH_NS plus the last step; a step is one call of the driver that would
// stop the device. While no gap comes and more than the limit waits, or twice the limit, no session
// may pin more memory (deferred_admits). A new session is refused only while no gap comes
// (deferred_is_stuck): programs that end while others start are no reason to refuse those. So the
// waiting bytes are bounded by twice the limit, the bytes that clients had pinned then, and the
// regions of the sessions that end within the gate's patience.

#include "server/executor/deferred.h"

#include <errno.h>
#include <stdlib.h>

#include "server/clock.h"
#include "server/executor/memory.h"
#include "server/executor/tenant.h"
#include "server/log.h"

#define DEFERRED_RETRY_NS (UINT64_C(10000) * CLOCK_MS)
/* After a gap, so many times its length for the clients. */
#define DEFERRED_REST 9u

uint64_t deferred_limit = UINT64_C(1) << 30;

void deferred_init(struct executor *executor)
{
	struct deferred_frees *frees = &executor->deferred;

	TAILQ_INIT(&frees->list);
	pthread_mutex_init(&frees->lock, NULL);
}

void deferred_deinit(struct executor *executor)
{
	pthread_mutex_destroy(&executor->deferred.lock);
}

/* ---- what waits ---- */

static bool is_range(const struct deferred_free *entry)
{
	return entry->range.start != entry->range.end;
}

static void add(struct deferred_free *entry)
{
	struct deferred_frees *frees = &entry->tenant->executor->deferred;

	entry->since = clock_now();
	pthread_mutex_lock(&frees->lock);
	TAILQ_INSERT_TAIL(&frees->list, entry, link);
	frees->bytes += entry->bytes;
	frees->count++;
	pthread_mutex_unlock(&frees->lock);
}

int deferred_add_range(struct tenant *tenant, const struct range *range)
{
	struct deferred_free *entry = calloc(1, sizeof(*entry));

	if (!entry || range_set_add(&tenant->unpinning, range->start, range->end - range->start)) {
		free(entry);
		return -ENOMEM;
	}
	entry->tenant = tenant_ref(tenant);
	entry->range = *range;
	entry->bytes = range->end - range->start;
	add(entry);
	return 0;
}

void deferred_add_tenant(struct tenant *tenant, uint64_t bytes, void (*release)(struct tenant *tenant))
{
	tenant->deferred = (struct deferred_free){.tenant = tenant, .bytes = bytes, .release = release};
	add(&tenant->deferred);
}

static struct deferred_free *find(struct deferred_frees *frees, uint64_t session, const struct range *range)
{
	struct deferred_free *entry;

	TAILQ_FOREACH (entry, &frees->list, link)
		if (entry->tenant->id == session &&
			(range ? entry->range.start == range->start && entry->range.end == range->end
			       : !is_range(entry)))
			return entry;
	return NULL;
}

bool deferred_watch(struct executor *executor, uint64_t session, const struct range *range, struct job *job)
{
	struct deferred_frees *frees = &executor->deferred;
	struct deferred_free *entry;
	bool waits;

	pthread_mutex_lock(&frees->lock);
	entry = find(frees, session, range);
	waits = entry && !entry->waiter;
	if (waits)
		entry->waiter = job;
	pthread_mutex_unlock(&frees->lock);
	return waits;
}

uint64_t deferred_bytes(const struct tenant *tenant)
{
	struct deferred_frees *frees = &tenant->executor->deferred;
	const struct deferred_free *entry;
	uint64_t bytes = 0;

	pthread_mutex_lock(&frees->lock);
	TAILQ_FOREACH (entry, &frees->list, link)
		if (entry->tenant == tenant)
			bytes += entry->bytes;
	pthread_mutex_unlock(&frees->lock);
	return bytes;
}

bool deferred_waits(struct executor *executor)
{
	struct deferred_frees *frees = &executor->deferred;
	bool waits;

	pthread_mutex_lock(&frees->lock);
	waits = !TAILQ_EMPTY(&frees->list);
	pthread_mutex_unlock(&frees->lock);
	return waits;
}

static bool is_over(struct deferred_frees *frees, unsigned times)
{
	bool over;

	pthread_mutex_lock(&frees->lock);
	over = frees->bytes > times * deferred_limit || frees->count > times * DEFERRED_COUNT;
	pthread_mutex_unlock(&frees->lock);
	return over;
}

bool deferred_is_stuck(struct executor *executor)
{
	return executor->deferred.stuck && is_over(&executor->deferred, 1);
}

bool deferred_admits(struct executor *executor)
{
	struct deferred_frees *frees = &executor->deferred;

	return !is_over(frees, 2) && !deferred_is_stuck(executor);
}

/* ---- the moment ---- */

static bool is_idle(struct executor *executor)
{
	struct tenant *tenant;
	bool busy = false;

	pthread_mutex_lock(&executor->tenants_lock);
	TAILQ_FOREACH (tenant, &executor->tenants, link)
		busy = busy || (word_acquire(&tenant->generation) && tenant_is_busy(tenant));
	pthread_mutex_unlock(&executor->tenants_lock);
	return !busy;
}

bool deferred_presses(struct executor *executor)
{
	return is_over(&executor->deferred, 1) && clock_now() >= executor->deferred.retry_at;
}

static bool has_old(struct deferred_frees *frees)
{
	uint64_t now = clock_now(), since;

	pthread_mutex_lock(&frees->lock);
	since = TAILQ_FIRST(&frees->list)->since;
	pthread_mutex_unlock(&frees->lock);
	return now - since >= GATE_DEFER_NS && now - frees->tried_at >= GATE_DEFER_NS &&
	       now >= frees->retry_at;
}

/* For few bytes: beside a kernel that does not end they just stay. Return: as make_gap() */
static bool make_gap_for_old(struct executor *executor)
{
	struct deferred_frees *frees = &executor->deferred;
	int error;

	if (!has_old(frees))
		return false;
	error = gate_enter(executor, NULL, clock_now());
	if (error)
		frees->tried_at = clock_now();
	return !error;
}

/* Return: true if the gate is closed now and nothing runs. */
static bool make_gap(struct executor *executor)
{
	struct deferred_frees *frees = &executor->deferred;
	struct gate *gate = &executor->gate;
	int error;

	if (gate->closed || (is_idle(executor) && gate_try(executor)))
		return true;
	if (!deferred_presses(executor))
		return make_gap_for_old(executor);
	gate->pressing = true;
	error = gate_enter(executor, NULL, clock_now());
	gate->pressing = false;
	if (error == GATE_E_LONG) {
		frees->stuck = true;
		frees->retry_at = clock_now() + DEFERRED_RETRY_NS;
		log_warning("%llu MiB stay pinned: a kernel of %s, pid %d, has been running for %llu ms, and "
			    "unpinning would stop everybody until it ends",
			(unsigned long long)(frees->bytes >> 20), gate->obstacle.program, gate->obstacle.pid,
			(unsigned long long)(gate->obstacle.ns / CLOCK_MS));
	}
	return !error;
}

/* Does a step. Return: its bytes; *ret_over: this was the last step. */
static uint64_t step(struct deferred_free *entry, bool *ret_over)
{
	uint64_t bytes;

	*ret_over = true;
	if (is_range(entry)) {
		memory_unpin(entry->tenant, &entry->range);
		return entry->bytes;
	}
	bytes = memory_unpin_next(entry->tenant);
	if (bytes) {
		*ret_over = false;
		return bytes;
	}
	entry->release(entry->tenant);
	return entry->bytes;
}

static void end(struct deferred_free *entry)
{
	struct tenant *tenant = entry->tenant;

	if (entry->waiter)
		job_reply(entry->waiter, CUDA_SUCCESS, NULL, 0, NULL);
	if (is_range(entry))
		free(entry);
	tenant_unref(tenant);
}

/* A step of the first that waits. */
static void free_some(struct deferred_frees *frees)
{
	struct deferred_free *entry;
	uint64_t bytes;
	bool over;

	pthread_mutex_lock(&frees->lock);
	entry = TAILQ_FIRST(&frees->list);
	pthread_mutex_unlock(&frees->lock);
	/* The entry stays in the list during the step: no thread may take the free for done
	 * early. */
	bytes = step(entry, &over);
	pthread_mutex_lock(&frees->lock);
	entry->bytes -= bytes;
	frees->bytes -= bytes;
	frees->count -= over;
	if (over)
		TAILQ_REMOVE(&frees->list, entry, link);
	pthread_mutex_unlock(&frees->lock);
	if (over)
		end(entry);
}

static void use_gap(struct executor *executor)
{
	struct deferred_frees *frees = &executor->deferred;
	uint64_t begin = executor->gate.closed_at, now;

	frees->stuck = false;
	do {
		free_some(frees);
		now = clock_now();
	} while (now - begin < GATE_BATCH_NS && deferred_waits(executor) && !executor_is_lost(executor));
	gate_leave(executor);
	frees->retry_at = now + DEFERRED_REST * (now - begin);
}

bool deferred_work(struct executor *executor)
{
	if (!deferred_waits(executor) || executor_is_lost(executor) || !make_gap(executor))
		return false;
	use_gap(executor);
	return true;
}

void deferred_finish(struct executor *executor)
{
	while (deferred_waits(executor) && !executor_is_lost(executor))
		free_some(&executor->deferred);
}
