// See wait.h. The completion words are read-only memory here: written by the device, or by the
// executor while nothing of the stream is on the device. The sleep protocol is the right half of
// the picture in shm/doorbell.h: `wake` is read before the last look at the words.

#include "client/submit/wait.h"

#include <sched.h>

#include "client/link/lost.h"
#include "client/state/clock.h"
#include "client/state/process.h"
#include "client/state/session.h"
#include "client/state/stream_slot.h"
#include "client/state/thread.h"
#include "client/state/uncancelled.h"
#include "client/submit/submit.h"
#include "client/text/text.h"
#include "shm/doorbell.h"

/* Longest sleep without a look at the control socket. */
#define SLEEP_US UINT64_C(100000)
/* Factor of the spinning time for a context that asks for spinning. */
#define SPIN_FACTOR 100
/* Looks at the completion word for each look at the clock. */
#define LOOKS 64u
/* Nearly all waits for short work end within this time; such a short spin does not pause for the
 * processor's other hyperthread. */
#define EAGER_NS UINT64_C(20000)
/* A yield that takes this long has let another thread run: otherwise a yield takes some 0.5 us. */
#define SWITCH_NS UINT64_C(3000)
/* How long a thread believes that others want its processor. */
#define CROWD_LEAST_NS UINT64_C(1000000)
#define CROWD_MOST_NS  UINT64_C(1000000000)

bool wait_launches;

/* While a session is held, or the executor has seen a sign of a fault, a command that became done
 * may be a kernel that faulted: the completion counts once the session continues. The caller reads
 * the completion word first: the service sets the state or `doubtful` before the mark behind such a
 * kernel can arrive, or before it collects completions. `doubtful` comes before `state`: an
 * executor ends the session whose kernel faulted before it clears `doubtful`. */
static bool is_believed(const struct session *session)
{
	struct shm_server_header *server = session->connection.view.server;

	return !word_acquire(&server->doubtful) && word_acquire(&server->state) == SHM_SESSION_RUNNING;
}

bool wait_is_done(const struct client_stream *stream, uint64_t seq)
{
	const struct session *session = stream->session;

	return seq == 0 ||
	       (shm_view_done(&session->connection.view, stream->slot) >= seq && is_believed(session));
}

CUresult wait_poll(struct client_stream *stream, uint64_t seq)
{
	CUresult r;

	if (wait_is_done(stream, seq))
		return CUDA_SUCCESS;
	r = lost_glance(stream->session);
	if (r == CUDA_SUCCESS)
		r = submit_mark(stream, seq);
	return r == CUDA_SUCCESS ? CUDA_ERROR_NOT_READY : r;
}

CUresult wait_known(struct client_stream *stream, uint64_t seq)
{
	const struct session *session = stream->session;

	if (shm_view_done(&session->connection.view, stream->slot) >= seq && !is_believed(session))
		return wait_quietly(stream, seq, true);
	return wait_poll(stream, seq);
}

/* The calling thread's spinning time in nanoseconds: its context decides. */
static uint64_t spin_ns(const struct session *session, bool sleepy)
{
	uint64_t ns = (uint64_t)session->connection.spin_us * 1000;

	switch (thread_scheduling()) {
	case CU_CTX_SCHED_SPIN:
		ns *= SPIN_FACTOR;
		break;
	case CU_CTX_SCHED_BLOCKING_SYNC:
		sleepy = true;
		break;
	default:
		break;
	}
	return sleepy ? 0 : ns;
}

/* Some looks at the completion word. If a new generation replaces the word meanwhile, its value is
 * still true. */
static bool look(const struct client_stream *stream, uint64_t seq, bool eager)
{
	const struct shm_view *view = &stream->session->connection.view;
	uint32_t generation = word_acquire(&view->server->generation);
	const word64 *done = &shm_timeline_at(shm_view_timeline(view, generation), stream->slot)->done;

	for (unsigned int i = 0; i < LOOKS; ++i) {
		if (word_acquire(done) >= seq)
			return true;
		if (eager)
			word_glance();
		else
			word_pause();
	}
	return false;
}

/* Looks at each target. */
static bool look_at_each(const struct wait_target *targets, uint32_t count, bool eager)
{
	for (uint32_t i = 0; i < count; ++i)
		if (look(targets[i].stream, targets[i].seq, eager))
			return true;
	return false;
}

static bool any_is_done(const struct wait_target *targets, uint32_t count)
{
	for (uint32_t i = 0; i < count; ++i)
		if (wait_is_done(targets[i].stream, targets[i].seq))
			return true;
	return false;
}

/* If there are more runnable threads than processors, a spinning thread delays the others, and so
 * perhaps the executor's thread that it waits for. A yield that lets another thread run shows that,
 * and costs a slice of some milliseconds. So a thread that has lost one believes it for a while,
 * each time for twice as long. */
static __thread struct {
	uint64_t until;	   /* ns */
	uint64_t believed; /* ns; 0: the latest yield has let no other thread run */
} crowd;

