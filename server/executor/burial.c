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
//                BURIAL_RETRY_NS later
//
// A gap is used for GATE_BATCH_NS plus the last step; a step is one call of the driver that would
// stop the device. While no gap comes and more than the limit waits, or twice the limit, no session
// may pin more memory (burial_admits). A new session is refused only while no gap comes
// (burial_is_stuck): programs that end while others start are no reason to refuse those. So the
// waiting bytes are bounded by twice the limit, the bytes that clients had pinned then, and the
// regions of the sessions that end within the gate's patience.

#include "server/executor/burial.h"

#include <errno.h>
#include <stdlib.h>

#include "server/clock.h"
#include "server/executor/memory.h"
#include "server/executor/tenant.h"
#include "server/log.h"

#define BURIAL_RETRY_NS (UINT64_C(10000) * CLOCK_MS)
/* After a gap, so many times its length for the clients. */
#define BURIAL_REST 9u

uint64_t burial_limit = UINT64_C(1) << 30;

void burial_init(struct executor *executor)
{
	struct burials *burials = &executor->burials;

	TAILQ_INIT(&burials->list);
	pthread_mutex_init(&burials->lock, NULL);
}

void burial_deinit(struct executor *executor)
{
	pthread_mutex_destroy(&executor->burials.lock);
}

/* ---- what waits ---- */

static bool is_range(const struct burial *burial)
{
	return burial->range.start != burial->range.end;
}

static void add(struct burial *burial)
{
	struct burials *burials = &burial->tenant->executor->burials;

	burial->since = clock_now();
	pthread_mutex_lock(&burials->lock);
	TAILQ_INSERT_TAIL(&burials->list, burial, link);
	burials->bytes += burial->bytes;
	burials->count++;
	pthread_mutex_unlock(&burials->lock);
}

int burial_add_range(struct tenant *tenant, const struct range *range)
{
	struct burial *burial = calloc(1, sizeof(*burial));

	if (!burial || range_set_add(&tenant->unpinning, range->start, range->end - range->start)) {
		free(burial);
		return -ENOMEM;
	}
	burial->tenant = tenant_ref(tenant);
	burial->range = *range;
	burial->bytes = range->end - range->start;
	add(burial);
	return 0;
}

void burial_add_tenant(struct tenant *tenant, uint64_t bytes, void (*release)(struct tenant *tenant))
{
	tenant->burial = (struct burial){.tenant = tenant, .bytes = bytes, .release = release};
	add(&tenant->burial);
}

static struct burial *find(struct burials *burials, uint64_t session, const struct range *range)
{
	struct burial *burial;

	TAILQ_FOREACH (burial, &burials->list, link)
		if (burial->tenant->id == session &&
			(range ? burial->range.start == range->start && burial->range.end == range->end
			       : !is_range(burial)))
			return burial;
	return NULL;
}

bool burial_watch(struct executor *executor, uint64_t session, const struct range *range, struct job *job)
{
	struct burials *burials = &executor->burials;
	struct burial *burial;
	bool waits;

	pthread_mutex_lock(&burials->lock);
	burial = find(burials, session, range);
	waits = burial && !burial->waiter;
	if (waits)
		burial->waiter = job;
	pthread_mutex_unlock(&burials->lock);
	return waits;
}

uint64_t burial_bytes(const struct tenant *tenant)
{
	struct burials *burials = &tenant->executor->burials;
	const struct burial *burial;
	uint64_t bytes = 0;

	pthread_mutex_lock(&burials->lock);
	TAILQ_FOREACH (burial, &burials->list, link)
		if (burial->tenant == tenant)
			bytes += burial->bytes;
	pthread_mutex_unlock(&burials->lock);
	return bytes;
}

bool burial_waits(struct executor *executor)
{
	struct burials *burials = &executor->burials;
	bool waits;

	pthread_mutex_lock(&burials->lock);
	waits = !TAILQ_EMPTY(&burials->list);
	pthread_mutex_unlock(&burials->lock);
	return waits;
}

static bool is_over(struct burials *burials, unsigned times)
{
	bool over;

	pthread_mutex_lock(&burials->lock);
	over = burials->bytes > times * burial_limit || burials->count > times * BURIAL_COUNT;
	pthread_mutex_unlock(&burials->lock);
	return over;
}

bool burial_is_stuck(struct executor *executor)
{
	return executor->burials.stuck && is_over(&executor->burials, 1);
}

