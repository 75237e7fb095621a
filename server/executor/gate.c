// The gate. A driver that puts code or data on the device, or takes it away, waits until all work
// that was issued to the context is done, and blocks all launches until then: deep queues and long
// kernels of a client become a gap for all. So before such a call, a load for short,
//
//          begin           no queue has two           nothing long runs         nothing runs
//   OPEN ─────────► SHALLOW ────────────────► LONG_FIRST ───────────────► CLOSED ────────────► load
//     ▲                                           ▲                         │                   │
//     │                                           └──── GATE_CLOSED_NS ─────┘                   │
//     └── failed, session or context gone (from everywhere) ◄──────────── gate_leave ───────────┘
//
//   SHALLOW     a stream has one command on the device at a time, with a mark behind it; deeper
//               queues run down to that. All sessions go on.
//   LONG_FIRST  the same, and a stream whose last command was longer than the threshold gets no
//               other command.
//   CLOSED      no stream gets a command.
//
// The threshold is half the time that the oldest command has been running, at least GATE_SHORT_NS:
// streams stop in the order of the length of their commands, and no stream waits for commands that
// take much longer than its own. That also resolves a deadlock: a kernel that waits for another
// stream's kernel gets older until that kernel may start.
//
// Commands are known to be short on streams that have finished a command which began under the gate
// (proven). On other streams the end of that command is awaited, at most GATE_SHORT_NS long; if a
// command turns out long when the gate is closed, the gate opens to LONG_FIRST again. So no session
// is stopped for much more than GATE_CLOSED_NS, plus the load itself.
//
// Patience. A try for a gap lasts GATE_PATIENCE_NS (GATE_NOBODY_NS for deferred work that no
// request waits for). At the end
//   - and a command has been running for as long: the try has failed, and the gate opens. The
//     driver's call would stop all sessions until that command ends, maybe for ever. A request
//     rests and is tried again (module_worker.c). While the same command runs, such a try is over
//     at its first look. A request tolerates commands of half the time that the request has waited,
//     up to GATE_PATIENCE_MOST_NS: so a request outlasts a queue of long kernels at last;
//   - otherwise the other sessions' commands leave no gap: the gate is closed until there is a gap,
//     or until a command turns out as long. Not while queues are deep: these run down first.
//
// Threads. The module thread moves the gate and does all observing, from the words that serving
// threads and the device write anyway (issued, marked, done). Serving threads obey: one relaxed
// load per command when the gate is open. A change counts when each serving thread has begun a turn
// since (thread->gate_seen) or sleeps (thread->resting: the thread looks at the word at its
// wake-up; both sides fence in between). All look at the same word, so a thread that has written
// the value back never uses an older value.
//
// Streams that wait are held like others (hold.c), so held streams of a session that ends are
// simply dropped; the gate waits for the session's commands on the device as for all others.

#include "server/executor/gate.h"

#include <stdio.h>
#include <sys/prctl.h>
#include <time.h>

#include "server/clock.h"
#include "server/executor/retire.h"
#include "server/executor/tenant.h"
#include "shm/doorbell.h"

#define SPIN_NS (50 * CLOCK_US)

/* The work of all sessions on the device. */
struct sight {
	bool any, deep, has_long, unproven;
	uint64_t oldest;	    /* ns: longest time without an end */
	const struct tenant *whose; /* owner of the oldest; valid under tenants_lock */
};

void gate_init(struct executor *executor)
{
	executor->gate.patience_ns = GATE_PATIENCE_NS;
	executor->gate.batch_ns = GATE_BATCH_NS;
}

/* ---- the serving threads' side ---- */

bool gate_admits(struct tenant *tenant, struct stream *stream)
{
	const struct gate *gate = &tenant->executor->gate;
	enum gate_phase phase = gate_phase(gate);

	if (phase == GATE_OPEN)
		return true;
	if (tenant->thread)
		word_set(&tenant->thread->gated, 1);
	retire_mark(tenant, stream);
	if (phase == GATE_CLOSED || stream_done(tenant, stream) < stream->issued)
		return false;
	return phase == GATE_SHALLOW ||
	       word_relaxed(&stream->gate.duration) <= word_relaxed(&gate->threshold);
}

