// The writing end of rings. Runs on the program's threads. A ring's lock guards its data; it is a
// leaf: no thread takes another lock inside, and every wait releases it first. Only this file
// changes the positions of a stream (stream.h: "ring").
//
// A record is written in place and published at once, and so are the joins in front of it. A stop
// in the middle (no room, no credit) therefore leaves nothing half done: the joins made so far stay
// valid and the caller starts again.

#include "client/submit/submit.h"

#include <string.h>

#include "client/link/lost.h"
#include "client/state/process.h"
#include "client/state/session.h"
#include "client/state/stream_slot.h"
#include "client/state/thread.h"
#include "client/state/uncancelled.h"
#include "client/submit/wait.h"
#include "shm/doorbell.h"

#define ALWAYS_INLINE inline __attribute__((always_inline))

/* The reason why a record cannot be written now. */
enum stop { GO, STOP_ROOM, STOP_CREDIT, STOP_CLOSED, STOP_CLAIMED };

void submit_start(void)
{
	struct session *session = session_self();

	ring_writer_init(&session->ring.writer, &session->connection.view);
	session->ring.join.legacy = session->streams.legacy;
}

static void leave(struct session *session)
{
	struct shm_server_header *server = session->connection.view.server;

	submit_lock_give(&session->ring.lock);
	doorbell_ring(session->connection.doorbell_fd, &server->asleep);
	/* The same cache line as `asleep`, so the look is free: the library notices a verdict
	 * soon. */
	if (__builtin_expect(word_relaxed(&server->state) > SHM_SESSION_HELD, 0))
		lost_verdict(session);
}

static uint32_t record_bytes(uint32_t bytes)
{
	uint32_t size = (uint32_t)sizeof(struct frmps_head) + bytes;

	return (size + FRMPS_RECORD_ALIGN - 1) & ~(FRMPS_RECORD_ALIGN - 1);
}

/* Writes a record's head. Nothing is published yet. Return: NULL while the ring is full. */
static struct frmps_head *reserve(
	struct client_stream *stream, enum frmps_op op, uint32_t bytes, uint64_t seq)
{
	uint32_t size = record_bytes(bytes);
	struct frmps_head *head = ring_reserve(&stream->session->ring.writer, size);

	if (!head)
		return NULL;
	/* The padding, at most this much, must be zero. */
	memset((uint8_t *)head + size - FRMPS_RECORD_ALIGN, 0, FRMPS_RECORD_ALIGN);
	*head = (struct frmps_head){.size = size, .op = (uint16_t)op, .stream = stream->slot, .seq = seq};
	return head;
}

/* For so many commands. */
static bool has_credit(struct client_stream *stream, uint64_t commands)
{
	uint64_t last = word_relaxed(&stream->seq) + commands;

	if (last - stream->done <= SHM_STREAM_CREDIT)
		return true;
	stream->done = shm_view_done(&stream->session->connection.view, stream->slot);
	return last - stream->done <= SHM_STREAM_CREDIT;
}

/* Gives the stream's next place to a record. */
static enum stop place(
	struct client_stream *stream, enum frmps_op op, uint32_t bytes, struct submit *ret_submit)
{
	uint64_t seq = word_relaxed(&stream->seq) + 1;
	struct frmps_head *head;

	/* The end of a stream needs none: it is the last, and whoever destroys does not wait. */
	if (op != FRMPS_OP_STREAM_DESTROY && !has_credit(stream, 1))
		return STOP_CREDIT;
	head = reserve(stream, op, bytes, seq);
	if (!head)
		return STOP_ROOM;
	*ret_submit = (struct submit){.stream = stream, .head = head, .body = head + 1, .seq = seq};
	return GO;
}

/* Publishes a record that place() made. */
static void publish(struct submit *submit)
{
	struct client_stream *stream = submit->stream;

	word_release(&stream->seq, submit->seq);
	if (submit->head->flags & FRMPS_CMD_MARK)
		stream->marked = submit->seq;
	ring_publish(&stream->session->ring.writer, submit->head->size);
}

/* Makes the stream wait as the default-stream rule demands. */
static enum stop make_joins(struct client_stream *stream)
{
	struct client_stream *other;
	struct submit submit;
	uint64_t seq;

	while (join_next(&stream->session->ring.join, stream, wait_is_done, &other, &seq)) {
		enum stop stop = place(stream, FRMPS_OP_DEPEND, sizeof(struct frmps_depend), &submit);

		if (stop != GO)
			return stop;
		*(struct frmps_depend *)submit.body =
			(struct frmps_depend){.seq = seq, .stream = other->slot, .event = FRMPS_NO_EVENT};
		publish(&submit);
		join_made(&stream->session->ring.join, stream, other, seq);
	}
	return GO;
}

