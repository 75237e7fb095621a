// Waiting for commands: spin on the stream's completion word, then sleep on the session's wake
// word. Runs on the program's threads with no lock of the library held. A fault, the end of the
// session or of the service ends every wait with the sticky error.

#ifndef FRMPS_CLIENT_SUBMIT_WAIT_H
#define FRMPS_CLIENT_SUBMIT_WAIT_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

struct client_stream;
struct session;

/** True if the command is known done. Reads memory only. */
bool wait_is_done(const struct client_stream *stream, uint64_t seq);

/**
 * As wait_is_done(); otherwise makes sure that the completion becomes visible soon: for calls that
 * programs poll with.
 */
CUresult wait_poll(struct client_stream *stream, uint64_t seq);

/**
 * As wait_poll(), for commands that the program may have waited for already: if the command was
 * done when the session was held, the call waits until the session continues.
 */
CUresult wait_known(struct client_stream *stream, uint64_t seq);

/**
 * Waits for a command, then writes the text of kernels (client/text).
 * @sleepy: sleep at once (the program asked for blocking synchronisation)
 * Return: CUDA_SUCCESS, the sticky error.
 */
CUresult wait_done(struct client_stream *stream, uint64_t seq, bool sleepy);

/** Waits only: for the library's own waits, inside calls at which a program expects no text. */
CUresult wait_quietly(struct client_stream *stream, uint64_t seq, bool sleepy);

/* A command. */
struct wait_target {
	struct client_stream *stream;
	uint64_t seq;
};

/** As wait_quietly(), until one of several commands of the same session is done. @count: at least
 * 1 */
CUresult wait_any(const struct wait_target *targets, uint32_t count, bool sleepy);

/**
 * Waits for all work submitted to the stream so far; for the legacy stream, also to the blocking
 * streams.
 */
CUresult wait_stream(struct client_stream *stream);

/**
 * Waits for all work that a command of the stream would now run behind: for work that the program's
 * thread itself does in stream order.
 */
CUresult wait_turn(struct client_stream *stream);
/** As wait_stream(), without waiting: CUDA_SUCCESS or CUDA_ERROR_NOT_READY. */
CUresult wait_query_stream(struct client_stream *stream);

/** CUDA_LAUNCH_BLOCKING is 1: a launch returns when its kernels are done. Set by process start. */
extern bool wait_launches;
/** The result of such a launch: the error of its kernels. */
CUresult wait_launched(struct client_stream *stream);

/** Waits for all work of the calling thread's session that was submitted to any stream so far. */
CUresult wait_all(void);
/** As wait_all(), for the work of all sessions. */
CUresult wait_everywhere(void);
/**
 * As wait_all(), for the library's own waits: no text, and errors of single commands are left to
 * the program's waits.
 */
CUresult wait_all_quietly(void);

/** As wait_all(), for the streams of a context of the session (stream_is_in()). */
CUresult wait_context(CUcontext context);

/** The next wait_late_error() of a session returns this: what it has waited for in another session
 * has failed. */
void wait_note_error(struct session *session, CUresult code);

/** The error of a single command of the calling thread's session that the device refused after the
 * call: each is returned once. */
CUresult wait_late_error(void);

#endif
