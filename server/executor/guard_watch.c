// Main thread, in steps between messages; it never waits for the device.
//
// The time of a look. A session's sink is looked at when a kernel of the session may have run since
// the last look and
//   - interval_ns has passed, or
//   - the client has waited for work that has ended, so that a guard hit is known soon after its
//     kernel: the error comes with a later call, natively with the wait;
//   - the session ends: no session gets an error, but the log reports the guard hit.
// Looks take at most 1 / SHARE of the time, for any interval: the next look begins SHARE times its
// duration after the last, or an interval after. While no session launches a kernel there are no
// looks and the thread sleeps.
//
// A look. The backend's check of the sink on a stream of the watch's own, then a mark. If a word is
// not the pattern, the watch reads the sink piece by piece until the word is found, for the log;
// then the sink is filled again.
//
// A hit is the fault of the session that has the guard: CUDA_ERROR_ILLEGAL_ADDRESS. Programs of a
// user share addresses, so another one's wild pointer can get there, as it can get into memory; but
// the sink is two granules beside each piece of memory, and the windows of sessions lie far apart.
//
// While the driver handles a fault there are no looks. The driver handles a fault as a debugger
// would, and calls that debugger at every launch from then on: in some 600 faults, two checks that
// were launched during the debugger's start crashed there, and the executor with them (H200, driver
// 580.159.04). Serving threads launch nothing then anyway (contain.c).
//
// Not seen: a write of the very pattern; writes of a dead executor's kernels since its last look,
// for a promotion begins with filled sinks; writes before the filling after a take-over, which is
// not waited for (takeover.c).

#include "server/executor/guard_watch.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "server/clock.h"
#include "server/executor/guard.h"
#include "server/executor/tenant.h"
#include "server/log.h"

#define SHARE 400u
/* Least time between reports about the same sink, where its session gets no error. */
#define REPEAT_NS (UINT64_C(1000) * CLOCK_MS)
/* The end of a session waits so long for a device that does no work of the watch, ns. */
#define LAST_LOOK_NS (UINT64_C(5000) * CLOCK_MS)
#define PIECE	     (UINT64_C(256) << 10)
#define SINK_BYTES   BACKEND_CHUNK_GRANULE

struct guard_page {
	word64 mark;
	uint32_t changed; /* written by the device */
	uint32_t reserved[1021];
	uint32_t piece[PIECE / sizeof(uint32_t)];
};

