// The serving threads. Each thread owns some sessions and does, turn by turn, all steps between
// ring and backend. Sessions come and go by orders of the main thread; everything else is read from
// shared words.
//
//        ┌──────► orders, gate, one turn of every session ──something moved─┐
//        │                        │ nothing                                 │
//        │◄── within spin_ns: ────┤                                         │
//        │    some looks at the   │                                         │
//        │    rings alone         │                                         │
//        │                        ▼                                         │
//        │              mark what is unmarked                               │
//        │              asleep = 1 in every session                         │
//        │              fence, look at all rings once more                  │
//        │              epoll: doorbells, orders, time of the next look     │
//        └───────────── asleep = 0 ◄────────────────────────────────────────┘
//
// The time of the next look is "never" unless a poll is needed: sleepers, streams held for a
// completion or a word (hold.c), a full journal. So an executor whose clients are idle uses no
// processor.
//
// An operator can pause a session: the daemon sets a bit of its server region and sends Ping, which
// wakes all threads. At the next turn the session's thread takes nothing more from the ring, issues
// no command that waits in software, and marks the commands on the device, so that their end is
// known. All else goes on: questions of the main thread, the end of the session, a move to another
// executor, which reads the same bit. The same holds while the session's memory is away from the
// device (standby/swap.c), by another bit; then the first work calls for the memory.
//
// A turn takes at most BATCH records of a session, so that no session waits for another's flood; a
// session that cannot go on (held streams, full journal, offence) costs a few loads per turn.

#include "server/executor/serve.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "server/environment.h"
#include "server/clock.h"
#include "server/executor/dispatch.h"
#include "server/executor/halt.h"
#include "server/executor/hold.h"
#include "server/executor/intake.h"
#include "server/executor/mutex.h"
#include "server/executor/park.h"
#include "server/executor/retire.h"
#include "server/executor/tenant.h"
#include "server/executor/sentry.h"
#include "server/executor/sharing.h"
#include "server/executor/guard_watch.h"
#include "server/executor/timing.h"
#include "server/log.h"
#include "shm/doorbell.h"

#define BATCH 64u
/* Consumed bytes after which the ring's head is published within a batch. */
#define PUBLISH_BYTES	65536u
#define SPIN_US_DEFAULT 50u
/* Twice the time of a turn with a launch in all serving threads (mutex.h). */
#define LOCK_SPIN_NS 20000u
#define EVENTS	     64
/* Looks at rings between two idle turns: a few cycles each, where a turn is a hundred and more. */
#define LOOKS 64u
/* Looks at rings before the first look at times: the backend is not asked again at once. */
#define LOOKS_FIRST 12u

static bool can_serve(const struct tenant *tenant)
{
	return !tenant->stopped && !executor_is_lost(tenant->executor);
}

/* Return: whether there may be more. */
static bool take_one(struct tenant *tenant, uint64_t *published)
{
	struct stream *stream;
	int error = intake_next(tenant, &stream);

	if (!error && stream->hold == STREAM_RUNS && dispatch_issue(tenant, stream) == DISPATCH_E_STOP)
		return false;
	if (tenant->ring.head - *published >= PUBLISH_BYTES) {
		ring_consume(&tenant->ring, 0);
		*published = tenant->ring.head;
	}
	if (error == INTAKE_E_FULL && !tenant->choked)
		tenant->choked_at = tenant->now;
	tenant->choked = error == INTAKE_E_FULL;
	return !error || error == INTAKE_E_NOTHING;
}

static bool take_batch(struct tenant *tenant)
{
	uint64_t begin = tenant->ring.head, published = begin;

	if (!ring_has_work(&tenant->ring))
		return false;
	for (unsigned i = 0; i < BATCH && take_one(tenant, &published); i++)
		;
	if (tenant->ring.head == begin)
		return false;
	ring_consume(&tenant->ring, 0);
	return true;
}

static bool take_and_issue(struct tenant *tenant)
{
	bool moved = take_batch(tenant);

	if (!TAILQ_EMPTY(&tenant->held))
		moved |= hold_turn(tenant);
	if (!moved)
		return false;
	tenant->busy_at = tenant->now;
	word_set(&tenant->view.server->active, tenant->now);
	return true;
}

/* See drain.c: all issued commands are marked, and nothing from before this turn is in use. */
static void answer(struct tenant *tenant)
{
	uint64_t asked = word_acquire(&tenant->asked);

	if (asked == word_relaxed(&tenant->answered) || !hold_is_quiet(tenant))
		return;
	if (!executor_is_lost(tenant->executor))
		retire_mark_all(tenant);
	word_release(&tenant->answered, asked);
	job_board_kick(&tenant->executor->board);
}

