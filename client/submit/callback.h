// Host functions: functions of the program that run in stream order. A single service thread of the
// session, made at the first use, runs all of these; a program without such functions has no thread
// of the library. The library's own functions, which do its part of copies, have a second thread:
// they do not wait for the program's functions in other streams.

#ifndef FRMPS_CLIENT_SUBMIT_CALLBACK_H
#define FRMPS_CLIENT_SUBMIT_CALLBACK_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "protocol/cuda_abi.h"
#include "shm/order.h"

struct client_stream;
struct note;
struct session;

/* A service thread. */
struct callback_service {
	struct session *session;
	_Atomic(struct note *) incoming; /* newest first */
	word32 arrivals;		 /* incremented after a push: the futex of the idle thread */
	bool running;			 /* guarded by start_lock */
	sigset_t welcome; /* signals unblocked while a function runs; written before the thread starts */
};

/* Of a session. */
struct callbacks {
	struct callback_service program, library;
	pthread_mutex_t start_lock;
	word32 under_way; /* notes that were pushed and have not run yet */
};

/** Called by session start. */
void callback_start(void);

/** Runs fn(user) in stream order; never after a fault. */
CUresult callback_host_function(struct client_stream *stream, CUhostFn fn, void *user);

/** As callback_host_function(), for a function of the library, which waits for nothing. */
CUresult callback_own_function(struct client_stream *stream, CUhostFn fn, void *user);

/**
 * Runs fn(handle, status, user) in stream order; after a fault as soon as possible, with the error.
 * @handle: the program's handle of the stream
 */
CUresult callback_stream(struct client_stream *stream, CUstream handle, CUstreamCallback fn, void *user);

/**
 * True if no function of the session runs or is going to. After a fault this is true soon, unless a
 * function does not end.
 */
bool callback_is_idle(struct session *session);

#endif