/* One of the records around a command. @flags: of its head */
static enum stop put_record(
	struct client_stream *stream, struct submit_timing *timing, int which, uint16_t flags)
{
	struct submit submit;
	enum stop stop = place(stream, FRMPS_OP_EVENT_RECORD, sizeof(struct frmps_event_record), &submit);

	if (stop != GO)
		return stop;
	*(struct frmps_event_record *)submit.body =
		(struct frmps_event_record){.event = timing->events[which], .flags = FRMPS_EVENT_TIMING};
	submit.head->flags |= flags;
	timing->seqs[which] = submit.seq;
	publish(&submit);
	return GO;
}

/* The record in front of a command, if there is room for all that is to follow it. */
static enum stop put_first(struct client_stream *stream, uint32_t bytes, struct submit_timing *timing)
{
	uint32_t record = record_bytes(sizeof(struct frmps_event_record));

	if (!has_credit(stream, 3))
		return STOP_CREDIT;
	if (!ring_reserve(&stream->session->ring.writer, record + record_bytes(bytes) + record))
		return STOP_ROOM;
	return put_record(stream, timing, 0, 0);
}

/* Whether this thread may submit to the stream. */
static enum stop may_submit(const struct client_stream *stream)
{
	if (stream->closed)
		return STOP_CLOSED;
	return stream->claimed && stream->claimed != thread_self() ? STOP_CLAIMED : GO;
}

/* Joins and records are constants of the callers: the compiler makes a short form for launches. */
static ALWAYS_INLINE enum stop try_begin(struct client_stream *stream, enum frmps_op op, uint32_t bytes,
	bool joins, struct submit_timing *timing, struct submit *ret_submit)
{
	enum stop stop = may_submit(stream);

	if (stop == GO && joins)
		stop = make_joins(stream);
	if (timing && stop == GO)
		stop = put_first(stream, bytes, timing);
	return stop == GO ? place(stream, op, bytes, ret_submit) : stop;
}

/* Time between two checks for room in the ring. */
#define PAUSE_NS UINT64_C(20000)

/* The executor empties the ring without waiting for anything, unless the service replaces the
 * executor. */
static CUresult await_room(struct session *session)
{
	uncancelled_sleep(PAUSE_NS);
	return lost_check(session);
}

/* Waits until the stop has no cause any more. The lock is not held. */
static CUresult await(struct client_stream *stream, enum stop stop)
{
	uint64_t seq = word_acquire(&stream->seq);

	if (stop == STOP_CLOSED)
		return CUDA_ERROR_INVALID_HANDLE;
	if (stop == STOP_ROOM)
		return await_room(stream->session);
	/* The commands in front may wait for the very function that makes this call. */
	if (thread_self()->is_callbacks)
		return CUDA_ERROR_NOT_PERMITTED;
	if (stop == STOP_CLAIMED)
		return await_room(stream->session);
	/* Waits for half of the credit: a single wait for many commands. The wait is long, and then
	 * the device still has the other half, so spinning gains nothing. */
	return wait_quietly(stream, seq - SHM_STREAM_CREDIT / 2, true);
}

static ALWAYS_INLINE CUresult begin(struct client_stream *stream, enum frmps_op op, uint32_t bytes,
	bool joins, struct submit_timing *timing, struct submit *ret_submit)
{
	struct session *session = stream->session;
	enum stop stop;
	CUresult r = process_session_error(session);

	while (r == CUDA_SUCCESS) {
		submit_lock_take(&session->ring.lock);
		stop = try_begin(stream, op, bytes, joins, timing, ret_submit);
		if (__builtin_expect(stop == GO, 1))
			return CUDA_SUCCESS;
		leave(session);
		r = await(stream, stop);
	}
	return r;
}

CUresult submit_claim(struct client_stream *stream)
{
	struct submit_lock *lock = &stream->session->ring.lock;
	CUresult r = process_session_error(stream->session);

	while (r == CUDA_SUCCESS) {
		enum stop stop;

		submit_lock_take(lock);
		stop = may_submit(stream);
		if (stop == GO)
			stream->claimed = thread_self();
		submit_lock_give(lock);
		if (stop == GO)
			return CUDA_SUCCESS;
		r = await(stream, stop);
	}
	return r;
}

void submit_release(struct client_stream *stream)
{
	submit_lock_take(&stream->session->ring.lock);
	stream->claimed = NULL;
	submit_lock_give(&stream->session->ring.lock);
}

CUresult submit_begin(
	struct client_stream *stream, enum frmps_op op, uint32_t bytes, struct submit *ret_submit)
{
	return begin(stream, op, bytes, true, NULL, ret_submit);
}

CUresult submit_begin_timed(struct client_stream *stream, enum frmps_op op, uint32_t bytes,
	struct submit_timing *timing, struct submit *ret_submit)
{
	return begin(stream, op, bytes, true, timing, ret_submit);
}

CUresult submit_begin_own(
	struct client_stream *stream, enum frmps_op op, uint32_t bytes, struct submit *ret_submit)
{
	return begin(stream, op, bytes, false, NULL, ret_submit);
}

