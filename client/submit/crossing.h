// A stream waits for a command of another one. Of another session: a gate in the stream, which the
// relay opens when the command is done. If the other session ends first, the wait ends, and a wait
// of the program for this session returns the other's error once (wait_late_error()). Any thread.

#ifndef FRMPS_CLIENT_SUBMIT_CROSSING_H
#define FRMPS_CLIENT_SUBMIT_CROSSING_H

#include <stdint.h>

#include "protocol/cuda_abi.h"

struct client_stream;

/** Lets the stream's later commands wait for a command of another stream, of any session. @other:
 * NULL: there is nothing to wait for */
CUresult crossing_await(struct client_stream *stream, struct client_stream *other, uint64_t seq);

/** Lets the stream's later commands wait for the command `seq` of a stream of another session.
 * Return: as gate_close(), errors of relay_add() */
CUresult crossing_wait(struct client_stream *stream, struct client_stream *other, uint64_t seq);

#endif