/* True if the session has work that needs its memory. The acquire is that of the ring. */
static bool wants_memory(const struct tenant *tenant)
{
	return tenant_lacks_memory(tenant) && !word_relaxed(&tenant->called) && can_serve(tenant) &&
	       (ring_has_work(&tenant->ring) || !TAILQ_EMPTY(&tenant->held));
}

static void call_for_memory(struct tenant *tenant)
{
	struct wire_message message = {.type = WIRE_WANTED, .session = tenant->id};

	if (!wants_memory(tenant))
		return;
	word_set(&tenant->called, 1);
	executor_send(tenant->executor, &message);
}

bool serve_turn(struct tenant *tenant, uint64_t now)
{
	bool moved = false;

	tenant->now = now;
	guard_watch_sentence(tenant);
	if (gate_is_shut(&tenant->executor->gate) && !executor_is_lost(tenant->executor))
		retire_mark_all(tenant);
	/* Also for an ended session: it must not keep others off its units. */
	if (cap_is_due(tenant) && !executor_is_lost(tenant->executor))
		cap_look(tenant);
	if (can_serve(tenant)) {
		if (sharing_is_on(tenant))
			sharing_begin(tenant);
		if (tenant_is_running(tenant))
			moved = take_and_issue(tenant);
		else
			retire_mark_all(tenant);
		call_for_memory(tenant);
		if (tenant->share.is_listed)
			sharing_end(tenant);
		/* Times are published when nothing else moves, or a client waits. */
		if (!moved || tenant->wake_count)
			timing_turn(tenant);
		retire_turn(tenant);
	} else if (tenant->share.is_listed) {
		share_leave(&tenant->executor->shares, &tenant->share);
	}
	sentry_look(tenant);
	answer(tenant);
	return moved;
}

uint64_t serve_next_look(const struct tenant *tenant, uint64_t now)
{
	uint64_t next = UINT64_MAX, at;

	if (tenant->leaving || word_acquire(&tenant->asked) != word_relaxed(&tenant->answered))
		next = now + 20 * CLOCK_US;
	if (executor_is_lost(tenant->executor))
		return next;
	at = sentry_next_look(tenant, now);
	next = at < next ? at : next;
	at = cap_next_look(tenant);
	next = at < next ? at : next;
	if (tenant->stopped)
		return next;
	at = retire_next_look(tenant, now);
	next = at < next ? at : next;
	at = timing_next_look(tenant, now);
	next = at < next ? at : next;
	at = sharing_next_look(tenant, now);
	next = at < next ? at : next;
	if (!tenant_is_running(tenant))
		return next;
	at = hold_next_look(tenant, now);
	next = at < next ? at : next;
	at = tenant->choked ? now + clock_interval(tenant->choked_at, now) : UINT64_MAX;
	return at < next ? at : next;
}

/* True if a turn would take a record from the ring. */
static bool has_records(const struct tenant *tenant)
{
	return ring_has_work(&tenant->ring) && !tenant->choked && can_serve(tenant) &&
	       tenant_is_running(tenant);
}

/* The second look of the sleep protocol: work that came before the client could see `asleep`. */
static bool is_ready(const struct tenant *tenant)
{
	if (word_acquire(&tenant->asked) != word_relaxed(&tenant->answered))
		return hold_is_quiet(tenant);
	return has_records(tenant) || wants_memory(tenant) ||
	       (can_serve(tenant) && tenant_is_running(tenant) && hold_is_ready(tenant));
}

static void attach(struct serve_thread *thread, struct tenant *tenant)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = tenant};

	/* After a halt the next executor owns the doorbell. */
	if (!word_relaxed(&thread->halted) &&
		epoll_ctl(thread->epoll, EPOLL_CTL_ADD, tenant->doorbell, &event) < 0)
		log_error("session %llu: cannot listen to its doorbell: %m", (unsigned long long)tenant->id);
	TAILQ_INSERT_TAIL(&thread->tenants, tenant, served_link);
}

/* After the release no thread retries a failed mark, and without the mark the end of the work is
 * not known. */
static bool may_let_go(struct tenant *tenant)
{
	if (!hold_is_quiet(tenant))
		return false;
	if (executor_is_lost(tenant->executor))
		return true;
	retire_mark_all(tenant);
	return TAILQ_EMPTY(&tenant->unmarked);
}

static void detach(struct serve_thread *thread, struct tenant *tenant)
{
	struct executor *executor = tenant->executor;

	epoll_ctl(thread->epoll, EPOLL_CTL_DEL, tenant->doorbell, NULL);
	TAILQ_REMOVE(&thread->tenants, tenant, served_link);
	sharing_leave(tenant);
	/* Pairs with the acquire in drain.c and open.c. The tenant may be freed from here on. */
	word_release(&tenant->served, 0);
	job_board_kick(&executor->board);
}

