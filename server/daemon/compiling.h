// Requests that a compiler answers: a text that becomes code before an executor loads the code, and
// all about links. Daemon, loop thread only.
//
//   compiling_begin ──► waits ──(its user has fewer than so many under way)──► with a compiler
//                         ▲                                                      │     │
//                         └──── once: the compiler crashed, or took too long ────┘     ▼
//                                                 request_compiled(), or an answer to the program
//
// A session has a compiler of its own from its first text on. For each user with sessions, another
// compiler is started ahead. At most COMPILERS_MOST compilers of a user have texts of sessions; the
// compilers that have been idle for longest make room, and idle compilers end after IDLE_MS. The
// links of a compiler are a cache: if they are lost, the program begins a link again.
//
// A text that crashes a compiler twice, a fresh process the second time, is an error for its
// program alone: CUDA_ERROR_INVALID_PTX for the failed compilation, and a log with the cause.

#ifndef FRMPS_SERVER_DAEMON_COMPILING_H
#define FRMPS_SERVER_DAEMON_COMPILING_H

struct daemon;
struct request;
struct session;

/** Reads FRMPS_COMPILATIONS. */
void compiling_init(struct daemon *daemon);
/** Ends all compilers. */
void compiling_deinit(struct daemon *daemon);

/** Hands the request to a compiler. The request is not under way anywhere, and may be over when
 * this returns. */
void compiling_begin(struct request *request);
/** The request is cancelled: nobody waits for the result. */
void compiling_forget(struct request *request);

/** A session begins: ensures that a compiler is ready for the user. */
void compiling_await(struct session *session);
/** The session ends. */
void compiling_leave(struct session *session);

#endif
