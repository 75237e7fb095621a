// The gate. A driver that puts code or data on the device, or takes it away, waits until all that
// was issued to the context is done, and blocks everybody's launches meanwhile: deep queues and
// long kernels of one client become a gap of all. So before such a call, a load for short,
//
//          begin           no queue has two           nothing long runs         nothing runs
//   OPEN ─────────► SHALLOW ────────────────► LONG_FIRST ───────────────► CLOSED ────────────► load
//     ▲                                           ▲                         │                   │
//     │                                           └──── GATE_CLOSED_NS ─────┘                   │
//     └── refused, session or context gone (from everywhere) ◄─────────── gate_leave ───────────┘
//
//   SHALLOW     a stream has one command on the device at a time, with a mark behind it; deeper
//               queues run down to that. Everybody goes on.
//   LONG_FIRST  the same, and a stream whose last command was longer than the threshold gets no
//               other one.
//   CLOSED      nobody gets anything.
//
// The threshold is half the time that the oldest command has been running, at least GATE_SHORT_NS:
// streams stop in the order of the length of their commands, and none waits for one that takes much
// longer than its own do. That also undoes a knot: a kernel that waits for another stream's kernel
// gets older until that one may go.
//
// What runs for a short time only is known for streams that have finished a command which began
// under the gate (proven). For others the end of that command is awaited, at most GATE_SHORT_NS
// long; if one turns out long when the gate is closed, it is opened to LONG_FIRST again. So nobody
// is stopped for much more than GATE_CLOSED_NS, plus the load itself.
//
// Patience: when it is over (GATE_NOBODY_NS where nobody waits for what is to be done)
//   - and a command of another session has been running for as long: the load is refused. It would
//     stop everybody until that command ends, which may be never; the daemon then gives the
//     requesting session an executor of its own (standby/move.c). Time in the queue counts, so that
//     those who came together are refused together;
//   - and a long command of the requesting session runs: it is awaited, as without us, in
//     LONG_FIRST, without limit; but when other requests have come meanwhile they are handled
//     first;
//   - otherwise the others come and go in a way that leaves no gap: the gate is closed until there
//     is one.
//
// Threads. The module thread moves the gate and does all observing, from the words that serving
// threads and the device write anyway (issued, marked, done). Serving threads obey: one relaxed
// load per command when the gate is open. A change counts when each of them has begun a turn after
// it (thread->gate_seen) or sleeps (thread->resting: it looks at the word when it wakes; both sides
// fence in between). All look at the one word, so who has written it back never goes by an older
// value.
//
// Streams that wait are held like others (hold.c), so those of a session that ends are simply
// dropped; what it has on the device already is waited for like everything else.

#include "server/executor/gate.h"

#include <stdio.h>
#include <sys/prctl.h>
#include <time.h>

#include "server/executor/clock.h"
#include "server/executor/retire.h"
#include "server/executor/tenant.h"
#include "server/log.h"
#include "shm/doorbell.h"

#define SPIN_NS (50 * CLOCK_US)

/* What is on the device, of all sessions. */
struct sight {
	bool any, deep, has_long, own_long, unproven;
	uint64_t oldest, foreign;   /* ns: longest time without an end, of all and of other sessions */
	const struct tenant *whose; /* the latter; valid under tenants_lock */
};

void gate_init(struct executor *executor, uint64_t patience_ms)
{
	executor->gate.patience_ns = patience_ms * CLOCK_MS;
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
	/* Against resting: either we see that a thread is awake, or it sees the change when it
	 * wakes. */
	word_fence();
}

