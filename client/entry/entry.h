// The form of an entry point. Every exported function is marked CUDA_EXPORT (api.h gives the same
// visibility to the functions that it declares) and only makes a checked call of a plain static or
// shared function. Nothing else of the library is visible from outside.

#ifndef FRMPS_CLIENT_ENTRY_ENTRY_H
#define FRMPS_CLIENT_ENTRY_ENTRY_H

#include <stdbool.h>

#include "client/entry/api.h"
#include "client/graph/capture.h"
#include "client/state/process.h"
#include "client/state/stream.h"
#include "client/submit/wait.h"
#include "client/trace/trace.h"

/* Exported, but references from inside the library bind to its own function. */
#define CUDA_EXPORT __attribute__((visibility("protected")))

/*
 * Both forms of an entry point that uses a stream: in the plain form stream 0 is the legacy default
 * stream; in the form with a suffix (_ptsz, _ptds) stream 0 is the calling thread's own.
 *
 *   ENTRY_PAIR(cuStreamQuery, _ptsz, stream_query, (CUstream stream), stream)
 *
 * calls stream_query(stream, per_thread). The body is an ordinary function with a last parameter,
 * bool per_thread.
 */
#define ENTRY_PAIR(name, suffix, body, parameters, ...)                                                      \
	ENTRY_PAIR_BY(ENTRY_TRACED, name, suffix, body, parameters, __VA_ARGS__)
/* The same where the body tells the trace itself, or has nothing to tell. */
#define ENTRY_PAIR_UNTRACED(name, suffix, body, parameters, ...)                                             \
	ENTRY_PAIR_BY(ENTRY_RETURN, name, suffix, body, parameters, __VA_ARGS__)

#define ENTRY_PAIR_BY(RETURN, name, suffix, body, parameters, ...)                                           \
	CUDA_EXPORT CUresult name parameters                                                                 \
	{                                                                                                    \
		RETURN(body(__VA_ARGS__, false));                                                            \
	}                                                                                                    \
	CUDA_EXPORT CUresult name##suffix parameters                                                         \
	{                                                                                                    \
		RETURN(body(__VA_ARGS__, true));                                                             \
	}
#define ENTRY_RETURN(call) return call
#define ENTRY_TRACED(call)                                                                                   \
	TRACE_CALL();                                                                                        \
	return call

/* True for the handle of a stream that the program made. Such a stream belongs to a context; the
 * default streams are those of the current context. */
static inline bool stream_has_context(CUstream handle)
{
	return handle && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD;
}

/* First line of entry points on a stream. */
static inline CUresult enter_of_stream(CUstream handle)
{
	bool has_context = stream_has_context(handle);

	return process_enter_object(has_context, has_context ? stream_session(handle) : NULL);
}

/* First lines of entry points on a stream. */
static inline CUresult enter_stream(CUstream handle, bool per_thread, struct client_stream **ret_stream)
{
	CUresult r = enter_of_stream(handle);

	return r == CUDA_SUCCESS ? stream_resolve(handle, per_thread, ret_stream) : r;
}

/* The same of questions about the stream, not about its work: the legacy stream has no answer while
 * a blocking stream captures. */
static inline CUresult enter_facts(CUstream handle, bool per_thread, struct client_stream **ret_stream)
{
	CUresult r = enter_stream(handle, per_thread, ret_stream);

	return r == CUDA_SUCCESS && capture_is_on(*ret_stream) ? capture_check_legacy(*ret_stream) : r;
}

/* Last line of launches. */
static inline CUresult leave_launch(CUresult r, struct client_stream *stream)
{
	if (__builtin_expect(!wait_launches, 1) || r != CUDA_SUCCESS || capture_is_on(stream))
		return r;
	return wait_launched(stream);
}

/* Behind other first lines: programs must not call the entry point while a stream captures
 * (graph/capture.h). */
static inline CUresult also_unsafe(CUresult r)
{
	return r == CUDA_SUCCESS ? capture_unsafe() : r;
}

/* First lines of entry points that programs must not call then. */
static inline CUresult enter_unsafe(void)
{
	return also_unsafe(process_enter_context());
}

/* The same for calls that give memory back: a thread needs no current context for that. */
static inline CUresult enter_release(void)
{
	return also_unsafe(process_enter_object(true, NULL));
}

#endif
