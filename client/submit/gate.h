// Gates: a command in a stream holds what follows until the library opens the gate. The gate is a
// word of the session's pinned memory, for which the stream waits; the library writes it. Gates are
// used again and never freed. Any thread.

#ifndef FRMPS_CLIENT_SUBMIT_GATE_H
#define FRMPS_CLIENT_SUBMIT_GATE_H

#include <pthread.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

struct client_stream;
struct gate;

/* Of a session; guarded by lock. */
struct gates {
	pthread_mutex_t lock;
	struct gate *first; /* all that were ever made */
	uint64_t page;	    /* pinned memory for the words of more; 0: none */
	uint32_t page_used; /* words of it */
};

/** Called by session start. */
void gate_start(void);

/**
 * Closes a gate in the stream: its later commands wait until gate_open(), which must follow.
 * @ret_seq: of the waiting command
 * Return: as submit_begin(); CUDA_ERROR_OUT_OF_MEMORY: no pinned memory
 */
CUresult gate_close(struct client_stream *stream, struct gate **ret_gate, uint64_t *ret_seq);

/** Opens the gate, which the caller does not use any more. Waits for nothing. */
void gate_open(struct gate *gate);

#endif
