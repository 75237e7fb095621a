// The trace that `frmps-run --trace` asks for: a program's calls, and the commands that they gave
// the device, in a file (file.h). The trace is off unless FRMPS_TRACE names a file when the program
// calls cuInit. While the trace is off, a call looks at one word and does nothing more.
//
// The service knows nothing of the trace. Around each traced command the shim records two timed
// events of its own, in the same stream and with no other command between them
// (submit_begin_timed()). A thread of the shim reads their times as those of a program's events are
// read (state/timing.h), and writes the file.
//
//   call ──trace_enter()──────────────────────────────────────trace_leave()──► file
//            └► command: trace_launch() … record·command·record … trace_submitted()
//                                                │
//                              the thread: both times are there ──► file, with an arrow from the call
//
// Any thread of the program. No call waits for the device. A call waits for the trace's thread only
// if there is no room (turn.h), and exit() waits for the end of the file.

#ifndef FRMPS_CLIENT_TRACE_TRACE_H
#define FRMPS_CLIENT_TRACE_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/command.h"
#include "protocol/cuda_abi.h"
#include "shm/order.h"

struct client_stream;
struct launch;
struct submit_timing;

extern word32 trace_on; /* 0: nothing is recorded */

static inline bool trace_is_on(void)
{
	return __builtin_expect(word_relaxed(&trace_on) != 0, 0);
}

/* For functions that run only then. */
#define TRACE_COLD __attribute__((cold, noinline))

/* A call of the program. */
struct trace_call {
	const char *name; /* NULL: not recorded */
	uint64_t begin;
};

struct trace_call trace_call_begin(const char *name);
void trace_call_end(const struct trace_call *call);

static inline struct trace_call trace_enter(const char *name)
{
	return trace_is_on() ? trace_call_begin(name) : (struct trace_call){0};
}

static inline void trace_leave(const struct trace_call *call)
{
	if (__builtin_expect(call->name != NULL, 0))
		trace_call_end(call);
}

/** In an entry point: records a call, from here to the return. */
#define TRACE_CALL()                                                                                         \
	__attribute__((cleanup(trace_leave))) const struct trace_call trace_call_ = trace_enter(__func__)

/**
 * A command that is about to be submitted. Only while trace_is_on().
 * Return: for submit_begin_timed(), submit_commit_timed() and then trace_submitted(). NULL: the
 * command is not timed, because too many are under way.
 */
struct submit_timing *trace_launch(const struct launch *launch, const struct client_stream *stream);
/** @kind: FRMPS_COPY_* */
struct submit_timing *trace_copy(uint64_t bytes, uint32_t kind, const struct client_stream *stream);
struct submit_timing *trace_fill(uint64_t bytes, const struct client_stream *stream);
struct submit_timing *trace_graph(uint32_t nodes, const struct client_stream *stream);

/** The command was submitted, or not. NULL is nothing. Return: the same result. */
CUresult trace_submitted(struct submit_timing *timing, CUresult result);

/** Marks of the program's own: a range of the calling thread begins, its latest range ends, a
 * moment. Only while trace_is_on(). */
void trace_push(const char *name);
void trace_pop(void);
void trace_mark(const char *name);

/**
 * Begins if FRMPS_TRACE says so, with the first session; a later one joins. Part of session start.
 * @take_event: gives out the number of an event for the shim's own use; 0: there is none
 * @make_stream: makes a stream for the shim's own use; NULL: there is none
 */
void trace_start(uint32_t (*take_event)(void), struct client_stream *(*make_stream)(void));

#endif
