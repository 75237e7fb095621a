// Staging memory for copies of pageable memory: the session's arena, cut at the start into pieces
// of up to three sizes. A piece is FREE, HELD by a thread, or SENT: named by a command, and free
// again once that command is done. Any thread.
//
// A stream may have three times as many pieces of a size as remain free. So a stalled stream leaves
// a quarter of the pieces to the others, a second one a quarter of these, and so on. A thread
// without a share waits until a piece is free. To avoid a deadlock of threads that wait for each
// other's pieces, a thread that holds a piece never waits for another.

#ifndef FRMPS_CLIENT_STAGE_ARENA_H
#define FRMPS_CLIENT_STAGE_ARENA_H

#include <stdint.h>

#include "protocol/cuda_abi.h"

struct client_stream;
struct arena_piece;

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

/** Called by process start. */
void arena_start(void);

#endif