/* Return: true if another thread has run: the calling one had better sleep */
static bool give_way(void)
{
	uint64_t begin = clock_now_ns(), now;

	sched_yield();
	now = clock_now_ns();
	if (now - begin < SWITCH_NS) {
		crowd.believed = 0;
		return false;
	}
	crowd.believed = crowd.believed ? 2 * crowd.believed : CROWD_LEAST_NS;
	if (crowd.believed > CROWD_MOST_NS)
		crowd.believed = CROWD_MOST_NS;
	crowd.until = now + crowd.believed;
	return true;
}

/* Spins, and yields meanwhile unless the context asks for spinning. Where other threads want the
 * processor, sleeping leaves it to them at once: yields would pass it around among the spinning
 * threads, each for a slice of some milliseconds. Return: true if one of the commands is done;
 * false also at the end of the session. */
static bool spin(const struct wait_target *targets, uint32_t count, uint64_t ns)
{
	const struct session *session = targets->stream->session;
	struct shm_server_header *server = session->connection.view.server;
	bool yields = thread_scheduling() != CU_CTX_SCHED_SPIN;
	uint64_t begin = clock_now_ns(), passed = 0;
	bool is_crowded = begin < crowd.until;

	while (passed < ns) {
		bool late = passed >= EAGER_NS;

		if (look_at_each(targets, count, !late) && is_believed(session))
			return true;
		/* The executor writes this cache line when it takes records, so looks are rare. */
		if (word_relaxed(&server->state) > SHM_SESSION_HELD)
			return false;
		if (yields && (is_crowded || (late && give_way())))
			return false;
		passed = clock_now_ns() - begin;
	}
	return false;
}

/* Requests the wake-ups; from a new executor the marks as well. */
static CUresult ask(const struct wait_target *targets, uint32_t count, bool again)
{
	CUresult r = CUDA_SUCCESS;

	for (uint32_t i = 0; i < count && r == CUDA_SUCCESS; ++i) {
		if (again)
			r = submit_mark_again(targets[i].stream);
		if (r == CUDA_SUCCESS)
			r = submit_wake(targets[i].stream, targets[i].seq);
	}
	return r;
}

/* Sleeps until a command is done. Repeats the requests to the successor of a dead executor. */
static CUresult sleep_until(const struct wait_target *targets, uint32_t count)
{
	struct session *session = targets->stream->session;
	struct shm_server_header *server = session->connection.view.server;
	uint32_t asked = 0, generation, seen;
	CUresult r = CUDA_SUCCESS;

	while (r == CUDA_SUCCESS) {
		generation = word_acquire(&server->generation);
		if (generation != asked) {
			r = ask(targets, count, asked != 0);
			asked = generation;
		}
		seen = word_acquire(&server->wake);
		if (any_is_done(targets, count))
			return CUDA_SUCCESS;
		if (r == CUDA_SUCCESS)
			r = lost_verdict(session);
		if (r != CUDA_SUCCESS)
			break;
		wake_wait(&server->wake, seen, SLEEP_US);
		if (word_acquire(&server->wake) == seen)
			r = lost_check(session);
	}
	return any_is_done(targets, count) ? CUDA_SUCCESS : r;
}

CUresult wait_any(const struct wait_target *targets, uint32_t count, bool sleepy)
{
	CUresult r = CUDA_SUCCESS;

	if (any_is_done(targets, count))
		return CUDA_SUCCESS;
	for (uint32_t i = 0; i < count && r == CUDA_SUCCESS; ++i)
		r = submit_mark(targets[i].stream, targets[i].seq);
	if (r != CUDA_SUCCESS)
		return r;
	if (spin(targets, count, spin_ns(targets->stream->session, sleepy)))
		return CUDA_SUCCESS;
	return sleep_until(targets, count);
}

CUresult wait_quietly(struct client_stream *stream, uint64_t seq, bool sleepy)
{
	return wait_any(&(struct wait_target){stream, seq}, 1, sleepy);
}

CUresult wait_done(struct client_stream *stream, uint64_t seq, bool sleepy)
{
	CUresult r = wait_quietly(stream, seq, sleepy);

	text_flush(stream->session);
	return r;
}

/* The streams of a session that a wait or query covers. */
struct circle {
	struct session *session;
	bool blocking_only;
	CUcontext context; /* NULL: all */
};

static bool is_in(const struct circle *circle, const struct client_stream *stream)
{
	if (stream->session != circle->session)
		return false;
	if (stream == circle->session->streams.legacy)
		return !circle->context || stream_is_in(stream, circle->context);
	if (circle->blocking_only && !stream->blocking)
		return false;
	return !circle->context || stream_is_in(stream, circle->context);
}

/* Calls `visit` for the last command of every covered stream; stops at the first error. */
static CUresult each_stream(
	const struct circle *circle, CUresult (*visit)(struct client_stream *stream, uint64_t seq))
{
	uint32_t used = stream_slots_used();
	CUresult r = CUDA_SUCCESS;

	for (uint32_t slot = 0; r == CUDA_SUCCESS && slot < used; ++slot) {
		struct client_stream *stream = stream_slot(slot);

		if (is_in(circle, stream))
			r = visit(stream, word_acquire(&stream->last));
	}
	return r;
}

