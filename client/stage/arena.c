// See arena.h. The lock guards the states of all pieces; no thread waits under it. Searches begin
// at the first piece, so that recently used pieces, still in the processor's caches, are reused
// first. Fixed sizes never fragment.
//
// A SENT piece counts as used until a thread finds its command done: the next thread that needs the
// piece, or a thread that has too few free pieces and sweeps them all.

#include "client/stage/arena.h"

#include <pthread.h>
#include <stdbool.h>

#include "client/link/connect.h"
#include "client/link/lost.h"
#include "client/state/stream.h"
#include "client/state/uncancelled.h"
#include "client/submit/submit.h"
#include "client/submit/wait.h"

#define CLASSES 3
/* A size gets at least so many pieces or none: a copy needs some pieces in flight, and a free piece
 * must remain when a stream has its share. */
#define PIECES_LEAST 4
/* Most pieces of each size. Searches are linear; of the largest size there are as many as the
 * largest arena has. */
#define SMALL_MOST  512
#define MIDDLE_MOST 256
#define LARGE_MOST  1024
#define PIECES_MOST (SMALL_MOST + MIDDLE_MOST + LARGE_MOST)
/* A stream's pieces for each free piece. */
#define SHARE 3
/* Most streams that a thread waits for at a time. */
#define TARGETS 64
/* First and longest sleep for a piece that another thread fills or empties. */
#define PAUSE_NS      UINT64_C(20000)
#define PAUSE_MOST_NS UINT64_C(1000000)

enum piece_state { FREE, HELD, SENT };

struct arena_piece {
	enum piece_state state;
	uint32_t class;
	uint64_t offset;
	struct client_stream *stream; /* HELD, SENT */
	word64 seq; /* frees the piece when done; HELD: 0 while the holder fills or empties the piece */
};

struct size_class {
	uint64_t bytes; /* of a piece */
	uint32_t most;
	uint32_t part; /* of the arena, in sixteenths; the largest existing size gets the rest */
	uint32_t first, count;
	uint32_t used; /* not FREE */
};

/* Pieces of a stream. */
struct share {
	uint32_t used[CLASSES];
	uint32_t target; /* index in `targets` of the current search */
	uint64_t search;
};

/* The commands that a thread without a piece waits for. */
struct busy {
	struct wait_target targets[TARGETS]; /* the oldest command of each stream */
	uint32_t count;
	bool pauses; /* there are other commands, or pieces that a thread fills or empties */
};

static struct arena_piece pieces[PIECES_MOST];
static struct size_class classes[CLASSES] = {
	{.bytes = 4096, .most = SMALL_MOST, .part = 1},
	{.bytes = 65536, .most = MIDDLE_MOST, .part = 3},
	{.bytes = 1048576, .most = LARGE_MOST},
};
static struct share shares[SHM_STREAMS];
static uint64_t latest_search;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- the pieces ---- */

/* The largest size that an arena has enough room for: that size gets at least three quarters. */
static uint32_t top_class(uint64_t bytes)
{
	uint32_t top = CLASSES - 1;

	while (top > 0 && bytes / 4 * 3 / classes[top].bytes < PIECES_LEAST)
		--top;
	return top;
}

void arena_start(void)
{
	uint64_t bytes = connection.view.shape.arena_bytes, offset = 0, room;
	uint32_t top = top_class(bytes), next = 0;

	for (uint32_t i = 0; i <= top; ++i) {
		struct size_class *class = &classes[i];

		room = (i == top ? bytes - offset : bytes / 16 * class->part) / class->bytes;
		class->first = next;
		class->count = room < class->most ? (uint32_t)room : class->most;
		for (uint32_t k = 0; k < class->count; ++k, offset += class->bytes)
			pieces[next++] = (struct arena_piece){.class = i, .offset = offset};
	}
}

/* The smallest class that holds so many bytes, or the largest class that has pieces. */
static uint32_t class_for(uint64_t bytes)
{
	uint32_t i = 0;

	while (i + 1 < CLASSES && classes[i + 1].count > 0 && classes[i].bytes < bytes)
		++i;
	return i;
}

/* ---- states; under the lock ---- */

static void set_held(struct arena_piece *piece, struct client_stream *stream)
{
	piece->state = HELD;
	piece->stream = stream;
	word_set(&piece->seq, 0);
	++classes[piece->class].used;
	++shares[stream->slot].used[piece->class];
}

static void set_free(struct arena_piece *piece)
{
	piece->state = FREE;
	--classes[piece->class].used;
	--shares[piece->stream->slot].used[piece->class];
}

static bool is_over(struct arena_piece *piece)
{
	return piece->state == SENT && wait_is_done(piece->stream, word_relaxed(&piece->seq));
}