CUresult guard_watch_open(struct executor *executor, uint32_t interval_ms)
{
	struct guard_watch *watch = &executor->guard_watch;
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

void guard_watch_close(struct executor *executor)
{
	struct guard_watch *watch = &executor->guard_watch;

	if (!watch->stream)
		return;
	tenant_unref(watch->tenant);
	executor_code(executor, executor->ops->stream_destroy(watch->stream));
	executor_code(executor, executor->ops->host_unregister(watch->page));
	munmap(watch->page, sizeof(*watch->page));
	*watch = (struct guard_watch){0};
}

/* ---- samples ---- */

/* Sessions that are not served here cannot have a kernel running. */
static bool is_served(const struct tenant *tenant)
{
	return word_relaxed(&tenant->generation) != 0;
}

/* True if work of the session may be on the device. */
static bool is_busy(const struct tenant *tenant)
{
	const struct shm_view *view = &tenant->view;
	struct shm_timeline *timeline = shm_view_timeline(view, word_relaxed(&tenant->generation));
	uint32_t slots = word_acquire(&tenant->slots);

	for (uint32_t slot = 0; slot < slots; slot++) {
		uint64_t done = word_acquire(&shm_timeline_at(timeline, slot)->done);
		uint64_t marked = word_acquire(&view->states[slot].marked);

		/* A word beyond `marked` is a kernel's write beside its memory. */
		if (word_acquire(&view->states[slot].issued) > (done < marked ? done : marked))
			return true;
	}
	return false;
}

/* Notes whether a kernel of the session may have run since the sample before: the session launched
 * one, or had work on the device then or has now. */
static void sample(struct tenant *tenant)
{
	struct guard_use *use = &tenant->guard_use;
	/* Pairs with guard_watch_note_launch(): a reader who sees the launch sees that the kernel
	 * was issued. */
	uint64_t launches = word_acquire(&use->launches);
	bool busy = is_busy(tenant);

	use->ran |= busy || use->busy || launches != use->seen;
	use->busy = busy;
	use->seen = launches;
}

/* ---- a look ---- */

static bool is_watched(const struct tenant *tenant)
{
	return tenant->guard && is_served(tenant) && (!tenant->closing || tenant->guard_use.last_look) &&
	       !tenant->guard_use.left;
}

/* Puts a mark behind work on a session's sinks. On failure the next mark shows the end of this
 * work, too. */
static CUresult put_mark(struct tenant *tenant)
{
	struct executor *executor = tenant->executor;
	struct guard_watch *watch = &executor->guard_watch;
	CUresult code = executor_code(
		executor, executor->ops->mark(watch->stream, &watch->page->mark, watch->mark + 1));

	if (code)
		tenant->guard_use.fill = watch->mark + 1;
	else
		watch->mark++;
	return code;
}

/* Fills the sink with the pattern, in the device's order. Earlier guard hits are lost. */
static void fill(struct tenant *tenant)
{
	struct executor *executor = tenant->executor;
	const struct guard *guard = tenant->guard;
	struct frmps_set set = {.dst = guard->home,
		.width = SINK_BYTES / sizeof(uint32_t),
		.height = 1,
		.value = GUARD_PATTERN,
		.element_bytes = sizeof(uint32_t)};

	CUresult code = executor_code(executor, executor->ops->set(executor->guard_watch.stream, &set));

	if (!code)
		code = put_mark(tenant);
	if (!code)
		tenant->guard_use.fill = executor->guard_watch.mark;
	sample(tenant);
	tenant->guard_use.ran = false;
	tenant->guard_use.filled = !code;
	tenant->guard_use.clean_at = clock_now();
}

void guard_watch_begin(struct tenant *tenant)
{
	if (!tenant->guard || !is_served(tenant))
		return;
	fill(tenant);
}

bool guard_watch_is_ready(const struct tenant *tenant)
{
	const struct guard_watch *watch = &tenant->executor->guard_watch;

	return !tenant->guard_use.fill || word_acquire(&watch->page->mark) >= tenant->guard_use.fill;
}

static void end_look(struct executor *executor, uint64_t now)
{
	struct guard_watch *watch = &executor->guard_watch;
	uint64_t pause = (now - watch->begun_at) * SHARE;

	watch->look = LOOK_NONE;
	watch->tenant->guard_use.last_look = false;
	watch->tenant = tenant_unref(watch->tenant);
	word_set(&watch->open_at, now + (pause < watch->interval_ns ? pause : watch->interval_ns));
}

/* The look says nothing: another one is due. */
static void give_up(struct executor *executor, uint64_t now)
{
	executor->guard_watch.tenant->guard_use.ran = true;
	end_look(executor, now);
}

static void begin_look(struct tenant *tenant, uint64_t now)
{
	struct executor *executor = tenant->executor;
	struct guard_watch *watch = &executor->guard_watch;
	const struct guard *guard = tenant->guard;
	CUresult code;

	watch->look = LOOK_CHECKING;
	watch->tenant = tenant_ref(tenant);
	watch->begun_at = tenant->guard_use.looked_at = now;
	tenant->guard_use.ran = false;
	/* Work that the client waits for may still write to the sink: another look follows at its
	 * end. */
	if (!tenant->guard_use.busy)
		word_set(&tenant->guard_use.asked, 0);
	/* Pairs with the device's write. */
	watch->alone = word_acquire(&watch->page->mark) >= watch->unmarked;
	__atomic_store_n(&watch->page->changed, 0, __ATOMIC_RELAXED);
	code = executor_code(executor, executor->ops->check(watch->stream, guard->home, SINK_BYTES,
					       GUARD_PATTERN, &watch->page->changed));
	if (!code) {
		code = put_mark(tenant);
		if (code)
			watch->unmarked = watch->mark + 1; /* its answer may come during the next look */
	}
	if (code)
		give_up(executor, now);
}

static void read_piece(struct executor *executor, uint64_t now)
{
	struct guard_watch *watch = &executor->guard_watch;
	struct backend_copy copy = {.dst = (uintptr_t)watch->page->piece,
		.src = watch->tenant->guard->home + watch->offset,
		.width = PIECE,
		.height = 1,
		.depth = 1,
		.dst_is_host = true};
	CUresult code = executor_code(executor, executor->ops->copy(watch->stream, &copy));

	watch->look = LOOK_READING;
	if (!code)
		code = put_mark(watch->tenant);
	if (code)
		give_up(executor, now);
}

/* The findings in a piece of the sink, for the log. */
struct findings {
	uint32_t words;	 /* changed ones */
	uint32_t offset; /* of the first */
	uint32_t value;
};

static struct findings examine(const struct guard_watch *watch)
{
	struct findings found = {0};

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

/* ---- hits ---- */

static void describe(const struct tenant *tenant, const struct findings *found, char *text, size_t size)
{
	double clean = (double)(clock_now() - tenant->guard_use.clean_at) / (double)CLOCK_MS;

	if (found->words)
		snprintf(text, size,
			"a kernel wrote beside its memory: %u words changed from offset %#x of the guard on, "
			"the first to %#x, seen clean %.1f ms before",
			found->words, found->offset, found->value, clean);
	else
		snprintf(text, size,
			"a kernel wrote beside its memory: words changed, and changed back, seen clean %.1f "
			"ms before",
			clean);
}

/* Reports to the daemon, which logs the text. */
static void report(const struct tenant *tenant, const char *text)
{
	struct wire_message message = {
		.type = WIRE_GUARD_HIT, .session = tenant->id, .guard_hit = {.text = text}};

	executor_send(tenant->executor, &message);
}

static void sentence(struct tenant *tenant, const char *text)
{
	struct guard_use *use = &tenant->guard_use;

	if (tenant->closing)
		return;
	snprintf(use->reason, sizeof(use->reason), "%s", text);
	/* Pairs with the acquire in guard_watch_sentence(). */
	word_release(&use->verdict, CUDA_ERROR_ILLEGAL_ADDRESS);
	/* Otherwise the session gets the error when it is served again (detach.c). */
	if (tenant->thread)
		serve_kick(tenant);
}

static void take_hit(struct tenant *tenant, const struct findings *found, uint64_t now)
{
	struct guard_use *use = &tenant->guard_use;
	bool ends = tenant->guard->policy == GUARD_ERROR;
	char text[sizeof(use->reason)];

	/* Kernels that are still on the device may go on writing. */
	if (word_relaxed(&use->verdict) || (use->told_at && now - use->told_at < REPEAT_NS))
		return;
	use->told_at = now;
	describe(tenant, found, text, sizeof(text));
	report(tenant, text);
	if (ends)
		sentence(tenant, text);
}

void guard_watch_sentence(struct tenant *tenant)
{
	/* Pairs with sentence(). */
	uint32_t code = word_acquire(&tenant->guard_use.verdict);

	if (code && !tenant->stopped)
		tenant_end(tenant, SHM_SESSION_FAULTED, (CUresult)code, tenant->guard_use.reason);
}

/* ---- steps ---- */

/* True if a look at the session's sink will be due. *ret_at: the time. */
static bool is_due(struct tenant *tenant, uint64_t now, uint64_t *ret_at)
{
	struct guard_use *use = &tenant->guard_use;

	*ret_at = now;
	if (use->last_look)
		return true;
	if (!use->ran) {
		word_set(&use->asked, 0);
		return false;
	}
	/* Before the end of the interval only if the client's awaited work has ended. */
	if (!word_relaxed(&use->asked) || use->busy)
		*ret_at = use->looked_at + tenant->executor->guard_watch.interval_ns;
	if (word_relaxed(&use->asked) && now + CLOCK_MS < *ret_at)
		*ret_at = now + CLOCK_MS;
	return true;
}

/* The session whose look is due first; NULL: no kernel has run. *ret_at: the time. */
static struct tenant *choose(struct executor *executor, uint64_t now, uint64_t *ret_at)
{
	struct tenant *tenant, *chosen = NULL;
	uint64_t at;

	*ret_at = UINT64_MAX;
	TAILQ_FOREACH (tenant, &executor->tenants, link) {
		if (!is_watched(tenant))
			continue;
		sample(tenant);
		if (!tenant->guard_use.filled)
			fill(tenant);
		/* No session is responsible for the contents of a sink that was never filled. */
		if (!tenant->guard_use.filled || !is_due(tenant, now, &at))
			continue;
		/* Of all due sessions, the longest waiting one. */
		if (at <= now && !tenant->guard_use.last_look)
			at = tenant->guard_use.looked_at;
		if (tenant->guard_use.last_look)
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
static uint64_t rest(struct guard_watch *watch, uint64_t now)
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
	struct guard_watch *watch = &executor->guard_watch;
	uint64_t open_at = word_relaxed(&watch->open_at), at;
	struct tenant *tenant;

	/* A load is under way: a call of the watch could wait for the load. */
	if (gate_is_shut(&executor->gate))
		return now + CLOCK_MS;
	tenant = choose(executor, now, &at);
	if (!tenant)
		return rest(watch, now);
	word_set(&watch->resting, 0);
	if (!tenant->guard_use.last_look && at < open_at)
		at = open_at;
	if (at > now)
		return at;
	begin_look(tenant, now);
	return now;
}

static void piece_arrived(struct executor *executor, uint64_t now)
{
	struct guard_watch *watch = &executor->guard_watch;
	struct findings found = examine(watch);

	watch->offset += PIECE;
	if (!found.words && watch->offset < SINK_BYTES) {
		read_piece(executor, now);
		return;
	}
	/* Otherwise another executor's kernels write there now. */
	if (!watch->tenant->guard_use.left) {
		if (found.words || watch->alone)
			take_hit(watch->tenant, &found, now);
		fill(watch->tenant);
	}
	end_look(executor, now);
}

/* A look is over after some 20 us, or waits for room on the device for an unknown time. */
static uint64_t look_again_at(const struct guard_watch *watch, uint64_t now)
{
	uint64_t interval = (now - watch->begun_at) / 4;

	if (interval < 20 * CLOCK_US)
		interval = 20 * CLOCK_US;
	return now + (interval < CLOCK_MS ? interval : CLOCK_MS);
}

static uint64_t look_busy(struct executor *executor, uint64_t now)
{
	struct guard_watch *watch = &executor->guard_watch;

	/* Pairs with the device's write. */
	if (word_acquire(&watch->page->mark) < watch->mark)
		return look_again_at(watch, now);
	if (watch->look == LOOK_READING) {
		piece_arrived(executor, now);
	} else if (__atomic_load_n(&watch->page->changed, __ATOMIC_ACQUIRE)) {
		watch->offset = 0;
		read_piece(executor, now);
	} else {
		watch->tenant->guard_use.clean_at = watch->begun_at;
		end_look(executor, now);
	}
	return now;
}

uint64_t guard_watch_step(struct executor *executor, uint64_t now)
{
	struct guard_watch *watch = &executor->guard_watch;

	if (!watch->stream || executor_is_lost(executor))
		return UINT64_MAX;
	if (contain_is_open(executor))
		return now + CLOCK_MS;
	return watch->look == LOOK_NONE ? look_idle(executor, now) : look_busy(executor, now);
}

void guard_watch_let_go(struct tenant *tenant)
{
	tenant->guard_use.left = true;
}

/* True if the device has done no work of the watch for too long. When many sessions end, their
 * looks take turns. */
static bool stands_still(struct guard_watch *watch, uint64_t since)
{
	uint64_t mark = word_acquire(&watch->page->mark), now = clock_now();

	if (mark != watch->moved) {
		watch->moved = mark;
		watch->moved_at = now;
	}
	return now - (watch->moved_at > since ? watch->moved_at : since) >= LAST_LOOK_NS;
}

/* The watch's work on the session's sinks may still run. */
static void abandon(struct tenant *tenant)
{
	log_warning("session %llu (%s, pid %d) ends while its guard is in use: its addresses stay taken",
		(unsigned long long)tenant->id, tenant->program, tenant->pid);
	tenant->guard_use.abandoned = true;
}

bool guard_watch_last_look(struct tenant *tenant, uint64_t since)
{
	struct executor *executor = tenant->executor;
	struct guard_watch *watch = &executor->guard_watch;
	struct guard_use *use = &tenant->guard_use;

	/* Detached before: work of the watch that waits for room on the device may still come to
	 * the sinks. */
	if (use->left && !use->abandoned)
		return executor_is_lost(executor) ||
		       (watch->tenant != tenant && guard_watch_is_ready(tenant));
	if (use->left || executor_is_lost(executor) || !is_served(tenant))
		return true;
	if (watch->tenant == tenant || use->last_look || !guard_watch_is_ready(tenant)) {
		if (!stands_still(watch, since))
			return false;
		/* No work finds room on the device. A look that has not begun is left out. */
		if (watch->tenant == tenant || !guard_watch_is_ready(tenant))
			abandon(tenant);
		use->last_look = false;
		use->left = true;
		return true;
	}
	sample(tenant);
	if (tenant->guard && use->filled && use->ran && !use->tried && !gate_is_shut(&executor->gate)) {
		use->tried = use->last_look = true;
		return false;
	}
	use->left = true;
	return true;
}

/* ---- serving threads ---- */

/* Lets the main thread look. */
static void wake(struct executor *executor)
{
	word_set(&executor->guard_watch.resting, 0);
	job_board_kick(&executor->board);
}

void guard_watch_note_launch(struct tenant *tenant)
{
	struct guard_use *use = &tenant->guard_use;

	word_release(&use->launches, word_relaxed(&use->launches) + 1);
	if (word_relaxed(&tenant->executor->guard_watch.resting))
		wake(tenant->executor);
}

void guard_watch_note_wait(struct tenant *tenant)
{
	struct guard_use *use = &tenant->guard_use;

	if (tenant->now < word_relaxed(&tenant->executor->guard_watch.open_at) || word_relaxed(&use->asked))
		return;
	word_set(&use->asked, 1);
	job_board_kick(&tenant->executor->board);
}