/* Return: whether the thread shall go on. */
static bool take_orders(struct serve_thread *thread)
{
	struct serve_orders orders = STAILQ_HEAD_INITIALIZER(orders);
	struct serve_order *order;
	bool stop;

	/* Pairs with the release behind a new order. */
	if (!word_acquire(&thread->ordered))
		return true;
	pthread_mutex_lock(&thread->lock);
	word_set(&thread->ordered, 0);
	STAILQ_CONCAT(&orders, &thread->orders);
	stop = thread->stop;
	pthread_mutex_unlock(&thread->lock);
	while ((order = STAILQ_FIRST(&orders))) {
		STAILQ_REMOVE_HEAD(&orders, link);
		if (order->attach)
			attach(thread, order->tenant);
		else
			order->tenant->stopped = order->tenant->leaving = true;
	}
	return !stop;
}

static bool turn_all(struct serve_thread *thread, uint64_t now)
{
	struct tenant *tenant, *next;
	bool moved = false;

	for (tenant = TAILQ_FIRST(&thread->tenants); tenant; tenant = next) {
		next = TAILQ_NEXT(tenant, served_link);
		word_set(&thread->serving, tenant->id);
		moved |= serve_turn(tenant, now);
		if (tenant->leaving && may_let_go(tenant))
			detach(thread, tenant);
	}
	word_set(&thread->serving, 0);
	return moved;
}

static int wait_events(int epoll, struct epoll_event *events, uint64_t timeout_ns)
{
	struct timespec time = {
		.tv_sec = (time_t)(timeout_ns / 1000000000u), .tv_nsec = (long)(timeout_ns % 1000000000u)};
	int count = epoll_pwait2(epoll, events, EVENTS, timeout_ns == UINT64_MAX ? NULL : &time, NULL);

	if (count < 0 && errno == ENOSYS) /* an old kernel: milliseconds must do */
		count = epoll_wait(epoll, events, EVENTS,
			timeout_ns == UINT64_MAX ? -1 : (int)(timeout_ns / CLOCK_MS) + 1);
	return count;
}

static void sleep_until(struct serve_thread *thread, uint64_t next)
{
	struct epoll_event events[EVENTS];
	uint64_t now = clock_now();
	int count;

	count = wait_events(thread->epoll, events, next == UINT64_MAX ? next : next > now ? next - now : 0);
	for (int i = 0; i < count; i++) {
		struct tenant *tenant = events[i].data.ptr;

		doorbell_drain(tenant ? tenant->doorbell : thread->kick);
	}
}

/* The next executor owns the word once the thread has passed a halt: a client that reads this
 * executor's value would not ring.
 */
static void say_asleep(const struct serve_thread *thread, struct tenant *tenant, uint32_t asleep)
{
	if (!word_relaxed(&thread->halted))
		word_release(&tenant->view.server->asleep, asleep);
}

static void sleep_safely(struct serve_thread *thread, uint64_t now)
{
	bool ready = false;
	uint64_t next = UINT64_MAX;
	struct tenant *tenant;

	TAILQ_FOREACH (tenant, &thread->tenants, served_link) {
		if (!executor_is_lost(tenant->executor))
			retire_mark_all(tenant);
		say_asleep(thread, tenant, 1);
	}
	word_release(&thread->resting, 1);
	word_fence();
	TAILQ_FOREACH (tenant, &thread->tenants, served_link) {
		uint64_t at = serve_next_look(tenant, now);

		ready |= is_ready(tenant);
		next = at < next ? at : next;
	}
	if (!ready)
		sleep_until(thread, next);
	word_release(&thread->resting, 0);
	word_fence(); /* before the next look at the gate */
	TAILQ_FOREACH (tenant, &thread->tenants, served_link)
		say_asleep(thread, tenant, 0);
}

/* True if the time of an event can be published: a program asks for the time right behind its
 * wait. */
static bool has_times(struct tenant *tenant)
{
	return can_serve(tenant) && timing_is_due(tenant);
}

/* The work of an idle thread between two turns. Most often a record comes next, and the delay until
 * the thread sees the record is a part of every launch. All else can wait for the next turn, but
 * for times: the thread looks at times after a while, since the device may just be writing an
 * event. */
static void watch_rings(const struct serve_thread *thread)
{
	struct tenant *tenant;

	for (unsigned looks = 0; looks < LOOKS; looks++) {
		TAILQ_FOREACH (tenant, &thread->tenants, served_link) {
			if (has_records(tenant) || (looks >= LOOKS_FIRST && has_times(tenant)))
				return;
			looks++;
		}
		word_glance();
	}
}