static void sweep(const struct size_class *class)
{
	for (uint32_t i = class->first; i < class->first + class->count; ++i)
		if (is_over(&pieces[i]))
			set_free(&pieces[i]);
}

/* Takes the first free piece; the caller knows that there is one. */
static struct arena_piece *take(const struct size_class *class, struct client_stream *stream)
{
	struct arena_piece *piece = &pieces[class->first];

	while (piece->state != FREE && !is_over(piece))
		++piece;
	if (piece->state != FREE)
		set_free(piece);
	set_held(piece, stream);
	return piece;
}

static bool has_share(uint32_t class, const struct client_stream *stream)
{
	const struct size_class *c = &classes[class];

	return shares[stream->slot].used[class] < SHARE * (c->count - c->used);
}

/* Finds a piece of this size or, if all of these are in use, of a larger size. *ret_last: the last
 * size searched. */
static struct arena_piece *find(uint32_t first, struct client_stream *stream, uint32_t *ret_last)
{
	for (uint32_t i = first; i < CLASSES && classes[i].count > 0; ++i) {
		*ret_last = i;
		if (!has_share(i, stream))
			sweep(&classes[i]);
		if (has_share(i, stream))
			return take(&classes[i], stream);
		if (classes[i].used < classes[i].count)
			break;
	}
	return NULL;
}

/* ---- waiting ---- */

/* True if a stream would have no share left even without any pieces of other streams. Under the
 * lock. */
static bool has_its_most(uint32_t class, const struct client_stream *stream)
{
	uint32_t used = shares[stream->slot].used[class];

	return used >= SHARE * (classes[class].count - used);
}

/* Under the lock. */
static void add(struct busy *busy, struct arena_piece *piece)
{
	struct share *share = &shares[piece->stream->slot];
	uint64_t seq = word_acquire(&piece->seq);

	if (seq == 0 || (piece->state == HELD && wait_is_done(piece->stream, seq))) {
		busy->pauses = true;
	} else if (share->search == latest_search) {
		struct wait_target *target = &busy->targets[share->target];

		target->seq = seq < target->seq ? seq : target->seq;
	} else if (busy->count < TARGETS) {
		share->search = latest_search;
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
	uint32_t begin = classes[first].first, all = classes[last].first + classes[last].count - begin;
	bool own = first == last && has_its_most(first, stream);
	uint64_t turn = ++latest_search;

	ret_busy->count = 0;
	ret_busy->pauses = false;
	for (uint32_t i = 0; i < all; ++i) {
		struct arena_piece *piece = &pieces[begin + (turn + i) % all];

		if (piece->state != FREE && (!own || piece->stream == stream))
			add(ret_busy, piece);
	}
}

/* A thread that fills or empties a piece returns it after a memcpy, or after its own wait for
 * credit. There is nothing to wait on, so this polls, at an interval of about 1 % of the time
 * waited. */
static CUresult pause_for(const struct busy *busy, uint64_t *ns)
{
	CUresult r = CUDA_SUCCESS;

	for (uint32_t i = 0; i < busy->count && r == CUDA_SUCCESS; ++i)
		r = submit_mark(busy->targets[i].stream, busy->targets[i].seq);
	if (r != CUDA_SUCCESS)
		return r;
	uncancelled_sleep(*ns);
	if (*ns < PAUSE_MOST_NS)
		*ns += *ns / 64;
	return lost_check();
}

/* ---- the calls ---- */

static void lend(struct arena_piece *piece, struct arena_lease *ret_lease)
{
	*ret_lease = (struct arena_lease){
		.piece = piece,
		.offset = piece->offset,
		.memory = connection.view.arena + piece->offset,
		.bytes = classes[piece->class].bytes,
	};
}

/* @ret_busy: NULL: the caller does not wait */
static CUresult attempt(
	uint64_t bytes, struct client_stream *stream, struct arena_lease *ret_lease, struct busy *ret_busy)
{
	uint32_t first = class_for(bytes), last = first;
	struct arena_piece *piece;

	pthread_mutex_lock(&lock);
	piece = find(first, stream, &last);
	if (!piece && ret_busy)
		search(first, last, stream, ret_busy);
	pthread_mutex_unlock(&lock);
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
		r = busy.pauses ? pause_for(&busy, &pause_ns) : wait_any(busy.targets, busy.count, false);
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
	pthread_mutex_lock(&lock);
	word_set(&lease->piece->seq, seq);
	lease->piece->state = SENT;
	pthread_mutex_unlock(&lock);
}

void arena_release(struct arena_lease *lease)
{
	pthread_mutex_lock(&lock);
	set_free(lease->piece);
	pthread_mutex_unlock(&lock);
}
