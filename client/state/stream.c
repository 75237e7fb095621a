// The table of streams. Runs on the program's threads. The table's lock guards the owners of slots;
// the ring lock (submit.c) guards positions inside a stream. A thread may take the ring lock inside
// the table's lock, but never waits there.
//
// Life of a slot: never used → in use → closed (its STREAM_DESTROY is sent) → free, once everything
// up to that command is done. A stream without commands is free at once. `seq` keeps counting
// through all uses of a slot. No thread submits to a closed or free slot.

#include "client/state/stream.h"

#include <pthread.h>

#include "client/graph/capture.h"
#include "client/link/lost.h"
#include "client/state/context.h"
#include "client/state/device.h"
#include "client/state/process.h"
#include "client/state/session.h"
#include "client/state/thread.h"
#include "client/state/uncancelled.h"
#include "client/submit/submit.h"
#include "client/submit/wait.h"

#define HANDLE_USE_SHIFT 20
#define HANDLE_USE_BITS	 26 /* and stay below the top of the address space */

/* Time between two checks for the end of a destroyed stream. */
#define PAUSE_NS      UINT64_C(20000)
#define PAUSE_MOST_NS UINT64_C(1000000)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t latest_id; /* guarded by lock */

bool stream_start(void)
{
	struct session *session = session_self();
	struct client_stream *legacy;

	pthread_mutex_lock(&lock);
	legacy = stream_slot_new(session, shm_view_slots(&session->connection.view));
	if (legacy) {
		legacy->id = ++latest_id;
		word_release(&legacy->handle, (uint64_t)(uintptr_t)CU_STREAM_LEGACY);
	}
	pthread_mutex_unlock(&lock);
	session->streams.legacy = legacy;
	return legacy;
}

/* Finds a closed slot whose work has ended. */
static struct client_stream *reap(struct streams *streams)
{
	for (struct client_stream **at = &streams->closed; *at; at = &(*at)->next_free) {
		struct client_stream *stream = *at;

		if (!wait_is_done(stream, word_acquire(&stream->seq)))
			continue;
		*at = stream->next_free;
		return stream;
	}
	return NULL;
}

/* A slot for a new stream, or NULL. */
static struct client_stream *take_slot(struct session *session)
{
	struct streams *streams = &session->streams;
	struct client_stream *stream = streams->free;

	if (stream) {
		streams->free = stream->next_free;
		return stream;
	}
	stream = reap(streams);
	return stream ? stream : stream_slot_new(session, shm_view_slots(&session->connection.view));
}

static uint64_t next_handle(struct client_stream *stream)
{
	uint64_t use = ++stream->uses & ((UINT64_C(1) << HANDLE_USE_BITS) - 1);

	/* Never 0: handles must not equal the special handles. */
	return (use + 1) << HANDLE_USE_SHIFT | (uint64_t)stream->slot << STREAM_HANDLE_SHIFT;
}

/* A stream that is to be made. */
struct wish {
	CUcontext context, green; /* as of struct client_stream */
	uint32_t flags;
	int32_t priority;
};

static void open_stream(struct client_stream *stream, const struct wish *wish)
{
	struct shm_stream_entry *entry = shm_view_entry(&stream->session->connection.view, stream->slot);

	/* No rules of default streams hold in green contexts. */
	stream->flags = wish->green ? CU_STREAM_NON_BLOCKING : wish->flags;
	stream->priority = device_clamp_priority(wish->priority);
	stream->blocking = !(stream->flags & CU_STREAM_NON_BLOCKING);
	stream->context = wish->context;
	stream->green = wish->green;
	stream->id = ++latest_id;
	/* A new stream need not wait for earlier work of the legacy stream; `joined` of a former
	 * use is only older. The only other submission to a slot without a handle is the end of an
	 * event that a former use recorded; the service reads the entry at that time. */
	entry->flags = stream->flags;
	entry->priority = stream->priority;
	entry->part = context_part(wish->green);
	submit_open(stream);
	word_release(&stream->handle, next_handle(stream));
}

/* The executor looks at the next command's turn. */
void stream_set_priority(struct client_stream *stream, int32_t priority)
{
	struct shm_stream_entry *entry = shm_view_entry(&stream->session->connection.view, stream->slot);

	stream->priority = device_clamp_priority(priority);
	__atomic_store_n(&entry->priority, stream->priority, __ATOMIC_RELAXED);
}

/* An opened slot for a new stream, or NULL; then *ret_dying is true if there are destroyed streams,
 * whose slots will be free when their last commands are done. */
static struct client_stream *try_create(const struct wish *wish, bool *ret_dying)
{
	struct client_stream *stream;

	pthread_mutex_lock(&lock);
	stream = take_slot(session_self());
	if (stream)
		open_stream(stream, wish);
	*ret_dying = session_self()->streams.closed != NULL;
	pthread_mutex_unlock(&lock);
	return stream;
}

static CUresult create(const struct wish *wish, struct client_stream **ret_stream)
{
	struct client_stream *stream;
	uint64_t pause_ns = PAUSE_NS;
	bool dying;
	CUresult r;

	/* A program may destroy streams faster than their work ends. The order of the ends is
	 * unknown, and some work may never end. So this polls, at an interval of about 1 % of the
	 * time waited. The last commands carry marks. */
	while (!(stream = try_create(wish, &dying))) {
		if (!dying)
			return CUDA_ERROR_OUT_OF_MEMORY;
		uncancelled_sleep(pause_ns);
		if (pause_ns < PAUSE_MOST_NS)
			pause_ns += pause_ns / 64;
		r = lost_check(session_self());
		if (r != CUDA_SUCCESS)
			return r;
	}
	*ret_stream = stream;
	return CUDA_SUCCESS;
}