/* Whether everybody goes by the word as it is. */
static bool is_known(struct executor *executor)
{
	uint64_t word = word_relaxed(&executor->gate.word);

	for (unsigned i = 0; i < executor->pool.count; i++) {
		struct serve_thread *thread = &executor->pool.threads[i];

		/* Pair with the releases in serve.c: what it issued before can be seen. */
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

/* Some commands ended: how long each took. */
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
		/* What was its oldest command at the last look of an earlier round still is, or is
		 * done. */
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

static void add(
	struct sight *sight, const struct gate_watch *watch, uint64_t depth, bool is_own, uint64_t now)
{
	uint64_t age = now - watch->since;
	bool is_long = age > GATE_SHORT_NS || word_relaxed(&watch->duration) > GATE_SHORT_NS;

	sight->any = true;
	sight->deep |= depth > 1;
	sight->has_long |= is_long;
	sight->own_long |= is_long && is_own;
	sight->unproven |= !watch->proven;
	if (age > sight->oldest)
		sight->oldest = age;
	if (!is_own && age > sight->foreign)
		sight->foreign = age;
}

static void look_at_tenant(
	const struct gate *gate, struct tenant *tenant, bool is_own, uint64_t now, struct sight *sight)
{
	uint64_t foreign = sight->foreign;
	uint32_t generation = word_acquire(&tenant->generation), slots = word_acquire(&tenant->slots);
	const struct shm_view *view = &tenant->view;
	const struct shm_timeline *timeline = shm_view_timeline(view, generation);

	if (!generation)
		return;
	for (uint32_t slot = 0; slot < slots; slot++) {
		/* Done first: it is never beyond what is then seen as issued. */
		uint64_t done = word_acquire(&timeline->stream[slot].done);
		uint64_t marked = word_acquire(&view->states[slot].marked);
		uint64_t issued = word_acquire(&view->states[slot].issued);
		struct gate_watch *watch = &tenant->streams[slot].gate;

		/* A word beyond what was marked is a stray write of a kernel. */
		if (done > marked)
			done = marked;
		look(watch, gate->round, issued, done, now);
		if (!watch->since)
			continue;
		add(sight, watch, issued - done, is_own, now);
	}
	if (sight->foreign > foreign)
		sight->whose = tenant;
}

/* In case the patience ends now. Under tenants_lock. */
static void note_culprit(struct gate *gate, const struct sight *sight)
{
	gate->refused_ns = sight->foreign;
	snprintf(gate->refused_by, sizeof(gate->refused_by), "%s", sight->whose->program);
	gate->refused_pid = sight->whose->pid;
	gate->refused_session = sight->whose->id;
}

static uint64_t patience(const struct gate *gate, const struct tenant *requester)
{
	if (requester || gate->pressing || gate->patience_ns < GATE_NOBODY_NS)
		return gate->patience_ns;
	return GATE_NOBODY_NS;
}

/* Whether what others have on the device takes too long. */
static bool is_refused(
	const struct gate *gate, const struct tenant *requester, const struct sight *sight, uint64_t now)
{
	uint64_t limit = patience(gate, requester);

	return now - gate->asked_at >= limit && sight->foreign >= limit;
}

static struct sight observe(struct executor *executor, const struct tenant *requester, uint64_t now)
{
	struct gate *gate = &executor->gate;
	struct sight sight = {0};
	struct tenant *tenant;
	uint64_t half;

	pthread_mutex_lock(&executor->tenants_lock);
	TAILQ_FOREACH (tenant, &executor->tenants, link)
		look_at_tenant(gate, tenant, tenant == requester, now, &sight);
	if (sight.whose && sight.foreign >= patience(gate, requester))
		note_culprit(gate, &sight);
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
	bool stop;

	if (executor_is_lost(executor))
		return true;
	pthread_mutex_lock(&executor->modules.lock);
	stop = executor->modules.stop;
	pthread_mutex_unlock(&executor->modules.lock);
	return stop || (tenant && tenant->closing);
}

static bool may_close(const struct gate *gate, const struct sight *sight, uint64_t now)
{
	return !sight->deep && !sight->has_long && (!sight->unproven || now - gate->quiet_at > GATE_SHORT_NS);
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

/* Whether what looks done is. A kernel that faulted looks so as well while it is examined, and is
 * on the device all the same: whoever waited for that in the driver would hold everybody's launches
 * up. The sign of it comes before its mark, so this is looked at behind the marks. */
static bool is_whole(struct executor *executor)
{
	return !contain_is_open(executor);
}

static int give_up(struct executor *executor, int why)
{
	gate_leave(executor);
	return why;
}

void gate_begin(struct executor *executor, uint64_t now)
{
	struct gate *gate = &executor->gate;

	gate->round++;
	gate->begun_at = gate->asked_at = now;
	gate->quiet_at = 0;
	change(executor, GATE_SHALLOW, now);
}

int gate_step(struct executor *executor, struct tenant *tenant, uint64_t now)
{
	struct gate *gate = &executor->gate;
	struct sight sight;
	bool known, late, forced;

	if (is_gone(executor, tenant))
		return give_up(executor, GATE_E_GONE);
	do {
		known = is_known(executor); /* before looking */
		sight = observe(executor, tenant, now);
		if (is_refused(gate, tenant, &sight, now))
			return give_up(executor, GATE_E_REFUSED);
		late = now - gate->begun_at >= patience(gate, tenant);
		if (gate_phase(gate) == GATE_CLOSED && known && !sight.any && is_whole(executor)) {
			gate->closed = true;
			gate->closed_at = now;
			return 0;
		}
		forced = late && !sight.own_long;
	} while (known && move(executor, &sight, forced, now));
	return late && sight.own_long ? GATE_E_OWN : GATE_E_WAIT;
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
		gate_begin(executor, now);
	}
	gate->asked_at = asked_at;
	while ((error = gate_step(executor, tenant, now)) == GATE_E_WAIT || error == GATE_E_OWN) {
		if ((error == GATE_E_OWN || !tenant) && module_worker_is_wanted(&executor->modules))
			return give_up(executor, GATE_E_OWN);
		wait_a_little(gate->changed_at, now);
		now = clock_now();
		if (tenant && gate_phase(gate) != GATE_CLOSED && module_worker_is_wanted(&executor->modules))
			return GATE_E_WAIT;
	}
	if (error == GATE_E_REFUSED && tenant)
		log_debug("code of session %llu (%s, pid %d) is not loaded: a kernel of %s, pid %d, has been "
			  "running for %llu ms, and loading would stop everybody until it ends",
			(unsigned long long)tenant->id, tenant->program, tenant->pid, gate->refused_by,
			gate->refused_pid, (unsigned long long)(gate->refused_ns / CLOCK_MS));
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
	if (observe(executor, NULL, begin).any || !is_whole(executor))
		return false;
	gate_begin(executor, begin);
	change(executor, GATE_CLOSED, begin);
	do {
		known = is_known(executor); /* before looking */
		any = observe(executor, NULL, now).any;
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