/* ---- moving ---- */

static void change(struct executor *executor, enum gate_phase phase, uint64_t now)
{
	struct gate *gate = &executor->gate;
	uint64_t number = word_relaxed(&gate->word) >> 2;

	gate->changed_at = now;
	word_release(&gate->word, (number + 1) << 2 | phase);
	/* Against resting: either this thread sees that a serving thread is awake, or that thread
	 * sees the change at its wake-up. */
	word_fence();
}

/* True if all serving threads use the present word. */
static bool is_known(struct executor *executor)
{
	uint64_t word = word_relaxed(&executor->gate.word);

	for (unsigned i = 0; i < executor->pool.count; i++) {
		struct serve_thread *thread = &executor->pool.threads[i];

		/* Pair with the releases in serve.c: earlier issues of the thread can be seen. */
		if (!word_acquire(&thread->resting) && word_acquire(&thread->gate_seen) != word)
			return false;
	}
	return true;
}

void gate_leave(struct executor *executor)
{
	struct gate *gate = &executor->gate;

	if (!gate_is_shut(gate))
		return;
	gate->closed = false;
	change(executor, GATE_OPEN, clock_now());
	for (unsigned i = 0; i < executor->pool.count; i++) {
		struct serve_thread *thread = &executor->pool.threads[i];

		if (word_acquire(&thread->resting) && word_relaxed(&thread->gated))
			doorbell_force(thread->kick);
		word_set(&thread->gated, 0);
	}
}

/* ---- observing ---- */

/* Notes the duration of commands that ended. */
static void note_end(struct gate_watch *watch, uint64_t done, uint64_t now)
{
	uint64_t each = watch->since ? (now - watch->since) / (done - watch->done) : 0;

	if (watch->whole && watch->since)
		watch->proven = true;
	if (watch->proven || each > GATE_SHORT_NS)
		word_set(&watch->duration, each);
	watch->done = done;
	watch->since = 0;
}

static void look(struct gate_watch *watch, uint64_t round, uint64_t issued, uint64_t done, uint64_t now)
{
	bool is_first = watch->round != round;

	if (is_first) {
		/* The oldest command at the last look of an earlier round still is the oldest, or
		 * is done. */
		if (done != watch->done)
			watch->since = 0;
		watch->round = round;
		watch->done = done;
		watch->whole = false;
		watch->proven = false;
		word_set(&watch->duration, 0);
	}
	if (done > watch->done)
		note_end(watch, done, now);
	if (issued <= done) {
		watch->since = 0;
	} else if (!watch->since) {
		watch->since = now;
		watch->whole = !is_first;
	} else if (issued == done + 1 && now - watch->since > word_relaxed(&watch->duration)) {
		word_set(&watch->duration, now - watch->since);
	}
}

static void add(struct sight *sight, const struct gate_watch *watch, uint64_t depth,
	const struct tenant *tenant, uint64_t now)
{
	uint64_t age = now - watch->since;

	sight->any = true;
	sight->deep |= depth > 1;
	sight->has_long |= age > GATE_SHORT_NS || word_relaxed(&watch->duration) > GATE_SHORT_NS;
	sight->unproven |= !watch->proven;
	if (age <= sight->oldest)
		return;
	sight->oldest = age;
	sight->whose = tenant;
}

