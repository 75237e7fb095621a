// See arena.h. The lock guards the states of all pieces; no thread waits under it. Searches begin
// at the first piece, so that recently used pieces, still in the processor's caches, are reused
// first. Fixed sizes never fragment.
//
// A SENT piece counts as used until a thread finds its command done: the next thread that needs the
// piece, or a thread that has too few free pieces and sweeps them all.

#include "client/stage/arena.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "client/link/lost.h"
#include "client/state/session.h"
#include "client/state/stream.h"
#include "client/state/uncancelled.h"
#include "client/submit/submit.h"
#include "client/submit/wait.h"

/* A size gets at least so many pieces or none: a copy needs some pieces in flight, and a free piece
 * must remain when a stream has its share. */
#define PIECES_LEAST 4
/* A stream's pieces for each free piece. */
#define SHARE 3
/* Most streams that a thread waits for at a time. */
#define TARGETS 64
/* First and longest sleep for a piece that another thread fills or empties. */
#define PAUSE_NS      UINT64_C(20000)
#define PAUSE_MOST_NS UINT64_C(1000000)

/* Pieces of a stream. */
struct share {
	uint32_t used[ARENA_CLASSES];
	uint32_t target; /* index in `targets` of the current search */
	uint64_t search;
};

/* The commands that a thread without a piece waits for. */
struct busy {
	struct wait_target targets[TARGETS]; /* the oldest command of each stream */
	uint32_t count;
	bool pauses; /* there are other commands, or pieces that a thread fills or empties */
};

static const struct arena_class sizes[ARENA_CLASSES] = {
	{.bytes = 4096, .most = ARENA_SMALL_MOST, .part = 1},
	{.bytes = 65536, .most = ARENA_MIDDLE_MOST, .part = 3},
	{.bytes = 1048576, .most = ARENA_LARGE_MOST},
};
/* By slot: of the stream that has it, under the lock of its session's arena. */
static struct share shares[SHM_STREAMS];

static struct arena *arena_of(const struct client_stream *stream)
{
	return &stream->session->arena;
}

/* ---- the pieces ---- */

/* The largest size that an arena has enough room for: that size gets at least three quarters. */
static uint32_t top_class(uint64_t bytes)
{
	uint32_t top = ARENA_CLASSES - 1;

	while (top > 0 && bytes / 4 * 3 / sizes[top].bytes < PIECES_LEAST)
		--top;
	return top;
}

void arena_start(void)
{
	struct arena *arena = &session_self()->arena;
	uint64_t bytes = session_self()->connection.view.shape.arena_bytes, offset = 0, room;
	uint32_t top = top_class(bytes), next = 0;

	pthread_mutex_init(&arena->lock, NULL);
	memcpy(arena->classes, sizes, sizeof(sizes));
	for (uint32_t i = 0; i <= top; ++i) {
		struct arena_class *class = &arena->classes[i];

		room = (i == top ? bytes - offset : bytes / 16 * class->part) / class->bytes;
		class->first = next;
		class->count = room < class->most ? (uint32_t)room : class->most;
		for (uint32_t k = 0; k < class->count; ++k, offset += class->bytes)
			arena->pieces[next++] = (struct arena_piece){.class = i, .offset = offset};
	}
}

/* The smallest class that holds so many bytes, or the largest class that has pieces. */
static uint32_t class_for(const struct arena *arena, uint64_t bytes)
{
	uint32_t i = 0;

	while (i + 1 < ARENA_CLASSES && arena->classes[i + 1].count > 0 && arena->classes[i].bytes < bytes)
		++i;
	return i;
}

/* ---- states; under the lock ---- */

static void set_held(struct arena_piece *piece, struct client_stream *stream)
{
	struct arena *arena = arena_of(stream);

	piece->state = ARENA_HELD;
	piece->stream = stream;
	word_set(&piece->seq, 0);
	++arena->classes[piece->class].used;
	++shares[stream->slot].used[piece->class];
}

static void set_free(struct arena_piece *piece)
{
	struct arena *arena = arena_of(piece->stream);

	piece->state = ARENA_FREE;
	--arena->classes[piece->class].used;
	--shares[piece->stream->slot].used[piece->class];
}

static bool is_over(struct arena_piece *piece)
{
	return piece->state == ARENA_SENT && wait_is_done(piece->stream, word_relaxed(&piece->seq));
}

static void sweep(struct arena *arena, const struct arena_class *class)
{
	for (uint32_t i = class->first; i < class->first + class->count; ++i)
		if (is_over(&arena->pieces[i]))
			set_free(&arena->pieces[i]);
}

/* Takes the first free piece; the caller knows that there is one. */
static struct arena_piece *take(const struct arena_class *class, struct client_stream *stream)
{
	struct arena_piece *piece = &arena_of(stream)->pieces[class->first];

	while (piece->state != ARENA_FREE && !is_over(piece))
		++piece;
	if (piece->state != ARENA_FREE)
		set_free(piece);
	set_held(piece, stream);
	return piece;
}

static bool has_share(uint32_t class, const struct client_stream *stream)
{
	const struct arena_class *c = &arena_of(stream)->classes[class];

	return shares[stream->slot].used[class] < SHARE * (c->count - c->used);
}

/* Finds a piece of this size or, if all of these are in use, of a larger size. *ret_last: the last
 * size searched. */
static struct arena_piece *find(uint32_t first, struct client_stream *stream, uint32_t *ret_last)
{
	struct arena *arena = arena_of(stream);

