// A stream waits for a command of another one. Of another session: a gate in the stream, which the
// relay opens when the command is done. If the other session ends first, the wait ends, and a wait
// of the program for this session returns the other's error once (wait_late_error()). Any thread.

#ifndef FRMPS_CLIENT_SUBMIT_CROSSING_H
#define FRMPS_CLIENT_SUBMIT_CROSSING_H

#include <stdint.h>

#include "protocol/cuda_abi.h"

struct client_stream;

/* Something else that a stream waits for. Both run on the relay's thread, and never wait. */
struct crossing_source {
	/* CUDA_SUCCESS: it is there; CUDA_ERROR_NOT_READY; an error of another session */
	CUresult (*look)(void *context);
	void (*end)(void *context); /* once; nobody looks any more */
};

/** Lets the stream's later commands wait until a source is there. Return: as crossing_wait(); then
 * the caller keeps the context */
CUresult crossing_wait_for(struct client_stream *stream, const struct crossing_source *source, void *context);

/** Lets the stream's later commands wait for a command of another stream, of any session. @other:
 * NULL: there is nothing to wait for */
CUresult crossing_await(struct client_stream *stream, struct client_stream *other, uint64_t seq);

/** Lets the stream's later commands wait for the command `seq` of a stream of another session.
 * Return: as gate_close(), errors of relay_add() */
CUresult crossing_wait(struct client_stream *stream, struct client_stream *other, uint64_t seq);

#endif
