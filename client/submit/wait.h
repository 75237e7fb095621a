// Waiting for commands: spin on the stream's completion word, then sleep on the session's wake
// word. Runs on the program's threads with no lock of the shim held. A fault, the end of the
// session or of the service ends every wait with the sticky error.

#ifndef FRMPS_CLIENT_SUBMIT_WAIT_H
#define FRMPS_CLIENT_SUBMIT_WAIT_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

struct client_stream;

/** Whether the command is known done. Reads memory only. */
bool wait_is_done(const struct client_stream *stream, uint64_t seq);

/** The same, and if it is not, makes sure that it will be seen soon: for calls that programs poll
 * with. */
CUresult wait_poll(struct client_stream *stream, uint64_t seq);

/** The same for who may have waited for the command already: what was done when a session was held
 * is not CUDA_ERROR_NOT_READY, the call waits until it goes on. */
CUresult wait_known(struct client_stream *stream, uint64_t seq);

/**
 * Waits for a command, then shows what kernels have printed (client/text).
 * @sleepy: go to sleep at once (blocking synchronisation was asked for)
 * Return: CUDA_SUCCESS, the sticky error.
 */
CUresult wait_done(struct client_stream *stream, uint64_t seq, bool sleepy);

/** Waits only: for waits of our own, inside calls at which a program expects no text. */
CUresult wait_quietly(struct client_stream *stream, uint64_t seq, bool sleepy);

/* A command. */
struct wait_target {
	struct client_stream *stream;
	uint64_t seq;
};

/** The same until one of several commands is done. @count: at least 1 */
CUresult wait_any(const struct wait_target *targets, uint32_t count, bool sleepy);

/** Waits for everything that was given to the stream so far; for the legacy stream, to the blocking
 * ones too.
 */
CUresult wait_stream(struct client_stream *stream);

/** Waits for everything that a command would run behind which is given to the stream now: for what
 * the program does itself in stream order. */
CUresult wait_turn(struct client_stream *stream);
/** CUDA_SUCCESS or CUDA_ERROR_NOT_READY for the same. */
CUresult wait_query_stream(struct client_stream *stream);

/** CUDA_LAUNCH_BLOCKING is 1: a launch returns when its kernels are done. Set by process start. */
extern bool wait_launches;
/** What such a launch returns: the error of its kernels. */
CUresult wait_launched(struct client_stream *stream);

/** Waits for everything that the process gave to any stream so far. */
CUresult wait_all(void);
/** The same for a wait of our own: no text, and the errors of single commands are left to the
 * program's. */
CUresult wait_all_quietly(void);

/** The same for the streams of a context. Default streams are of every context. */
CUresult wait_context(CUcontext context);

/** The error of a single command that the device refused after the call: each is reported once. */
CUresult wait_late_error(void);

#endif
