// The watch over the sinks. Main thread, in steps between messages; it never waits for the device.
//
// The time of a look. A session's sinks are looked at when a kernel of the session may have run
// since the last look and
//   - interval_ns has passed, or
//   - the client has waited for work that has ended, so that a guard hit is known soon after its
//     kernel: the error comes with a later call, natively with the wait;
//   - the session ends: no session gets an error, but the log reports the guard hit.
// Kernels of other sessions can write there as well: hence a look every OTHERS intervals. Looks
// take at most 1 / SHARE of the time, for any interval: the next look begins SHARE times its
// duration after the last, or an interval after. A look compares 18 MiB (guard.c) on the device:
// estimated 14 us on an H200, so at most one look in 5.6 ms. While no session launches a kernel
// there are no looks and the thread sleeps.
//
// A look. The backend's check of both sinks on a stream of the watch's own, then a mark. If a word
// is not the pattern, the watch reads the sinks piece by piece until the word is found, for the
// log; then the sinks are filled again.
//
// suspect.c attributes guard hits.
//
// While the driver handles a fault there are no looks, and no slots are mapped. The driver handles
// a fault as a debugger would, and calls that debugger at every launch from then on: in some 600
// faults, two checks that were launched during the debugger's start crashed there, and the executor
// with them (H200, driver 580.159.04). Serving threads launch nothing then anyway (contain.c).
//
// Not seen: a write of the very pattern; writes of a dead executor's kernels since its last look,
// for a promotion begins with filled sinks; writes before the filling after a take-over, which is
// not waited for (takeover.c); accesses beyond the guard's reach, which fault; writes into memory
// of another session.

#include "server/executor/stray.h"

#include <sys/mman.h>

#include "server/clock.h"
#include "server/executor/guard.h"
#include "server/executor/suspect.h"
#include "server/executor/tenant.h"
#include "server/log.h"

#define SHARE  400u
#define OTHERS 16u
/* The end of a session waits so long for a device that does no work of the watch, ns. */
#define FAREWELL_NS (UINT64_C(5000) * CLOCK_MS)
#define PIECE	    (UINT64_C(256) << 10)
/* Between steps of mapping: four times the longest step, so that launches find the driver free. */
#define PAUSE_NS (1500 * CLOCK_US)

struct stray_page {
	word64 mark;
	uint32_t changed; /* written by the device */
	uint32_t reserved[1021];
	uint32_t piece[PIECE / sizeof(uint32_t)];
};

