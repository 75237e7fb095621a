// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// See arena.h. The lock guards the states of all pieces and is not held while anything is waited for. Pieces
// are looked for from the first on, so that the ones used last, still in the processor's caches, come back
// first. Fixed sizes never fragment, and a stream that stands still keeps only its own pieces.

#include "client/stage/arena.h"

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include "client/link/connect.h"
#include "client/link/lost.h"
#include "client/state/stream.h"
#include "client/submit/wait.h"

#define CLASSES	   3
#define PIECES_MAX 1024

enum piece_state { FREE, HELD, SENT };

struct arena_piece {
	enum piece_state state;
	struct client_stream *stream; /* SENT */
	uint64_t seq;
	uint64_t order; /* SENT: tells the oldest */
	uint64_t offset;
};

struct class
{
	uint64_t bytes; /* of one piece */
	uint32_t first, count;
};

static struct arena_piece pieces[PIECES_MAX];
/* Piece sizes, and what part of the arena (in sixteenths) each class has. */
static struct class classes[CLASSES] = {{.bytes = 4096}, {.bytes = 65536}, {.bytes = 1048576}};
static const uint32_t shares[CLASSES] = {1, 3, 12};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t latest_order;

void arena_start(void)
{
	uint64_t offset = 0, sixteenth = connection.view.shape.arena_bytes / 16 & ~UINT64_C(4095);
	uint32_t next = 0;

	for (int i = 0; i < CLASSES; ++i) {
		uint64_t count = sixteenth * shares[i] / classes[i].bytes;

		classes[i].first = next;
		classes[i].count = (uint32_t)(count < PIECES_MAX - next ? count : PIECES_MAX - next);
		for (uint32_t k = 0; k < classes[i].count; ++k, ++next)
			pieces[next] = (struct arena_piece){.offset = offset + k * classes[i].bytes};
		offset += sixteenth * shares[i];
	}
}

/* The smallest class that holds so much, or the largest that has pieces. */
static const struct class *class_for(uint64_t bytes)
{
	const struct class *best = &classes[0];

	for (int i = 0; i < CLASSES; ++i) {
		if (classes[i].count == 0)
			continue;
		best = &classes[i];
		if (best->bytes >= bytes)
			break;
	}
	return best;
}

static bool is_free(const struct arena_piece *piece)
{
	return piece->state == FREE || (piece->state == SENT && wait_is_done(piece->stream, piece->seq));
}

/* Takes a free piece, or says which sent one is the oldest (NULL: all are held). Under the lock. */
static struct arena_piece *take(const struct class *class, struct arena_piece **ret_oldest)
{
	*ret_oldest = NULL;
	for (uint32_t i = 0; i < class->count; ++i) {
		struct arena_piece *piece = &pieces[class->first + i];

		if (is_free(piece)) {
			piece->state = HELD;
			return piece;
		}
		if (piece->state == SENT && (!*ret_oldest || piece->order < (*ret_oldest)->order))
			*ret_oldest = piece;
	}
	return NULL;
}

/* All pieces are in other threads' hands, for the time of one memcpy. */
static CUresult await_others(void)
{
	struct timespec pause = {.tv_nsec = 20000};

	nanosleep(&pause, NULL);
	return lost_check();
}

CUresult arena_hold(uint64_t bytes, struct arena_lease *ret_lease)
{
	const struct class *class = class_for(bytes);
	CUresult r = CUDA_SUCCESS;

	while (r == CUDA_SUCCESS) {
		struct arena_piece *oldest, *piece, await = {0};

		pthread_mutex_lock(&lock);
		piece = take(class, &oldest);
		if (oldest)
			await = *oldest;
		pthread_mutex_unlock(&lock);
		if (piece) {
			*ret_lease = (struct arena_lease){
				.piece = piece,
				.offset = piece->offset,
				.memory = connection.view.arena + piece->offset,
				.bytes = class->bytes,
			};
			return CUDA_SUCCESS;
		}
		r = oldest ? wait_quietly(await.stream, await.seq, false) : await_others();
	}
	return r;
}

void arena_sent(struct arena_lease *lease, struct client_stream *stream, uint64_t seq)
{
	struct arena_piece *piece = lease->piece;

	pthread_mutex_lock(&lock);
	piece->stream = stream;
	piece->seq = seq;
	piece->order = ++latest_order;
	piece->state = SENT;
	pthread_mutex_unlock(&lock);
}

void arena_release(struct arena_lease *lease)
{
	pthread_mutex_lock(&lock);
	lease->piece->state = FREE;
	pthread_mutex_unlock(&lock);
}
