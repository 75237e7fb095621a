// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// Staging memory for copies of ordinary (pageable) memory: the session's arena, cut into pieces of three
// sizes once and for all. A piece is FREE, HELD by a thread, or SENT: named by a command, free again when
// that is done. Any thread.

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
 * Takes a piece for up to `bytes` bytes; for more than the largest piece holds, one of those. Waits while all
 * are in use. Return: CUDA_SUCCESS, the sticky error.
 */
CUresult arena_hold(uint64_t bytes, struct arena_lease *ret_lease);

/** The piece is named by a command: free when that is done. */
void arena_sent(struct arena_lease *lease, struct client_stream *stream, uint64_t seq);

/** The piece is free now. */
void arena_release(struct arena_lease *lease);

/** Called by process start. */
void arena_start(void);

#endif
