// Staging memory for copies of ordinary (pageable) memory: the session's arena, cut into pieces of
// up to three sizes once and for all. A piece is FREE, HELD by a thread, or SENT: named by a
// command, free again when that is done. Any thread.
//
// A stream may have three times as many pieces of a size as are left free, so one that stands still
// leaves a quarter of them to the others, a second one a quarter of these, and so on. Who has no
// share left waits until any of the pieces comes back. So that nobody waits for ever for pieces
// whose holders wait for each other's, a thread that holds one and needs another only tries.

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
	uint64_t bytes; /* its size, at least what was asked for or the largest there is */
};

/**
 * Takes a piece for up to `bytes` bytes, to be used by a command of the stream; for more than the
 * largest piece holds, one of those. Waits while there is none: not with another one in hand.
 * Return: CUDA_SUCCESS, the sticky error.
 */
CUresult arena_hold(uint64_t bytes, struct client_stream *stream, struct arena_lease *ret_lease);

/** The same without waiting. Return: CUDA_SUCCESS, CUDA_ERROR_NOT_READY when there is none now. */
CUresult arena_try(uint64_t bytes, struct client_stream *stream, struct arena_lease *ret_lease);

/** The holder waits for this command of the stream before it goes on with the piece. */
void arena_awaits(struct arena_lease *lease, uint64_t seq);

/** The piece is named by this command of the stream: free when that is done. */
void arena_sent(struct arena_lease *lease, uint64_t seq);

/** The piece is free now. */
void arena_release(struct arena_lease *lease);

/** Called by process start. */
void arena_start(void);

#endif