static void look_at_tenant(const struct gate *gate, struct tenant *tenant, uint64_t now, struct sight *sight)
{
	uint32_t generation = word_acquire(&tenant->generation), slots = word_acquire(&tenant->slots);
	const struct shm_view *view = &tenant->view;
	struct shm_timeline *timeline = shm_view_timeline(view, generation);

	if (!generation)
		return;
	for (uint32_t slot = 0; slot < slots; slot++) {
		/* Done first: it is never beyond what is then seen as issued. */
		uint64_t done = word_acquire(&shm_timeline_at(timeline, slot)->done);
		uint64_t marked = word_acquire(&view->states[slot].marked);
		uint64_t issued = word_acquire(&view->states[slot].issued);
		struct gate_watch *watch = &tenant->streams[slot].gate;

		/* A word beyond `marked` is a kernel's write beside its memory. */
		if (done > marked)
			done = marked;
		look(watch, gate->round, issued, done, now);
		if (watch->since)
			add(sight, watch, issued - done, tenant, now);
	}
}

/* The least duration of a try. While a longer command runs, no try forces the gate to close. */
static uint64_t patience(const struct gate *gate, const struct tenant *requester)
{
	if (requester || gate->pressing || gate->patience_ns < GATE_NOBODY_NS)
		return gate->patience_ns;
	return GATE_NOBODY_NS;
}

/* The run time of a command from which on the try has failed. */
static uint64_t endurance(const struct gate *gate, const struct tenant *requester)
{
	uint64_t least = patience(gate, requester), half = (gate->begun_at - gate->asked_at) / 2;

	if (!requester || half < least)
		return least;
	return half < GATE_PATIENCE_MOST_NS ? half : GATE_PATIENCE_MOST_NS;
}

/* Notes the obstacle in case the try fails now. Under tenants_lock. */
static void note_obstacle(struct gate *gate, const struct sight *sight)
{
	gate->obstacle.ns = sight->oldest;
	gate->obstacle.pid = sight->whose->pid;
	snprintf(gate->obstacle.program, sizeof(gate->obstacle.program), "%s", sight->whose->program);
}

static struct sight observe(struct executor *executor, uint64_t now)
{
	struct gate *gate = &executor->gate;
	struct sight sight = {0};
	struct tenant *tenant;
	uint64_t half;

	pthread_mutex_lock(&executor->tenants_lock);
	TAILQ_FOREACH (tenant, &executor->tenants, link)
		look_at_tenant(gate, tenant, now, &sight);
	if (sight.whose && sight.has_long)
		note_obstacle(gate, &sight);
	pthread_mutex_unlock(&executor->tenants_lock);
	half = sight.oldest / 2;
	word_set(&gate->threshold, half < GATE_SHORT_NS ? GATE_SHORT_NS : half);
	if (sight.has_long)
		gate->quiet_at = 0;
	else if (!gate->quiet_at)
		gate->quiet_at = now;
	return sight;
}

/* ---- the way to the gap ---- */

static bool is_gone(struct executor *executor, const struct tenant *tenant)
{
	return executor_is_lost(executor) || executor->modules.queue.stop || (tenant && tenant->closing);
}

static bool may_close(const struct gate *gate, const struct sight *sight, uint64_t now)
{
	return !sight->deep && !sight->has_long && (!sight->unproven || now - gate->quiet_at > GATE_SHORT_NS);
}

/* True if the other sessions leave no gap, and no command on the device would keep the gate closed
 * for long. */
static bool is_forced(
	const struct gate *gate, const struct tenant *requester, const struct sight *sight, uint64_t now)
{
	uint64_t limit = patience(gate, requester);

	return gate_phase(gate) != GATE_SHALLOW && now - gate->begun_at >= limit && sight->oldest < limit;
}

/* Return: whether the phase changed. */
static bool move(struct executor *executor, const struct sight *sight, bool forced, uint64_t now)
{
	struct gate *gate = &executor->gate;
	enum gate_phase phase = gate_phase(gate), next = phase;

	if (forced)
		next = GATE_CLOSED;
	else if (phase == GATE_SHALLOW && !sight->deep)
		next = GATE_LONG_FIRST;
	else if (phase == GATE_LONG_FIRST && may_close(gate, sight, now))
		next = GATE_CLOSED;
	else if (phase == GATE_CLOSED && now - gate->changed_at >= GATE_CLOSED_NS)
		next = GATE_LONG_FIRST;
	if (next == phase)
		return false;
	change(executor, next, now);
	return true;
}