static CUresult visit_mark(struct client_stream *stream, uint64_t seq)
{
	return wait_is_done(stream, seq) ? CUDA_SUCCESS : submit_mark(stream, seq);
}

static CUresult visit_wait(struct client_stream *stream, uint64_t seq)
{
	return wait_quietly(stream, seq, false);
}

/* True if work outside of the covered streams may be in flight. */
static bool goes_on_outside(const struct circle *circle)
{
	uint32_t used = stream_slots_used();

	for (uint32_t slot = 0; slot < used; ++slot) {
		struct client_stream *stream = stream_slot(slot);

		if (stream->session == circle->session && !is_in(circle, stream) &&
			!wait_is_done(stream, word_acquire(&stream->last)))
			return true;
	}
	return false;
}

/* All marks first, then all waits: the streams run side by side. */
static CUresult wait_work(const struct circle *circle)
{
	CUresult r = each_stream(circle, visit_mark);

	return r == CUDA_SUCCESS ? each_stream(circle, visit_wait) : r;
}

static CUresult late_error(struct session *session)
{
	struct shm_server_header *server = session->connection.view.server;
	uint32_t count = word_acquire(&server->late_errors);
	uint32_t seen = word_relaxed(&session->late_seen);
	CUresult r = lost_verdict(session);

	if (r != CUDA_SUCCESS)
		return r;
	if (seen == count || !atomic_compare_exchange_strong(&session->late_seen, &seen, count))
		return word_relaxed(&session->late_own) ? (CUresult)atomic_exchange(&session->late_own, 0)
							: CUDA_SUCCESS;
	return (CUresult)word_relaxed(&server->late_error);
}

void wait_note_error(struct session *session, CUresult code)
{
	word_release(&session->late_own, (uint32_t)code);
}

static CUresult wait_each(const struct circle *circle)
{
	CUresult r = wait_work(circle);

	if (r == CUDA_SUCCESS && !circle->blocking_only && !goes_on_outside(circle))
		text_settle(circle->session);
	else
		text_flush(circle->session);
	return r == CUDA_SUCCESS ? late_error(circle->session) : r;
}

CUresult wait_launched(struct client_stream *stream)
{
	CUresult r = wait_done(stream, word_acquire(&stream->last), false);

	return r == CUDA_SUCCESS ? late_error(stream->session) : r;
}

/* Whether the stream is the legacy one of its session, and then what a wait for that covers. */
static bool covers_others(const struct client_stream *stream, struct circle *ret_circle)
{
	*ret_circle = (struct circle){.session = stream->session, .blocking_only = true};
	return stream == stream->session->streams.legacy;
}

CUresult wait_stream(struct client_stream *stream)
{
	struct circle circle;

	return covers_others(stream, &circle) ? wait_each(&circle) : wait_launched(stream);
}

/* Blocking streams run behind the legacy stream (join.h). */
CUresult wait_turn(struct client_stream *stream)
{
	struct client_stream *legacy = stream->session->streams.legacy;
	CUresult r = CUDA_SUCCESS;

	if (stream != legacy && stream->blocking)
		r = wait_quietly(legacy, word_acquire(&legacy->last), false);
	return r == CUDA_SUCCESS ? wait_stream(stream) : r;
}

CUresult wait_query_stream(struct client_stream *stream)
{
	struct circle circle;

	if (covers_others(stream, &circle))
		return each_stream(&circle, wait_poll);
	return wait_poll(stream, word_acquire(&stream->last));
}

/* Time between two looks at the copies between devices. */
#define PAUSE_NS UINT64_C(50000)

/* Copies in the order of another device's stream use memory of this session as well. */
static CUresult wait_ferries(struct session *session)
{
	CUresult r = process_session_error(session);

	while (r == CUDA_SUCCESS && word_acquire(&session->ferries)) {
		uncancelled_sleep(PAUSE_NS);
		r = lost_check(session);
	}
	return r;
}

static CUresult wait_session(struct session *session)
{
	CUresult r = wait_ferries(session), other = wait_each(&(struct circle){.session = session});

	return r == CUDA_SUCCESS ? other : r;
}

CUresult wait_all(void)
{
	return wait_session(session_self());
}

CUresult wait_everywhere(void)
{
	CUresult r = wait_all(), other;

	SESSION_FOREACH (session) {
		if (session == session_self())
			continue;
		other = wait_session(session);
		/* After a fault the work of that session never ends, and is no error of this
		 * one. */
		if (r == CUDA_SUCCESS && process_session_error(session) == CUDA_SUCCESS)
			r = other;
	}
	return r;
}

CUresult wait_context(CUcontext context)
{
	return wait_each(&(struct circle){.session = session_self(), .context = context});
}

CUresult wait_all_quietly(void)
{
	return wait_work(&(struct circle){.session = session_self()});
}

CUresult wait_late_error(void)
{
	return late_error(session_self());
}