bool burial_admits(struct executor *executor)
{
	struct burials *burials = &executor->burials;

	return !is_over(burials, 2) && !burial_is_stuck(executor);
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

bool burial_presses(struct executor *executor)
{
	return is_over(&executor->burials, 1) && clock_now() >= executor->burials.retry_at;
}

static bool has_old(struct burials *burials)
{
	uint64_t now = clock_now(), since;

	pthread_mutex_lock(&burials->lock);
	since = TAILQ_FIRST(&burials->list)->since;
	pthread_mutex_unlock(&burials->lock);
	return now - since >= GATE_DEFER_NS && now - burials->tried_at >= GATE_DEFER_NS &&
	       now >= burials->retry_at;
}

/* For few bytes: beside a kernel that does not end they just stay. Return: as make_gap() */
static bool make_gap_for_old(struct executor *executor)
{
	struct burials *burials = &executor->burials;
	int error;

	if (!has_old(burials))
		return false;
	error = gate_enter(executor, NULL, clock_now());
	if (error)
		burials->tried_at = clock_now();
	return !error;
}

/* Return: true if the gate is closed now and nothing runs. */
static bool make_gap(struct executor *executor)
{
	struct burials *burials = &executor->burials;
	struct gate *gate = &executor->gate;
	int error;

	if (gate->closed || (is_idle(executor) && gate_try(executor)))
		return true;
	if (!burial_presses(executor))
		return make_gap_for_old(executor);
	gate->pressing = true;
	error = gate_enter(executor, NULL, clock_now());
	gate->pressing = false;
	if (error == GATE_E_LONG) {
		burials->stuck = true;
		burials->retry_at = clock_now() + BURIAL_RETRY_NS;
		log_warning("%llu MiB stay pinned: a kernel of %s, pid %d, has been running for %llu ms, and "
			    "unpinning would stop everybody until it ends",
			(unsigned long long)(burials->bytes >> 20), gate->obstacle.program,
			gate->obstacle.pid, (unsigned long long)(gate->obstacle.ns / CLOCK_MS));
	}
	return !error;
}

/* Does a step. Return: its bytes; *ret_over: this was the last step. */
static uint64_t step(struct burial *burial, bool *ret_over)
{
	uint64_t bytes;

	*ret_over = true;
	if (is_range(burial)) {
		memory_unpin(burial->tenant, &burial->range);
		return burial->bytes;
	}
	bytes = memory_unpin_next(burial->tenant);
	if (bytes) {
		*ret_over = false;
		return bytes;
	}
	burial->release(burial->tenant);
	return burial->bytes;
}

static void end(struct burial *burial)
{
	struct tenant *tenant = burial->tenant;

	if (burial->waiter)
		job_reply(burial->waiter, CUDA_SUCCESS, NULL, 0, NULL);
	if (is_range(burial))
		free(burial);
	tenant_unref(tenant);
}

/* A step of the first that waits. */
static void bury_some(struct burials *burials)
{
	struct burial *burial;
	uint64_t bytes;
	bool over;

	pthread_mutex_lock(&burials->lock);
	burial = TAILQ_FIRST(&burials->list);
	pthread_mutex_unlock(&burials->lock);
	/* The entry stays in the list during the step: no thread may take the free for done
	 * early. */
	bytes = step(burial, &over);
	pthread_mutex_lock(&burials->lock);
	burial->bytes -= bytes;
	burials->bytes -= bytes;
	burials->count -= over;
	if (over)
		TAILQ_REMOVE(&burials->list, burial, link);
	pthread_mutex_unlock(&burials->lock);
	if (over)
		end(burial);
}

static void use_gap(struct executor *executor)
{
	struct burials *burials = &executor->burials;
	uint64_t begin = executor->gate.closed_at, now;

	burials->stuck = false;
	do {
		bury_some(burials);
		now = clock_now();
	} while (now - begin < GATE_BATCH_NS && burial_waits(executor) && !executor_is_lost(executor));
	gate_leave(executor);
	burials->retry_at = now + BURIAL_REST * (now - begin);
}

bool burial_work(struct executor *executor)
{
	if (!burial_waits(executor) || executor_is_lost(executor) || !make_gap(executor))
		return false;
	use_gap(executor);
	return true;
}

void burial_finish(struct executor *executor)
{
	while (burial_waits(executor) && !executor_is_lost(executor))
		bury_some(&executor->burials);
}
