// Stream capture: while a stream captures, what the program submits to it becomes nodes of a graph.
// A capture begins on its origin stream; another stream joins it by waiting for an event that was
// recorded in it, and leaves it when the capture ends. Each stream of a capture knows the nodes
// that its next one waits for.
//
//           begin           forbidden call, end on another stream       end on the origin
//   (none) ───────► ACTIVE ──────────────────────────────────► INVALIDATED ─────────────► (none)
//                     └──────────── end on the origin: the graph, or why not ───────────────┘
//
// A graph only grows while it is captured into, so what the streams know stays true. A child that
// is captured into may be in a graph that another capture makes: if that is freed, this capture is
// invalid.
//
// The legacy default stream never captures; while a blocking stream does, every use of it ends that
// capture.
//
// The inline looks cost a load on the way of every command; everything else takes the graph lock
// itself. Any thread.

#ifndef FRMPS_CLIENT_GRAPH_CAPTURE_H
#define FRMPS_CLIENT_GRAPH_CAPTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/state/stream.h"
#include "protocol/cuda_abi.h"
#include "shm/order.h"

struct box;
struct captured;
struct copy_fill;
struct graph_params;
struct launch;

/* Captures that forbid unsafe calls to somebody. */
extern word32 capture_strict;
/* All captures. */
extern word32 capture_count;

/** Whether a command for the stream must not go to the ring: it captures, or may not be used
 * now. */
static inline bool capture_is_on(const struct client_stream *stream)
{
	return __builtin_expect(word_relaxed((word32 *)&stream->capturing) != 0, 0);
}

CUresult capture_check_unsafe(void);

/** First line of calls that may have effects on streams that capture.
 * CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.
 */
static inline CUresult capture_unsafe(void)
{
	return __builtin_expect(word_relaxed(&capture_strict) == 0, 1) ? CUDA_SUCCESS
								       : capture_check_unsafe();
}

/** First line of calls on all streams at once: there may be no capture at all. */
CUresult capture_check_all(void);

static inline CUresult capture_none(void)
{
	return __builtin_expect(word_relaxed(&capture_count) == 0, 1) ? CUDA_SUCCESS : capture_check_all();
}

/* Commands of a stream for which capture_is_on(). Return, beside what is said:
 * CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT (the legacy stream),
 * and what adding the node returned. */

/** The stream's next node. Takes the parameters over. The graph lock is not held. */
CUresult capture_add(struct client_stream *stream, struct graph_params *params);

CUresult capture_launch(struct client_stream *stream, const struct launch *launch);
CUresult capture_copy(const struct box *box, struct client_stream *stream, unsigned int how);
CUresult capture_set(const struct copy_fill *fill, struct client_stream *stream, unsigned int how);
CUresult capture_host(struct client_stream *stream, CUhostFn fn, void *user);
CUresult capture_batch(
	struct client_stream *stream, unsigned int count, const CUstreamBatchMemOpParams *operations);
/** Memory in stream order. */
CUresult capture_alloc(struct client_stream *stream, uint64_t bytes, CUdeviceptr *ret_address);
CUresult capture_free(struct client_stream *stream, CUdeviceptr address);
/** A node that records or waits for an event when the graph runs. */
CUresult capture_external(struct client_stream *stream, CUgraphNodeType type, CUevent event);
/** A call that has no place in a capture: ends it. CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED. */
CUresult capture_refuse(struct client_stream *stream);

/** Records an event on a stream that captures. @captured: the event's word (state/event.c) */
CUresult capture_record(struct client_stream *stream, struct captured **captured);
/**
 * A stream waits for an event, and one of them is in a capture.
 * @captured: the event's word (state/event.c); NULL there: the event is not in a capture
 * @recorded: it was recorded at all
 * Return: CUDA_ERROR_STREAM_CAPTURE_ISOLATION, CUDA_ERROR_STREAM_CAPTURE_MERGE;
 * CUDA_ERROR_INVALID_VALUE: the event's capture is over
 */
CUresult capture_wait(struct client_stream *stream, struct captured **captured, bool recorded);
/** The event is recorded anew or destroyed. */
void capture_forget(struct captured **captured);
/** A query of, or a wait for, such an event: ends its capture. CUDA_ERROR_CAPTURED_EVENT, or
 * CUDA_ERROR_INVALID_VALUE when that is over. */
CUresult capture_refuse_event(struct captured **captured);

/** CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (legacy stream), CUDA_ERROR_ILLEGAL_STATE (captures
 * already).
 * @graph: NULL: a new one, else into this one, behind these nodes */
CUresult capture_begin(struct client_stream *stream, CUstreamCaptureMode mode, CUgraph graph,
	const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count);
/**
 * Ends the capture, with a graph or without.
 * Return: CUDA_ERROR_ILLEGAL_STATE, and CUDA_ERROR_STREAM_CAPTURE_…: WRONG_THREAD, INVALIDATED,
 * UNJOINED; after UNMATCHED (the stream is not the origin) it is still there, and invalid.
 */
CUresult capture_end(struct client_stream *stream, CUgraph *ret_graph);
/** The stream is being destroyed. The origin takes its capture along. Another stream leaves, and
 * what it has captured must still come before the end of the origin. */
void capture_leave(struct client_stream *stream);

/* What is known of a stream's capture; arrays are valid until the stream's next call. */
struct capture_info {
	CUstreamCaptureStatus status;
	uint64_t id;
	CUgraph graph;
	const CUgraphNode *nodes;
	const CUgraphEdgeData *data;
	size_t count;
};
/** CUDA_ERROR_STREAM_CAPTURE_IMPLICIT for the legacy stream while a blocking one captures. */
CUresult capture_query(struct client_stream *stream, struct capture_info *ret_info);
/** Replaces what the next node waits for, or adds to it. */
CUresult capture_update(struct client_stream *stream, const CUgraphNode *nodes, const CUgraphEdgeData *data,
	size_t count, bool replaces);

#endif