bool submit_try_own(struct client_stream *stream, enum frmps_op op, uint32_t bytes, uint64_t seq,
	struct submit *ret_submit)
{
	struct session *session = stream->session;

	if (process_session_error(session) != CUDA_SUCCESS)
		return false;
	submit_lock_take(&session->ring.lock);
	if (word_relaxed(&stream->seq) == seq && try_begin(stream, op, bytes, false, NULL, ret_submit) == GO)
		return true;
	leave(session);
	return false;
}

/* Publishes a command of the program. */
static inline void publish_command(struct submit *submit)
{
	publish(submit);
	word_release(&submit->stream->last, submit->seq);
	join_note(&submit->stream->session->ring.join, submit->stream);
}

void submit_commit(struct submit *submit)
{
	publish_command(submit);
	leave(submit->stream->session);
}

void submit_commit_timed(struct submit *submit, struct submit_timing *timing, bool early)
{
	uint16_t mark = timing ? submit->head->flags & FRMPS_CMD_MARK : 0;

	/* A wait for the command then waits for its time as well. */
	submit->head->flags &= (uint16_t)~mark;
	publish_command(submit);
	if (early)
		join_early(&submit->stream->session->ring.join, submit->stream, submit->seq);
	if (timing)
		put_record(submit->stream, timing, 1, mark);
	leave(submit->stream->session);
}

void submit_commit_own(struct submit *submit)
{
	publish(submit);
	leave(submit->stream->session);
}

void submit_commit_quietly(struct submit *submit)
{
	publish(submit);
	submit_lock_give(&submit->stream->session->ring.lock);
}

void submit_open(struct client_stream *stream)
{
	submit_lock_take(&stream->session->ring.lock);
	stream->born = word_relaxed(&stream->seq);
	stream->closed = false;
	submit_lock_give(&stream->session->ring.lock);
}

bool submit_close_unused(struct client_stream *stream)
{
	bool unused;

	submit_lock_take(&stream->session->ring.lock);
	unused = word_relaxed(&stream->seq) == stream->born;
	stream->closed = stream->closed || unused;
	submit_lock_give(&stream->session->ring.lock);
	return unused;
}

CUresult submit_close(struct client_stream *stream)
{
	struct submit submit;
	CUresult r = begin(stream, FRMPS_OP_STREAM_DESTROY, 0, false, NULL, &submit);

	if (r != CUDA_SUCCESS)
		return r;
	submit.head->flags |= FRMPS_CMD_MARK;
	stream->closed = true;
	submit_commit_own(&submit);
	return CUDA_SUCCESS;
}

/* Sends a directive, which has no place in a stream. Waits while the ring is full. */
static CUresult direct(struct client_stream *stream, enum frmps_op op, const void *body, uint32_t bytes)
{
	struct session *session = stream->session;
	struct frmps_head *head;
	CUresult r = process_session_error(session);

	while (r == CUDA_SUCCESS) {
		submit_lock_take(&session->ring.lock);
		head = reserve(stream, op, bytes, 0);
		if (head) {
			if (bytes)
				memcpy(head + 1, body, bytes);
			if (op == FRMPS_OP_MARK)
				stream->marked = word_relaxed(&stream->seq);
			ring_publish(&stream->session->ring.writer, head->size);
			leave(session);
			return CUDA_SUCCESS;
		}
		leave(session);
		r = await_room(session);
	}
	return r;
}

/* True if a mark at or behind `seq` was requested. */
static bool is_marked(struct client_stream *stream, uint64_t seq)
{
	bool marked;

	submit_lock_take(&stream->session->ring.lock);
	marked = stream->marked >= seq;
	submit_lock_give(&stream->session->ring.lock);
	return marked;
}

CUresult submit_mark(struct client_stream *stream, uint64_t seq)
{
	return is_marked(stream, seq) ? CUDA_SUCCESS : direct(stream, FRMPS_OP_MARK, NULL, 0);
}

CUresult submit_mark_again(struct client_stream *stream)
{
	return direct(stream, FRMPS_OP_MARK, NULL, 0);
}

CUresult submit_drain(void)
{
	struct session *session = session_self();
	CUresult r = CUDA_SUCCESS;
	uint64_t tail;

	submit_lock_take(&session->ring.lock);
	tail = session->ring.writer.tail;
	/* Some commands do not wake the executor. */
	leave(session);
	/* Pairs with ring_consume(), which follows the driver's calls. */
	while (r == CUDA_SUCCESS && word_acquire(&session->connection.view.server->head) < tail)
		r = await_room(session);
	return r;
}

CUresult submit_wake(struct client_stream *stream, uint64_t seq)
{
	return direct(stream, FRMPS_OP_WAKE, &(struct frmps_wake){.seq = seq}, sizeof(struct frmps_wake));
}