static void shelve(struct client_stream *stream, struct client_stream **list)
{
	pthread_mutex_lock(&lock);
	stream->next_free = *list;
	*list = stream;
	pthread_mutex_unlock(&lock);
}

/* Does nothing if another thread was faster. Return: true if the stream still had that handle */
static bool retire(struct client_stream *stream, uint64_t handle)
{
	if (!handle || !atomic_compare_exchange_strong(&stream->handle, &handle, 0))
		return false;
	if (capture_is_on(stream))
		capture_leave(stream);
	/* Without a command the executor does not know the stream. A dead session needs no order
	 * any more. */
	if (submit_close_unused(stream) || submit_close(stream) != CUDA_SUCCESS)
		shelve(stream, &stream->session->streams.free);
	else
		shelve(stream, &stream->session->streams.closed);
	return true;
}

CUresult stream_create(CUcontext context, uint32_t flags, int32_t priority, struct client_stream **ret_stream)
{
	const struct wish wish = {context_owner(context), context_green(context), flags, priority};

	return create(&wish, ret_stream);
}

/* Lets the executor make the stream, and its multiprocessors ready. */
static CUresult make_ready(struct client_stream *stream)
{
	struct submit submit;
	CUresult r = submit_begin_own(stream, FRMPS_OP_STREAM_OPEN, 0, &submit);
	uint64_t seq = submit.seq;

	if (r != CUDA_SUCCESS)
		return r;
	submit_commit_own(&submit);
	r = wait_quietly(stream, seq, true);
	return r == CUDA_SUCCESS ? wait_late_error() : r;
}

CUresult stream_create_default(CUcontext green, struct client_stream **ret_stream)
{
	const struct wish wish = {NULL, green, CU_STREAM_DEFAULT, 0};
	struct client_stream *stream;
	CUresult r = create(&wish, &stream);

	if (r != CUDA_SUCCESS)
		return r;
	r = make_ready(stream);
	if (r == CUDA_SUCCESS)
		*ret_stream = stream;
	else
		retire(stream, word_acquire(&stream->handle));
	return r;
}

CUresult stream_destroy(struct client_stream *stream, CUstream handle)
{
	if (!stream->context || !retire(stream, (uint64_t)(uintptr_t)handle))
		return CUDA_ERROR_INVALID_HANDLE;
	return CUDA_SUCCESS;
}

void stream_release_green(CUcontext green)
{
	uint32_t end = stream_slots_used();

	for (uint32_t i = 0; i < end; ++i) {
		struct client_stream *stream = stream_slot(i);
		uint64_t handle = word_acquire(&stream->handle);

		if (stream->green != green || !handle)
			continue;
		word_set(&stream->orphan, handle);
		retire(stream, handle);
	}
}

void stream_release_context(CUcontext context)
{
	uint32_t end = stream_slots_used();

	for (uint32_t i = 0; i < end; ++i) {
		struct client_stream *stream = stream_slot(i);
		uint64_t handle = word_acquire(&stream->handle);

		/* If another stream uses the slot by now, its handle differs. */
		if (stream->context == context)
			retire(stream, handle);
	}
}

/* A thread ends. Not in a forked child: its copy of the ring is not mapped. */
static void leave(struct client_stream *stream)
{
	if (process_enter() == CUDA_SUCCESS)
		retire(stream, word_acquire(&stream->handle));
}

/* The calling thread's default stream in its session; green contexts have none. The stream belongs
 * to no context: it lives as long as its thread. */
static CUresult own_stream(struct client_stream **ret_stream)
{
	struct thread *thread = thread_self();
	struct client_stream *stream = thread->streams;
	CUresult r = CUDA_SUCCESS;

	if (context_green(context_shown()))
		return CUDA_ERROR_INVALID_HANDLE;
	while (stream && stream->session != session_self())
		stream = stream->next_own;
	if (!stream) {
		thread->retire = leave;
		r = thread_register(thread);
		if (r == CUDA_SUCCESS)
			r = stream_create(NULL, CU_STREAM_DEFAULT, 0, &stream);
		if (r == CUDA_SUCCESS) {
			stream->next_own = thread->streams;
			thread->streams = stream;
		}
	}
	if (r == CUDA_SUCCESS)
		*ret_stream = stream;
	return r;
}

/* True if the handle was valid until its green context ended. */
static bool is_orphan(CUstream handle)
{
	return word_relaxed(&stream_at(handle)->orphan) == (uint64_t)(uintptr_t)handle;
}

static struct client_stream *default_stream(void)
{
	struct client_stream *own = NULL;

	if (__builtin_expect(word_relaxed(&context_greens), 0))
		own = context_default_stream(context_shown());
	return own ? own : session_self()->streams.legacy;
}

CUresult stream_resolve(CUstream handle, bool per_thread, struct client_stream **ret_stream)
{
	struct client_stream *stream;

	if (handle == CU_STREAM_LEGACY || (!handle && !per_thread)) {
		*ret_stream = default_stream();
		return CUDA_SUCCESS;
	}
	if (handle == CU_STREAM_PER_THREAD || !handle)
		return own_stream(ret_stream);
	stream = stream_find(handle);
	if (!stream)
		return is_orphan(handle) ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_HANDLE;
	*ret_stream = stream;
	return CUDA_SUCCESS;
}

uint64_t stream_unique_id(CUcontext context, CUstream handle)
{
	struct client_stream *stream;

	(void)context;
	if (process_enter() != CUDA_SUCCESS || stream_resolve(handle, false, &stream) != CUDA_SUCCESS)
		return 0;
	return stream->id;
}