CUresult stray_open(struct executor *executor, uint32_t interval_ms)
{
	struct stray_watch *watch = &executor->strays;
	CUresult code;
	void *page;

	watch->interval_ns = (interval_ms ? interval_ms : 1) * CLOCK_MS;
	if (watch->stream)
		return CUDA_SUCCESS;
	code = executor->ops->check(NULL, 0, 0, 0, NULL);
	if (code)
		return code;
	page = mmap(NULL, sizeof(*watch->page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	code = executor_code(executor, executor->ops->host_register(page, sizeof(*watch->page)));
	if (!code) {
		code = executor_code(executor,
			executor->ops->stream_create(executor->device.priority_greatest, 0, &watch->stream));
		if (code)
			executor->ops->host_unregister(page);
	}
	if (code)
		munmap(page, sizeof(*watch->page));
	else
		watch->page = page;
	return code;
}

void stray_close(struct executor *executor)
{
	struct stray_watch *watch = &executor->strays;

	if (!watch->stream)
		return;
	tenant_unref(watch->tenant);
	suspect_forget_formers(executor);
	executor_code(executor, executor->ops->stream_destroy(watch->stream));
	executor_code(executor, executor->ops->host_unregister(watch->page));
	munmap(watch->page, sizeof(*watch->page));
	*watch = (struct stray_watch){0};
}

/* ---- a look ---- */

static bool is_watched(const struct tenant *tenant)
{
	return tenant->guard && suspect_is_served(tenant) && (!tenant->closing || tenant->stray.last_look) &&
	       !tenant->stray.left;
}

/* Puts a mark behind work on a session's sinks. On failure the next mark shows the end of this
 * work, too. */
static CUresult put_mark(struct tenant *tenant)
{
	struct executor *executor = tenant->executor;
	struct stray_watch *watch = &executor->strays;
	CUresult code = executor_code(
		executor, executor->ops->mark(watch->stream, &watch->page->mark, watch->mark + 1));

	if (code)
		tenant->stray.fill = watch->mark + 1;
	else
		watch->mark++;
	return code;
}

/* Fills both sinks with the pattern, in the device's order. Earlier guard hits are lost. */
static void fill(struct tenant *tenant)
{
	struct executor *executor = tenant->executor;
	const struct guard *guard = tenant->guard;
	struct frmps_set set = {.dst = guard->home,
		.width = (guard->near_bytes + guard->far_bytes) / sizeof(uint32_t),
		.height = 1,
		.value = GUARD_PATTERN,
		.element_bytes = sizeof(uint32_t)};

	CUresult code = executor_code(executor, executor->ops->set(executor->strays.stream, &set));

	if (!code)
		code = put_mark(tenant);
	if (!code)
		tenant->stray.fill = executor->strays.mark;
	tenant->stray.clean = code ? 0 : executor->strays.sample;
	tenant->stray.clean_at = clock_now();
}

void stray_begin(struct tenant *tenant)
{
	if (!tenant->guard || !suspect_is_served(tenant))
		return;
	suspect_sample(tenant->executor);
	fill(tenant);
}

bool stray_is_ready(const struct tenant *tenant)
{
	const struct stray_watch *watch = &tenant->executor->strays;

	return !tenant->stray.fill || word_acquire(&watch->page->mark) >= tenant->stray.fill;
}

static void end_look(struct executor *executor, uint64_t now)
{
	struct stray_watch *watch = &executor->strays;
	uint64_t pause = (now - watch->begun_at) * SHARE;

	watch->state = STRAY_IDLE;
	watch->tenant->stray.last_look = false;
	watch->tenant = tenant_unref(watch->tenant);
	word_set(&watch->open_at, now + (pause < watch->interval_ns ? pause : watch->interval_ns));
}

static void begin_look(struct tenant *tenant, uint64_t now)
{
	struct executor *executor = tenant->executor;
	struct stray_watch *watch = &executor->strays;
	const struct guard *guard = tenant->guard;
	CUresult code;

	watch->state = STRAY_LOOKING;
	watch->tenant = tenant_ref(tenant);
	watch->begun = watch->sample;
	watch->begun_at = tenant->stray.looked_at = now;
	/* Work that the client waits for may still write to the sinks: another look follows at its
	 * end. */
	if (!tenant->stray.busy)
		word_set(&tenant->stray.asked, 0);
	/* Pairs with the device's write. */
	watch->alone = word_acquire(&watch->page->mark) >= watch->unmarked;
	__atomic_store_n(&watch->page->changed, 0, __ATOMIC_RELAXED);
	code = executor_code(executor,
		executor->ops->check(watch->stream, guard->home, guard->near_bytes + guard->far_bytes,
			GUARD_PATTERN, &watch->page->changed));
	if (!code) {
		code = put_mark(tenant);
		if (code)
			watch->unmarked = watch->mark + 1; /* its answer may come during the next look */
	}
	if (code)
		end_look(executor, now); /* tried again when it is due again */
}

static void read_piece(struct executor *executor, uint64_t now)
{
	struct stray_watch *watch = &executor->strays;
	struct backend_copy copy = {.dst = (uintptr_t)watch->page->piece,
		.src = watch->tenant->guard->home + watch->offset,
		.width = PIECE,
		.height = 1,
		.depth = 1,
		.dst_is_host = true};
	CUresult code = executor_code(executor, executor->ops->copy(watch->stream, &copy));

	watch->state = STRAY_READING;
	if (!code)
		code = put_mark(watch->tenant);
	if (code)
		end_look(executor, now);
}

static struct suspect_evidence examine(const struct stray_watch *watch)
{
	struct suspect_evidence found = {0};

	for (uint32_t i = 0; i < PIECE / sizeof(uint32_t); i++) {
		uint32_t word = watch->page->piece[i];

		if (word == GUARD_PATTERN)
			continue;
		if (!found.words++) {
			found.offset = watch->offset + i * (uint32_t)sizeof(uint32_t);
			found.value = word;
		}
	}
	return found;
}

/* ---- steps ---- */

/* True if a look at the session's sinks will be due. *ret_at: the time. */
static bool is_due(struct tenant *tenant, uint64_t others, uint64_t now, uint64_t *ret_at)
{
	struct stray *stray = &tenant->stray;
	uint64_t interval = tenant->executor->strays.interval_ns;

	*ret_at = now;
	if (stray->last_look)
		return true;
	if (stray->ran > stray->clean) {
		/* Before the end of the interval only if the client's awaited work has ended. */
		if (!word_relaxed(&stray->asked) || stray->busy)
			*ret_at = stray->looked_at + interval;
		if (word_relaxed(&stray->asked) && now + CLOCK_MS < *ret_at)
			*ret_at = now + CLOCK_MS;
		return true;
	}
	word_set(&stray->asked, 0);
	*ret_at = stray->looked_at + OTHERS * interval;
	return others > stray->clean;
}

/* The last sample in which any kernel ran. */
static uint64_t last_run(struct executor *executor)
{
	uint64_t last = executor->strays.departed;
	struct tenant *tenant;

	TAILQ_FOREACH (tenant, &executor->tenants, link)
		if (tenant->stray.ran > last)
			last = tenant->stray.ran;
	return last;
}

/* The session whose look is due first; NULL: no kernel has run. *ret_at: the time. */
static struct tenant *choose(struct executor *executor, uint64_t now, uint64_t *ret_at)
{
	struct tenant *tenant, *chosen = NULL;
	uint64_t others = last_run(executor), at;

	*ret_at = UINT64_MAX;
	TAILQ_FOREACH (tenant, &executor->tenants, link) {
		if (!is_watched(tenant))
			continue;
		if (!tenant->stray.clean)
			fill(tenant);
		/* No session is responsible for the contents of sinks that were never filled. */
		if (!tenant->stray.clean || !is_due(tenant, others, now, &at))
			continue;
		/* Of all due sessions, the longest waiting one. */
		if (at <= now && !tenant->stray.last_look)
			at = tenant->stray.looked_at;
		if (tenant->stray.last_look)
			at = 0;
		if (!chosen || at < *ret_at) {
			chosen = tenant;
			*ret_at = at;
		}
	}
	return chosen;
}

/* No kernel has run. Another look follows later, for a launch that crossed with the word; then
 * none. */
static uint64_t rest(struct stray_watch *watch, uint64_t now)
{
	if (!word_relaxed(&watch->resting)) {
		word_set(&watch->resting, 1);
		word_fence();
		watch->rest_at = now + watch->interval_ns;
	}
	return now < watch->rest_at ? watch->rest_at : UINT64_MAX;
}

static uint64_t look_idle(struct executor *executor, uint64_t now)
{
	struct stray_watch *watch = &executor->strays;
	uint64_t open_at = word_relaxed(&watch->open_at), at;
	struct tenant *tenant;

	/* A load is under way: a call of the watch could wait for the load. */
	if (gate_is_shut(&executor->gate))
		return now + CLOCK_MS;
	suspect_sample(executor);
	tenant = choose(executor, now, &at);
	if (!tenant)
		return rest(watch, now);
	word_set(&watch->resting, 0);
	if (!tenant->stray.last_look && at < open_at)
		at = open_at;
	if (at > now)
		return at;
	begin_look(tenant, now);
	return now;
}

static void piece_arrived(struct executor *executor, uint64_t now)
{
	struct stray_watch *watch = &executor->strays;
	const struct guard *guard = watch->tenant->guard;
	struct suspect_evidence evidence = examine(watch);

	watch->offset += PIECE;
	if (!evidence.words && watch->offset < guard->near_bytes + guard->far_bytes) {
		read_piece(executor, now);
		return;
	}
	/* Otherwise another executor's kernels write there now. */
	if (!watch->tenant->stray.left) {
		if (evidence.words || watch->alone)
			suspect_judge(watch->tenant, &evidence, now);
		fill(watch->tenant);
	}
	end_look(executor, now);
}

/* A look is over after some 20 us, or waits for room on the device for an unknown time. */
static uint64_t look_again_at(const struct stray_watch *watch, uint64_t now)
{
	uint64_t interval = (now - watch->begun_at) / 4;

	if (interval < 20 * CLOCK_US)
		interval = 20 * CLOCK_US;
	return now + (interval < CLOCK_MS ? interval : CLOCK_MS);
}

static uint64_t look_busy(struct executor *executor, uint64_t now)
{
	struct stray_watch *watch = &executor->strays;

	/* Pairs with the device's write. */
	if (word_acquire(&watch->page->mark) < watch->mark)
		return look_again_at(watch, now);
	if (watch->state == STRAY_READING) {
		piece_arrived(executor, now);
	} else if (__atomic_load_n(&watch->page->changed, __ATOMIC_ACQUIRE)) {
		watch->offset = 0;
		read_piece(executor, now);
	} else {
		watch->tenant->stray.clean = watch->begun;
		watch->tenant->stray.clean_at = watch->begun_at;
		end_look(executor, now);
	}
	return now;
}

/* Return: when the next slots are to be mapped. */
static uint64_t map_some(struct executor *executor, uint64_t now)
{
	struct stray_watch *watch = &executor->strays;
	uint64_t at = UINT64_MAX;
	struct tenant *tenant;

	if (now < watch->step_at)
		return watch->step_at;
	if (gate_is_shut(&executor->gate))
		return now + CLOCK_MS;
	TAILQ_FOREACH (tenant, &executor->tenants, link) {
		if (!tenant->guard || tenant->closing || !tenant->guard->wanted || tenant->guard->full)
			continue;
		if (now < tenant->guard->step_at) {
			at = at < tenant->guard->step_at ? at : tenant->guard->step_at;
			continue;
		}
		guard_step(tenant);
		watch->step_at = clock_now() + PAUSE_NS;
		/* This session comes last the next time; the list's order means nothing else. */
		pthread_mutex_lock(&executor->tenants_lock);
		TAILQ_REMOVE(&executor->tenants, tenant, link);
		TAILQ_INSERT_TAIL(&executor->tenants, tenant, link);
		pthread_mutex_unlock(&executor->tenants_lock);
		return watch->step_at;
	}
	return at;
}

uint64_t stray_step(struct executor *executor, uint64_t now)
{
	struct stray_watch *watch = &executor->strays;
	uint64_t map_at, look_at;

	if (!watch->stream || executor_is_lost(executor))
		return UINT64_MAX;
	if (contain_is_open(executor))
		return now + CLOCK_MS;
	look_at = watch->state == STRAY_IDLE ? look_idle(executor, now) : look_busy(executor, now);
	map_at = map_some(executor, now);
	return map_at < look_at ? map_at : look_at;
}

void stray_let_go(struct tenant *tenant)
{
	suspect_sample(tenant->executor);
	suspect_leave(tenant);
}

/* True if the device has done no work of the watch for too long. When many sessions end, their
 * looks take turns. */
static bool stands_still(struct stray_watch *watch, uint64_t since)
{
	uint64_t mark = word_acquire(&watch->page->mark), now = clock_now();

	if (mark != watch->moved) {
		watch->moved = mark;
		watch->moved_at = now;
	}
	return now - (watch->moved_at > since ? watch->moved_at : since) >= FAREWELL_NS;
}

/* The watch's work on the session's sinks may still run. */
static void abandon(struct tenant *tenant)
{
	log_warning("session %llu (%s, pid %d) ends while its guard is in use: its addresses stay taken",
		(unsigned long long)tenant->id, tenant->program, tenant->pid);
	tenant->stray.abandoned = true;
}

bool stray_farewell(struct tenant *tenant, uint64_t since)
{
	struct executor *executor = tenant->executor;
	struct stray_watch *watch = &executor->strays;
	struct stray *stray = &tenant->stray;

	/* Detached before: work of the watch that waits for room on the device may still come to
	 * the sinks. */
	if (stray->left && !stray->abandoned)
		return executor_is_lost(executor) || (watch->tenant != tenant && stray_is_ready(tenant));
	if (stray->left || executor_is_lost(executor) || !suspect_is_served(tenant))
		return true;
	if (watch->tenant == tenant || stray->last_look || !stray_is_ready(tenant)) {
		if (!stands_still(watch, since))
			return false;
		/* No work finds room on the device. A look that has not begun is left out. */
		if (watch->tenant == tenant || !stray_is_ready(tenant))
			abandon(tenant);
		stray->last_look = false;
		suspect_leave(tenant);
		return true;
	}
	suspect_sample(executor);
	if (tenant->guard && stray->clean && stray->ran > stray->clean && !stray->tried &&
		!gate_is_shut(&executor->gate)) {
		stray->tried = stray->last_look = true;
		return false;
	}
	suspect_leave(tenant);
	return true;
}

/* ---- serving threads ---- */

/* Lets the main thread look. */
static void wake(struct executor *executor)
{
	word_set(&executor->strays.resting, 0);
	job_board_kick(&executor->board);
}

void stray_note_launch(struct tenant *tenant)
{
	struct stray *stray = &tenant->stray;

	word_release(&stray->launches, word_relaxed(&stray->launches) + 1);
	if (word_relaxed(&tenant->executor->strays.resting))
		wake(tenant->executor);
}

void stray_note_wait(struct tenant *tenant)
{
	struct stray *stray = &tenant->stray;

	if (tenant->now < word_relaxed(&tenant->executor->strays.open_at) || word_relaxed(&stray->asked))
		return;
	word_set(&stray->asked, 1);
	job_board_kick(&tenant->executor->board);
}