/* True if commands that look done are done. A kernel that faulted looks done as well during its
 * examination, but is still on the device: a thread that waited for that kernel in the driver would
 * hold up all launches. The sign of the fault comes before the kernel's mark, so call this after
 * reading the marks. */
static bool is_whole(struct executor *executor)
{
	return !contain_is_open(executor);
}

static int give_up(struct executor *executor, int why)
{
	gate_leave(executor);
	return why;
}

void gate_begin(struct executor *executor, uint64_t asked_at, uint64_t now)
{
	struct gate *gate = &executor->gate;

	gate->round++;
	gate->begun_at = now;
	gate->asked_at = asked_at;
	gate->quiet_at = 0;
	change(executor, GATE_SHALLOW, now);
}

int gate_step(struct executor *executor, struct tenant *tenant, uint64_t now)
{
	struct gate *gate = &executor->gate;
	struct sight sight;
	uint64_t limit = endurance(gate, tenant);
	bool known;

	if (is_gone(executor, tenant))
		return give_up(executor, GATE_E_GONE);
	do {
		known = is_known(executor); /* before looking */
		sight = observe(executor, now);
		if (now - gate->asked_at >= limit && sight.oldest >= limit)
			return give_up(executor, GATE_E_LONG);
		if (gate_phase(gate) == GATE_CLOSED && known && !sight.any && is_whole(executor)) {
			gate->closed = true;
			gate->closed_at = now;
			return 0;
		}
	} while (known && move(executor, &sight, is_forced(gate, tenant, &sight, now), now));
	return GATE_E_WAIT;
}

static void wait_a_little(uint64_t since, uint64_t now)
{
	struct timespec time = {.tv_nsec = (long)clock_interval(since, now)};

	if (now - since < SPIN_NS)
		word_pause();
	else
		nanosleep(&time, NULL);
}

static int enter(struct executor *executor, struct tenant *tenant, uint64_t asked_at, uint64_t now)
{
	struct gate *gate = &executor->gate;
	int error;

	if (!gate_is_shut(gate)) {
		prctl(PR_SET_TIMERSLACK, 1000ul);
		gate_begin(executor, asked_at, now);
	}
	while ((error = gate_step(executor, tenant, now)) == GATE_E_WAIT) {
		if (!tenant && job_queue_is_wanted(&executor->modules.queue))
			return give_up(executor, GATE_E_BUSY);
		wait_a_little(gate->changed_at, now);
		now = clock_now();
		if (tenant && gate_phase(gate) != GATE_CLOSED &&
			job_queue_is_wanted(&executor->modules.queue))
			return GATE_E_WAIT;
	}
	return error;
}

int gate_enter(struct executor *executor, struct tenant *tenant, uint64_t asked_at)
{
	uint64_t now = clock_now();
	int error;

	if (executor->gate.closed)
		return 0;
	word_set(&executor->modules.work.gate_since,
		gate_is_shut(&executor->gate) ? executor->gate.begun_at : now);
	error = enter(executor, tenant, asked_at, now);
	word_set(&executor->modules.work.gate_since, 0);
	return error;
}

bool gate_try(struct executor *executor)
{
	struct gate *gate = &executor->gate;
	uint64_t begin = clock_now(), now = begin;
	bool known, any;

	if (gate->closed)
		return true;
	if (observe(executor, begin).any || !is_whole(executor))
		return false;
	gate_begin(executor, begin, begin);
	change(executor, GATE_CLOSED, begin);
	do {
		known = is_known(executor); /* before looking */
		any = observe(executor, now).any;
		if (known && !any && is_whole(executor)) {
			gate->closed = true;
			gate->closed_at = now;
			return true;
		}
		word_pause();
		now = clock_now();
	} while (!known && now - begin < GATE_CLOSED_NS);
	gate_leave(executor);
	return false;
}
