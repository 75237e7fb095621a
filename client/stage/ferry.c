// See ferry.h. A ferry is a task of the relay: its steps run on that thread, one at a time. The
// lock guards the gear that no ferry uses.

#include "client/stage/ferry.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "client/state/host.h"
#include "client/state/mempool.h"
#include "client/state/process.h"
#include "client/state/ranges.h"
#include "client/state/session.h"
#include "client/submit/gate.h"
#include "client/submit/relay.h"
#include "client/submit/wait.h"

/* Pieces of a copy that are under way at a time, and their largest and smallest size. */
#define PIECES	    3
#define PIECE_BYTES (UINT64_C(2) << 20)
#define SMALL_BYTES (UINT64_C(64) << 10)

/* The stream and the memory of a ferry in a session. */
struct gear {
	SLIST_ENTRY(gear) next;
	struct session *session;
	struct client_stream *stream;
	uint64_t memory, piece_bytes; /* pinned: PIECES of them */
};

/*   EMPTY ──copy out──► COMING ──done, copied to the other memory, copy in──► GOING ──done──► EMPTY
 * Host memory as the source begins with the second step, as the destination it ends with that. */
enum piece_state { EMPTY, COMING, GOING };

struct piece {
	enum piece_state state;
	struct box box; /* of the whole copy's sides */
	struct relay_point point;
};

struct ferry {
	struct relay_task task; /* first: the relay hands it back */
	struct box box;
	struct box_cursor cursor;
	struct relay_point begin;
	bool has_begun;
	struct session *session; /* of the stream */
	struct gear *to, *from;	 /* NULL: host memory */
	struct gate *gate;
	ferry_send *send;
	CUresult error; /* no more pieces are sent */
	struct piece pieces[PIECES];
};

static struct client_stream *(*_Atomic make_stream)(void);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static SLIST_HEAD(, gear) spare = SLIST_HEAD_INITIALIZER(spare); /* guarded by lock */

void ferry_start(struct client_stream *(*make)(void))
{
	atomic_store(&make_stream, make);
}

/* ---- gear ---- */

static struct gear *find_gear(const struct session *session, uint64_t piece_bytes)
{
	struct gear *gear;

	pthread_mutex_lock(&lock);
	SLIST_FOREACH (gear, &spare, next)
		if (gear->session == session && gear->piece_bytes == piece_bytes)
			break;
	if (gear)
		SLIST_REMOVE(&spare, gear, gear, next);
	pthread_mutex_unlock(&lock);
	return gear;
}

