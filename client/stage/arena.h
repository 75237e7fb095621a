// Staging memory for copies of pageable memory: the arena of the stream's session, cut at the start
// into pieces of up to three sizes. A piece is FREE, HELD by a thread, or SENT: named by a command,
// and free again once that command is done. Any thread.
//
// A stream may have three times as many pieces of a size as remain free. So a stalled stream leaves
// a quarter of the pieces to the others, a second one a quarter of these, and so on. A thread
// without a share waits until a piece is free. To avoid a deadlock of threads that wait for each
// other's pieces, a thread that holds a piece never waits for another.

#ifndef FRMPS_CLIENT_STAGE_ARENA_H
#define FRMPS_CLIENT_STAGE_ARENA_H

#include <pthread.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"
#include "shm/order.h"

struct client_stream;

enum arena_state { ARENA_FREE, ARENA_HELD, ARENA_SENT };

struct arena_piece {
	enum arena_state state;
	uint32_t class;
	uint64_t offset;
	struct client_stream *stream; /* HELD, SENT */
	word64 seq; /* frees the piece when done; HELD: 0 while the holder fills or empties the piece */
};

struct arena_class {
	uint64_t bytes; /* of a piece */
	uint32_t most;
	uint32_t part; /* of the arena, in sixteenths; the largest existing size gets the rest */
	uint32_t first, count;
	uint32_t used; /* not FREE */
};

#define ARENA_CLASSES 3
/* Most pieces of each size. Searches are linear; of the largest size there are as many as the
 * largest arena has. */
#define ARENA_SMALL_MOST  512
#define ARENA_MIDDLE_MOST 256
#define ARENA_LARGE_MOST  1024

/* Of a session; guarded by lock. */
struct arena {
	pthread_mutex_t lock;
	struct arena_class classes[ARENA_CLASSES];
	uint64_t latest_search;
	struct arena_piece pieces[ARENA_SMALL_MOST + ARENA_MIDDLE_MOST + ARENA_LARGE_MOST];
};

/* A held piece. */
struct arena_lease {
	struct arena_piece *piece;
	uint64_t offset; /* in the arena */
	uint8_t *memory;
	uint64_t bytes; /* its size: as requested or more, or the largest size */
};

/**
 * Takes a piece for up to `bytes` bytes, for a command of the stream; for more bytes than the
 * largest piece holds, a largest piece. Waits for a free piece: the caller must not hold another
 * piece.
 * Return: CUDA_SUCCESS, the sticky error.
 */
CUresult arena_hold(uint64_t bytes, struct client_stream *stream, struct arena_lease *ret_lease);

/**
 * As arena_hold(), without waiting. Return: CUDA_SUCCESS, CUDA_ERROR_NOT_READY without a free
 * piece.
 */
CUresult arena_try(uint64_t bytes, struct client_stream *stream, struct arena_lease *ret_lease);

/** The holder waits for this command of the stream before it uses the piece again. */
void arena_awaits(struct arena_lease *lease, uint64_t seq);

/** A command of the stream names the piece: free once the command is done. */
void arena_sent(struct arena_lease *lease, uint64_t seq);

/** Frees the piece now. */
void arena_release(struct arena_lease *lease);

/** Called by session start. */
void arena_start(void);

#endif