	for (uint32_t i = first; i < ARENA_CLASSES && arena->classes[i].count > 0; ++i) {
		*ret_last = i;
		if (!has_share(i, stream))
			sweep(arena, &arena->classes[i]);
		if (has_share(i, stream))
			return take(&arena->classes[i], stream);
		if (arena->classes[i].used < arena->classes[i].count)
			break;
	}
	return NULL;
}

/* ---- waiting ---- */

/* True if a stream would have no share left even without any pieces of other streams. Under the
 * lock. */
static bool has_its_most(uint32_t class, const struct client_stream *stream)
{
	const struct arena *arena = arena_of(stream);
	uint32_t used = shares[stream->slot].used[class];

	return used >= SHARE * (arena->classes[class].count - used);
}

/* Under the lock. */
static void add(struct busy *busy, struct arena_piece *piece)
{
	const struct arena *arena = arena_of(piece->stream);
	struct share *share = &shares[piece->stream->slot];
	uint64_t seq = word_acquire(&piece->seq);

	if (seq == 0 || (piece->state == ARENA_HELD && wait_is_done(piece->stream, seq))) {
		busy->pauses = true;
	} else if (share->search == arena->latest_search) {
		struct wait_target *target = &busy->targets[share->target];

		target->seq = seq < target->seq ? seq : target->seq;
	} else if (busy->count < TARGETS) {
		share->search = arena->latest_search;
		share->target = busy->count;
		busy->targets[busy->count++] = (struct wait_target){piece->stream, seq};
	} else {
		busy->pauses = true;
	}
}

/* Collects the commands that must end before the stream may have a piece of these sizes. Starts at
 * another piece each time, so that no stream starves. Under the lock. */
static void search(uint32_t first, uint32_t last, const struct client_stream *stream, struct busy *ret_busy)
{
	struct arena *arena = arena_of(stream);
	uint32_t begin = arena->classes[first].first,
		 all = arena->classes[last].first + arena->classes[last].count - begin;
	bool own = first == last && has_its_most(first, stream);
	uint64_t turn = ++arena->latest_search;

	ret_busy->count = 0;
	ret_busy->pauses = false;
	for (uint32_t i = 0; i < all; ++i) {
		struct arena_piece *piece = &arena->pieces[begin + (turn + i) % all];

		if (piece->state != ARENA_FREE && (!own || piece->stream == stream))
			add(ret_busy, piece);
	}
}

/* A thread that fills or empties a piece returns it after a memcpy, or after its own wait for
 * credit. There is nothing to wait on, so this polls, at an interval of about 1 % of the time
 * waited. */
static CUresult pause_for(struct session *session, const struct busy *busy, uint64_t *ns)
{
	CUresult r = CUDA_SUCCESS;

	for (uint32_t i = 0; i < busy->count && r == CUDA_SUCCESS; ++i)
		r = submit_mark(busy->targets[i].stream, busy->targets[i].seq);
	if (r != CUDA_SUCCESS)
		return r;
	uncancelled_sleep(*ns);
	if (*ns < PAUSE_MOST_NS)
		*ns += *ns / 64;
	return lost_check(session);
}

/* ---- the calls ---- */

static void lend(struct arena_piece *piece, struct arena_lease *ret_lease)
{
	const struct session *session = piece->stream->session;

	*ret_lease = (struct arena_lease){
		.piece = piece,
		.offset = piece->offset,
		.memory = session->connection.view.arena + piece->offset,
		.bytes = session->arena.classes[piece->class].bytes,
	};
}

/* @ret_busy: NULL: the caller does not wait */
static CUresult attempt(
	uint64_t bytes, struct client_stream *stream, struct arena_lease *ret_lease, struct busy *ret_busy)
{
	struct arena *arena = arena_of(stream);
	uint32_t first = class_for(arena, bytes), last = first;
	struct arena_piece *piece;

	pthread_mutex_lock(&arena->lock);
	piece = find(first, stream, &last);
	if (!piece && ret_busy)
		search(first, last, stream, ret_busy);
	pthread_mutex_unlock(&arena->lock);
	if (!piece)
		return CUDA_ERROR_NOT_READY;
	lend(piece, ret_lease);
	return CUDA_SUCCESS;
}

CUresult arena_try(uint64_t bytes, struct client_stream *stream, struct arena_lease *ret_lease)
{
	return attempt(bytes, stream, ret_lease, NULL);
}

CUresult arena_hold(uint64_t bytes, struct client_stream *stream, struct arena_lease *ret_lease)
{
	uint64_t pause_ns = PAUSE_NS;
	struct busy busy;
	CUresult r;

	for (;;) {
		r = attempt(bytes, stream, ret_lease, &busy);
		if (r != CUDA_ERROR_NOT_READY)
			return r;
		r = busy.pauses ? pause_for(stream->session, &busy, &pause_ns)
				: wait_any(busy.targets, busy.count, false);
		if (r != CUDA_SUCCESS)
			return r;
	}
}

void arena_awaits(struct arena_lease *lease, uint64_t seq)
{
	word_release(&lease->piece->seq, seq);
}

void arena_sent(struct arena_lease *lease, uint64_t seq)
{
	struct arena *arena = arena_of(lease->piece->stream);

	pthread_mutex_lock(&arena->lock);
	word_set(&lease->piece->seq, seq);
	lease->piece->state = ARENA_SENT;
	pthread_mutex_unlock(&arena->lock);
}

void arena_release(struct arena_lease *lease)
{
	struct arena *arena = arena_of(lease->piece->stream);

	pthread_mutex_lock(&arena->lock);
	set_free(lease->piece);
	pthread_mutex_unlock(&arena->lock);
}