/* In the thread's session. */
static CUresult make_gear(uint64_t piece_bytes, struct gear **ret_gear)
{
	struct range memory = {.bytes = PIECES * piece_bytes, .kind = RANGE_BEHIND};
	struct gear *gear = malloc(sizeof(*gear));
	CUresult r = gear ? host_alloc_range(&memory) : CUDA_ERROR_OUT_OF_MEMORY;

	if (r != CUDA_SUCCESS) {
		free(gear);
		return r;
	}
	*gear = (struct gear){
		.session = session_self(), .memory = memory.address, .piece_bytes = piece_bytes};
	gear->stream = atomic_load(&make_stream)();
	if (!gear->stream) {
		host_free_range(memory.address, RANGE_BEHIND);
		free(gear);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*ret_gear = gear;
	return CUDA_SUCCESS;
}

/* @session: NULL: host memory, which needs none */
static CUresult take_gear(struct session *session, uint64_t piece_bytes, struct gear **ret_gear)
{
	struct gear *gear = session ? find_gear(session, piece_bytes) : NULL;
	CUresult r = CUDA_SUCCESS;

	if (session && !gear) {
		SESSION_SCOPE(session);
		r = make_gear(piece_bytes, &gear);
	}
	if (r != CUDA_SUCCESS)
		return r;
	if (session)
		atomic_fetch_add_explicit(&session->ferries, 1, memory_order_relaxed);
	*ret_gear = gear;
	return CUDA_SUCCESS;
}

static void give_gear(struct gear *gear)
{
	if (!gear)
		return;
	/* Pairs with wait_all(). */
	atomic_fetch_sub_explicit(&gear->session->ferries, 1, memory_order_release);
	pthread_mutex_lock(&lock);
	SLIST_INSERT_HEAD(&spare, gear, next);
	pthread_mutex_unlock(&lock);
}

/* ---- pieces ---- */

static struct box_side packed(const struct gear *gear, unsigned index, const struct box *box)
{
	return (struct box_side){.address = gear->memory + index * gear->piece_bytes,
		.pitch = box->width,
		.rows = box->height};
}

/* One side of a copy is the piece's pinned memory. */
static CUresult send(struct ferry *ferry, const struct gear *gear, const struct box *box, bool to_device,
	struct piece *piece)
{
	SESSION_SCOPE(gear->session);
	uint64_t seq;
	CUresult r = ferry->send(box, gear->stream, to_device, &seq);

	if (r == CUDA_SUCCESS) {
		piece->point = (struct relay_point){.stream = gear->stream, .seq = seq};
		piece->state = to_device ? GOING : COMING;
	}
	return r;
}

/* The processor's half, and the way on: the data is in the source's pinned or host memory. */
static CUresult pass_on(struct ferry *ferry, unsigned index)
{
	struct piece *piece = &ferry->pieces[index];
	struct box here = piece->box, in = piece->box;

	piece->state = EMPTY;
	if (ferry->from)
		here.src = packed(ferry->from, index, &here);
	if (ferry->to)
		here.dst = in.src = packed(ferry->to, index, &here);
	box_copy(&here);
	return ferry->to ? send(ferry, ferry->to, &in, true, piece) : CUDA_SUCCESS;
}

static CUresult begin_piece(struct ferry *ferry, unsigned index)
{
	struct piece *piece = &ferry->pieces[index];
	struct box out = piece->box;

	if (!ferry->from)
		return pass_on(ferry, index);
	out.dst = packed(ferry->from, index, &out);
	return send(ferry, ferry->from, &out, false, piece);
}

static uint64_t piece_bytes(const struct ferry *ferry)
{
	return ferry->from ? ferry->from->piece_bytes : ferry->to->piece_bytes;
}

static enum relay_step step_piece(struct ferry *ferry, unsigned index)
{
	struct piece *piece = &ferry->pieces[index];
	CUresult r = piece->state == EMPTY ? CUDA_SUCCESS : relay_look(&piece->point);

	if (r == CUDA_ERROR_NOT_READY)
		return RELAY_WAITS;
	if (r == CUDA_SUCCESS && piece->state == COMING && ferry->error == CUDA_SUCCESS) {
		r = pass_on(ferry, index);
	} else if (piece->state != EMPTY) {
		piece->state = EMPTY;
	} else {
		if (ferry->error != CUDA_SUCCESS ||
			!box_next(&ferry->box, &ferry->cursor, piece_bytes(ferry), &piece->box))
			return RELAY_ENDS;
		r = begin_piece(ferry, index);
	}
	if (r != CUDA_SUCCESS && ferry->error == CUDA_SUCCESS)
		ferry->error = r;
	return RELAY_MOVES;
}

/* ---- the whole ---- */

static void note_error(struct session *session, CUresult code)
{
	if (process_session_error(session) == CUDA_SUCCESS)
		wait_note_error(session, code);
}

static void end(struct ferry *ferry)
{
	if (ferry->error != CUDA_SUCCESS) {
		note_error(ferry->session, ferry->error);
		if (ferry->to && ferry->to->session != ferry->session)
			note_error(ferry->to->session, ferry->error);
	}
	gate_open(ferry->gate);
	give_gear(ferry->to);
	give_gear(ferry->from);
	free(ferry);
}

static CUresult look_at_begin(struct ferry *ferry)
{
	CUresult r = ferry->has_begun ? CUDA_SUCCESS : relay_look(&ferry->begin);

	if (r == CUDA_ERROR_NOT_READY)
		return r;
	ferry->has_begun = true;
	if (r != CUDA_SUCCESS)
		ferry->error = r;
	return CUDA_SUCCESS;
}

static enum relay_step step(struct relay_task *task)
{
	struct ferry *ferry = (struct ferry *)task;
	unsigned ended = 0, moved = 0;

	if (look_at_begin(ferry) == CUDA_ERROR_NOT_READY)
		return RELAY_WAITS;
	for (unsigned i = 0; i < PIECES; ++i) {
		enum relay_step piece = step_piece(ferry, i);

		ended += piece == RELAY_ENDS;
		moved += piece == RELAY_MOVES;
	}
	if (ended == PIECES) {
		end(ferry);
		return RELAY_ENDS;
	}
	return moved ? RELAY_MOVES : RELAY_WAITS;
}

static CUresult set_up(struct ferry *ferry, struct session *to, struct session *from, uint64_t piece_bytes)
{
	CUresult r = take_gear(from, piece_bytes, &ferry->from);

	return r == CUDA_SUCCESS ? take_gear(to, piece_bytes, &ferry->to) : r;
}

/* The commands in the stream, between which the copy is. */
static CUresult mark_out(struct ferry *ferry, struct client_stream *stream, uint64_t *ret_seq)
{
	CUresult r = mempool_point(stream, &ferry->begin.seq);

	ferry->begin.stream = stream;
	return r == CUDA_SUCCESS ? gate_close(stream, &ferry->gate, ret_seq) : r;
}

static bool is_small(const struct box *box)
{
	return box->depth == 1 && box->height <= SMALL_BYTES / box->width && box->width <= SMALL_BYTES;
}

CUresult ferry(const struct box *box, struct session *to, struct session *from, struct client_stream *stream,
	ferry_send *send_piece, uint64_t *ret_seq)
{
	struct ferry *one = calloc(1, sizeof(*one));
	CUresult r;

	if (!one)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*one = (struct ferry){
		.task = {.step = step}, .box = *box, .session = stream->session, .send = send_piece};
	r = set_up(one, to, from, is_small(box) ? SMALL_BYTES : PIECE_BYTES);
	if (r == CUDA_SUCCESS)
		r = mark_out(one, stream, ret_seq);
	if (r == CUDA_SUCCESS) {
		r = relay_add(&one->task);
		if (r == CUDA_SUCCESS)
			return CUDA_SUCCESS;
		gate_open(one->gate);
	}
	give_gear(one->to);
	give_gear(one->from);
	free(one);
	return r;
}
