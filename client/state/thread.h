// State of a thread of the program: its stack of current contexts, its default stream, its capture
// mode. Lives in thread-local storage; a thread's default stream is destroyed when the thread ends.

#ifndef FRMPS_CLIENT_STATE_THREAD_H
#define FRMPS_CLIENT_STATE_THREAD_H

#include <stdbool.h>

#include "protocol/cuda_abi.h"

struct client_stream;

struct thread {
	CUcontext current; /* top of the stack */
	CUcontext *below;  /* the rest of the stack */
	unsigned int depth, room;
	CUstreamCaptureMode capture_mode;
	struct client_stream *streams; /* the thread's default streams: one of each session that it uses */
	void (*retire)(struct client_stream *stream); /* ends one when the thread ends */
	bool registered;			      /* what it owns is given back at its end */
	bool reserves_host; /* what it reserves next is for host memory (entry/virtual.c) */
	bool is_callbacks;  /* a function of the program runs, which may not call the driver */
};

/** The calling thread's state. */
struct thread *thread_self(void);

/** Makes sure that the thread's resources are freed when it ends. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult thread_register(struct thread *thread);

/** The way in which the current context waits: a CU_CTX_SCHED_* value. */
unsigned int thread_scheduling(void);

/** The stack of current contexts. Pushing NULL is an error of the caller. */
CUresult thread_push(CUcontext context);
/** CUDA_ERROR_INVALID_CONTEXT on an empty stack. */
CUresult thread_pop(CUcontext *ret_context);
/** Replaces the top; NULL removes it. */
void thread_set(CUcontext context);

#endif