/* From here on this thread obeys the present gate. Pairs with the acquire in gate.c. */
static void look_at_gate(struct serve_thread *thread)
{
	uint64_t word = word_acquire(&thread->executor->gate.word);

	if (word != word_relaxed(&thread->gate_seen))
		word_release(&thread->gate_seen, word);
}

static void *serve(void *argument)
{
	struct serve_thread *thread = argument;
	struct executor *executor = thread->executor;

	/* Not pthread_setname_np() from outside: that opens /proc/self/task/…, and the kernel has
	 * state for such paths. When the process is killed, its threads and its parent undo that
	 * state, and can block each other for seconds. */
	prctl(PR_SET_NAME, "frmps-serve");
	prctl(PR_SET_TIMERSLACK, 1000ul);
	park_enter(thread);
	executor_code(executor, executor->ops->thread_enter());
	while (take_orders(thread)) {
		uint64_t now = clock_now();

		look_at_gate(thread);
		halt_look(thread);
		if (turn_all(thread, now))
			thread->worked_at = now;
		else if (now - thread->worked_at < executor->pool.spin_ns)
			watch_rings(thread);
		else
			sleep_safely(thread, now);
	}
	word_release(&thread->resting, 1);
	return NULL;
}

static unsigned default_threads(void)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN) / 2;
	unsigned threads = processors < 1 ? 1 : processors > 8 ? 8 : (unsigned)processors;

	threads = (unsigned)environment_number("FRMPS_EXECUTOR_THREADS", threads, 0, SERVE_THREADS_MAX);
	return threads ? threads : 1;
}

static int thread_start(struct serve_thread *thread, struct executor *executor)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};

	thread->executor = executor;
	STAILQ_INIT(&thread->orders);
	TAILQ_INIT(&thread->tenants);
	pthread_mutex_init(&thread->lock, NULL);
	thread->epoll = epoll_create1(EPOLL_CLOEXEC);
	thread->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (thread->epoll < 0 || thread->kick < 0 ||
		epoll_ctl(thread->epoll, EPOLL_CTL_ADD, thread->kick, &event) < 0)
		return -errno;
	int error = pthread_create(&thread->thread, NULL, serve, thread);
	if (error)
		return -error;
	thread->started = true;
	return 0;
}

int serve_pool_init(struct executor *executor, unsigned threads)
{
	struct serve_pool *pool = &executor->pool;
	int error = 0;

	pool->spin_ns = environment_number("FRMPS_SPIN_US", SPIN_US_DEFAULT, 0, 1000000) * CLOCK_US;
	mutex_spin(LOCK_SPIN_NS);
	threads = threads ? threads : default_threads();
	pool->threads = aligned_alloc(SHM_LINE, threads * sizeof(*pool->threads));
	if (!pool->threads)
		return -ENOMEM;
	memset(pool->threads, 0, threads * sizeof(*pool->threads));
	while (!error && pool->count < threads)
		error = thread_start(&pool->threads[pool->count++], executor);
	return error;
}

static void thread_stop(struct serve_thread *thread)
{
	pthread_mutex_lock(&thread->lock);
	thread->stop = true;
	word_release(&thread->ordered, 1);
	pthread_mutex_unlock(&thread->lock);
	if (thread->started) {
		doorbell_force(thread->kick);
		pthread_join(thread->thread, NULL);
	}
	if (thread->epoll >= 0)
		close(thread->epoll);
	if (thread->kick >= 0)
		close(thread->kick);
	pthread_mutex_destroy(&thread->lock);
}

void serve_pool_deinit(struct executor *executor)
{
	struct serve_pool *pool = &executor->pool;

	for (unsigned i = 0; i < pool->count; i++)
		thread_stop(&pool->threads[i]);
	free(pool->threads);
	*pool = (struct serve_pool){0};
}

static void give_order(struct tenant *tenant, bool attaches)
{
	struct serve_thread *thread = tenant->thread;
	struct serve_order *order = &tenant->orders[attaches];

	*order = (struct serve_order){.tenant = tenant, .attach = attaches};
	pthread_mutex_lock(&thread->lock);
	STAILQ_INSERT_TAIL(&thread->orders, order, link);
	word_release(&thread->ordered, 1);
	pthread_mutex_unlock(&thread->lock);
	doorbell_force(thread->kick);
}

void serve_attach(struct tenant *tenant)
{
	struct serve_pool *pool = &tenant->executor->pool;
	struct serve_thread *thread = &pool->threads[0];

	for (unsigned i = 1; i < pool->count; i++)
		if (pool->threads[i].load < thread->load)
			thread = &pool->threads[i];
	tenant->thread = thread;
	word_release(&tenant->served, 1);
	give_order(tenant, true);
	thread->load++;
}

void serve_detach(struct tenant *tenant)
{
	give_order(tenant, false);
	tenant->thread->load--;
}
