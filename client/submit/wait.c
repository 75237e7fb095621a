// See wait.h. The completion words are read-only memory here: written by the device, or by the
// executor while nothing of the stream is on the device. The sleep protocol is the right half of
// the picture in shm/doorbell.h: `wake` is read before the last look at the words.

#include "client/submit/wait.h"

#include <sched.h>

#include "client/link/connect.h"
#include "client/link/lost.h"
#include "client/state/clock.h"
#include "client/state/process.h"
#include "client/state/stream_slot.h"
#include "client/state/thread.h"
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

bool wait_launches;

static word32 late_seen; /* late errors that were reported or are being reported */

/* While a session is held, or the executor has seen a sign of a fault, a command that became done
 * may be a kernel that faulted: the completion counts once the session continues. The caller reads
 * the completion word first: the service sets the state or `doubtful` before the mark behind such a
 * kernel can arrive, or before it collects completions. `doubtful` comes before `state`: an
 * executor ends the session whose kernel faulted before it clears `doubtful`. */
static bool is_believed(void)
{
	struct shm_server_header *server = connection.view.server;

	return !word_acquire(&server->doubtful) && word_acquire(&server->state) == SHM_SESSION_RUNNING;
}

bool wait_is_done(const struct client_stream *stream, uint64_t seq)
{
	return seq == 0 || (shm_view_done(&connection.view, stream->slot) >= seq && is_believed());
}

CUresult wait_poll(struct client_stream *stream, uint64_t seq)
{
	CUresult r;

	if (wait_is_done(stream, seq))
		return CUDA_SUCCESS;
	r = lost_glance();
	if (r == CUDA_SUCCESS)
		r = submit_mark(stream, seq);
	return r == CUDA_SUCCESS ? CUDA_ERROR_NOT_READY : r;
}

CUresult wait_known(struct client_stream *stream, uint64_t seq)
{
	if (shm_view_done(&connection.view, stream->slot) >= seq && !is_believed())
		return wait_quietly(stream, seq, true);
	return wait_poll(stream, seq);
}

/* The calling thread's spinning time in nanoseconds: its context decides. */
static uint64_t spin_ns(bool sleepy)
{
	uint64_t ns = (uint64_t)connection.spin_us * 1000;

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
	const struct shm_view *view = &connection.view;
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

/* True if the calling thread's latest yield has let another thread run. */
static __thread bool is_crowded;

/* If there are more runnable threads than processors, a spinning thread delays the others, and so
 * perhaps the executor's thread that it waits for. */
static void give_way(void)
{
	uint64_t begin = clock_now_ns();

	sched_yield();
	is_crowded = clock_now_ns() - begin >= SWITCH_NS;
}

/* Spins, and yields meanwhile unless the context asks for spinning. Where other threads want the
 * processor, sleeping leaves it to them at once: yields would pass it around among the spinning
 * threads, each for a slice of some milliseconds. Return: true if one of the commands is done;
 * false also at the end of the session. */
static bool spin(const struct wait_target *targets, uint32_t count, uint64_t ns)
{
	struct shm_server_header *server = connection.view.server;
	bool yields = thread_scheduling() != CU_CTX_SCHED_SPIN;
	uint64_t begin = clock_now_ns(), passed = 0;

	while (passed < ns) {
		bool late = passed >= EAGER_NS;

		if (look_at_each(targets, count, !late || is_crowded) && is_believed())
			return true;
		/* The executor writes this cache line when it takes records, so looks are rare. */
		if (word_relaxed(&server->state) > SHM_SESSION_HELD)
			return false;
		if (yields && (late || is_crowded))
			give_way();
		if (yields && is_crowded)
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
	struct shm_server_header *server = connection.view.server;
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
			r = lost_verdict();
		if (r != CUDA_SUCCESS)
			break;
		wake_wait(&server->wake, seen, SLEEP_US);
		if (word_acquire(&server->wake) == seen)
			r = lost_check();
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
	if (spin(targets, count, spin_ns(sleepy)))
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

	text_flush();
	return r;
}

/* The streams that a wait or query covers. */
struct circle {
	bool blocking_only;
	CUcontext context; /* NULL: all */
};

static bool is_in(const struct circle *circle, const struct client_stream *stream)
{
	CUcontext context = stream->context;

	if (stream->slot == 0)
		return true;
	if (circle->blocking_only && !stream->blocking)
		return false;
	return !circle->context || !context || context == circle->context;
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

		if (!is_in(circle, stream) && !wait_is_done(stream, word_acquire(&stream->last)))
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

static CUresult wait_each(const struct circle *circle)
{
	CUresult r = wait_work(circle);

	if (r == CUDA_SUCCESS && !circle->blocking_only && !goes_on_outside(circle))
		text_settle();
	else
		text_flush();
	return r == CUDA_SUCCESS ? wait_late_error() : r;
}

CUresult wait_launched(struct client_stream *stream)
{
	CUresult r = wait_done(stream, word_acquire(&stream->last), false);

	return r == CUDA_SUCCESS ? wait_late_error() : r;
}

CUresult wait_stream(struct client_stream *stream)
{
	return stream->slot == 0 ? wait_each(&(struct circle){.blocking_only = true}) : wait_launched(stream);
}

/* Blocking streams run behind the legacy stream (join.h). */
CUresult wait_turn(struct client_stream *stream)
{
	struct client_stream *legacy = stream_slot(0);
	CUresult r = CUDA_SUCCESS;

	if (stream != legacy && stream->blocking)
		r = wait_quietly(legacy, word_acquire(&legacy->last), false);
	return r == CUDA_SUCCESS ? wait_stream(stream) : r;
}

CUresult wait_query_stream(struct client_stream *stream)
{
	if (stream->slot == 0)
		return each_stream(&(struct circle){.blocking_only = true}, wait_poll);
	return wait_poll(stream, word_acquire(&stream->last));
}

CUresult wait_all(void)
{
	return wait_each(&(struct circle){.blocking_only = false});
}

CUresult wait_context(CUcontext context)
{
	return wait_each(&(struct circle){.context = context});
}

CUresult wait_all_quietly(void)
{
	return wait_work(&(struct circle){.blocking_only = false});
}

CUresult wait_late_error(void)
{
	struct shm_server_header *server = connection.view.server;
	uint32_t count = word_acquire(&server->late_errors);
	uint32_t seen = word_relaxed(&late_seen);
	CUresult r = lost_verdict();

	if (r != CUDA_SUCCESS)
		return r;
	if (seen == count || !atomic_compare_exchange_strong(&late_seen, &seen, count))
		return CUDA_SUCCESS;
	return (CUresult)word_relaxed(&server->late_error);
}
