// Stream capture: while a stream captures, the commands that the program submits to the stream
// become nodes of a graph. A capture begins on its origin stream; another stream joins the capture
// by waiting for an event that was recorded in it, and leaves when the capture ends. Each stream of
// a capture has the nodes that its next node waits for.
//
//           begin           forbidden call, end on another stream       end on the origin
//   (none) ───────► ACTIVE ──────────────────────────────────► INVALIDATED ─────────────► (none)
//                     └──────────── end on the origin: the graph, or why not ───────────────┘
//
// A graph only grows while a capture writes into it, so the nodes that the streams have stay valid.
// A child that is captured into may be in a graph of another capture: if that graph is freed, this
// capture becomes invalid.
//
// The legacy default stream never captures, that of a green context may; while a blocking
// stream captures, every use of the legacy stream ends that capture.
//
// The inline functions cost a load on the path of every command; all others take the graph lock
// themselves. Any thread.

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

/* Number of captures that forbid unsafe calls to some thread. */
extern word32 capture_strict;
/* Number of all captures. */
extern word32 capture_count;

/**
 * True if a command for the stream must not go to the ring: the stream captures, or must not be
 * used now.
 */
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

/* Commands of a stream for which capture_is_on() is true. Return, beside the documented errors:
 * CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT (the legacy stream),
 * and the errors of adding the node. */

/** Adds the stream's next node. Takes the parameters over. The graph lock is not held. */
CUresult capture_add(struct client_stream *stream, struct graph_params *params);

CUresult capture_launch(struct client_stream *stream, const struct launch *launch);
CUresult capture_copy(const struct box *box, struct client_stream *stream, unsigned int how);
CUresult capture_set(const struct copy_fill *fill, struct client_stream *stream, unsigned int how);
CUresult capture_host(struct client_stream *stream, CUhostFn fn, void *user);
CUresult capture_batch(
	struct client_stream *stream, unsigned int count, const CUstreamBatchMemOpParams *operations);
/** Allocates memory in stream order. */
CUresult capture_alloc(struct client_stream *stream, uint64_t bytes, CUdeviceptr *ret_address);
CUresult capture_free(struct client_stream *stream, CUdeviceptr address);
/** Adds a node that records or waits for an event when the graph runs. */
CUresult capture_external(struct client_stream *stream, CUgraphNodeType type, CUevent event);
/**
 * Ends the capture because of a call that no graph can contain.
 * CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.
 */
CUresult capture_refuse(struct client_stream *stream);

/** Ends the captures of blocking streams if the stream is the legacy one:
 * CUDA_ERROR_STREAM_CAPTURE_IMPLICIT. */
CUresult capture_check_legacy(struct client_stream *stream);

/** A call of which there is no node has failed: that ends the capture. Return: code */
CUresult capture_fail(struct client_stream *stream, CUresult code);

/** Records an event on a stream that captures. @captured: the event's word (state/event.c) */
CUresult capture_record(struct client_stream *stream, struct captured **captured);
/**
 * A stream waits for an event, and the stream or the event is in a capture.
 * @captured: the event's word (state/event.c); NULL there: the event is not in a capture
 * @recorded: false if the event was never recorded
 * Return: CUDA_ERROR_STREAM_CAPTURE_ISOLATION, CUDA_ERROR_STREAM_CAPTURE_MERGE;
 * CUDA_ERROR_INVALID_VALUE: the event's capture has ended
 */
CUresult capture_wait(struct client_stream *stream, struct captured **captured, bool recorded);
/** The event is recorded anew or destroyed. */
void capture_forget(struct captured **captured);
/**
 * A query of such an event, or a wait for it, ends its capture. CUDA_ERROR_CAPTURED_EVENT, or
 * CUDA_ERROR_INVALID_VALUE if the capture has ended.
 */
CUresult capture_refuse_event(struct captured **captured);

/**
 * Begins a capture. CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (legacy stream), CUDA_ERROR_ILLEGAL_STATE
 * (the stream captures already).
 * @graph: NULL: a new graph; else the capture adds to this graph, behind these nodes
 */
CUresult capture_begin(struct client_stream *stream, CUstreamCaptureMode mode, CUgraph graph,
	const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count);
/**
 * Ends the capture, with a graph or without.
 * Return: CUDA_ERROR_ILLEGAL_STATE, and CUDA_ERROR_STREAM_CAPTURE_…: WRONG_THREAD, INVALIDATED,
 * UNJOINED; after UNMATCHED (the stream is not the origin) the capture still exists, and is
 * invalid.
 */
CUresult capture_end(struct client_stream *stream, CUgraph *ret_graph);
/**
 * The stream is being destroyed. The origin ends its capture. Another stream leaves; its captured
 * nodes must still come before the end of the origin.
 */
void capture_leave(struct client_stream *stream);

/* State of a stream's capture; arrays are valid until the stream's next call. */
struct capture_info {
	CUstreamCaptureStatus status;
	uint64_t id;
	CUgraph graph;
	const CUgraphNode *nodes;
	const CUgraphEdgeData *data;
	size_t count;
};
/** CUDA_ERROR_STREAM_CAPTURE_IMPLICIT for the legacy stream while a blocking stream captures. */
CUresult capture_query(struct client_stream *stream, struct capture_info *ret_info);
/** Replaces the dependencies of the next node, or adds to them. */
CUresult capture_update(struct client_stream *stream, const CUgraphNode *nodes, const CUgraphEdgeData *data,
	size_t count, bool replaces);

#endif
