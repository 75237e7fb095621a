// See capture.h. Everything here is guarded by the graph lock; a stream's `capturing` is written
// inside it.

#include "client/graph/capture.h"

#include <stdlib.h>

#include "client/graph/graph.h"
#include "client/graph/memory.h"
#include "client/graph/params.h"
#include "client/graph/frontier.h"
#include "client/state/session.h"
#include "client/state/stream_attribute.h"
#include "client/state/thread.h"
#include "client/submit/encode.h"

/* stream->capturing */
enum { OFF, CAPTURES, IMPLICIT };

struct capture {
	struct capture *next;
	uint64_t id;
	CUstreamCaptureMode mode;
	const struct thread *thread; /* the thread that began the capture; never dereferenced */
	struct client_graph *graph;  /* NULL: freed with the graph around it; then the capture is invalid */
	bool owns_graph;	     /* until the program gets the graph */
	bool invalid;
	struct client_stream *origin;
};

struct capture_stream {
	struct capture *capture;
	struct frontier frontier;
	/* The stream's own latest node, as long as only stream order makes the next node wait for
	 * it. */
	CUgraphNode latest;
};

/* An event that was recorded in a capture, which may have ended. */
struct captured {
	uint64_t id;
	struct frontier frontier;
};

word32 capture_strict;
word32 capture_count;

static struct capture *captures;
static struct capture_stream streams[SHM_STREAMS];
static uint64_t latest_id;

/* ---- captures ---- */

static struct capture_stream *of(const struct client_stream *stream)
{
	return &streams[stream->slot];
}

static bool is_legacy(const struct client_stream *stream)
{
	return stream == stream->session->streams.legacy;
}

static struct capture *find(uint64_t id)
{
	struct capture *capture = captures;

	while (capture && capture->id != id)
		capture = capture->next;
	return capture;
}

static bool is_blocking(const struct capture *capture)
{
	uint32_t used = stream_slots_used();

	for (uint32_t slot = 0; slot < used; ++slot)
		if (streams[slot].capture == capture && stream_slot(slot)->blocking)
			return true;
	return false;
}

/* A capture has streams of one session only. */
static bool has_blocking(const struct session *session)
{
	bool has = false;

	for (const struct capture *c = captures; c && !has; c = c->next)
		has = !c->invalid && c->origin->session == session && is_blocking(c);
	return has;
}

/* Updates the words that other threads read without the lock. */
static void publish(void)
{
	uint32_t strict = 0, count = 0;

	for (const struct capture *c = captures; c; c = c->next) {
		strict += !c->invalid && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
		count += !c->invalid;
	}
	word_set(&capture_strict, strict);
	word_set(&capture_count, count);
	SESSION_FOREACH (session)
		word_set(&session->streams.legacy->capturing, has_blocking(session) ? IMPLICIT : OFF);
}

static void invalidate(struct capture *capture)
{
	capture->invalid = true;
	publish();
}

static void invalidate_blocking(const struct session *session)
{
	for (struct capture *c = captures; c; c = c->next)
		c->invalid |= c->origin->session == session && is_blocking(c);
	publish();
}

static void join(struct client_stream *stream, struct capture *capture)
{
	of(stream)->capture = capture;
	of(stream)->frontier.count = 0;
	of(stream)->latest = NULL;
	word_set(&stream->capturing, CAPTURES);
	publish();
}

/* A graph is about to be freed: captures into the children of its nodes lose their graph. */
static void orphan(const struct client_graph *graph)
{
	for (struct capture *c = captures; c; c = c->next) {
		if (!c->graph || !graph_is_inside(c->graph, graph))
			continue;
		c->invalid = true;
		c->graph = NULL;
	}
}

/* Its nodes are as any others from now on. */
static void release(struct client_graph *graph)
{
	graph->capturing = false;
	for (uint32_t i = 0; i < graph->count; ++i)
		graph->nodes[i]->unjoined = false;
}

/* Removes a capture from all its streams, and frees a graph that the program does not get. */
static void finish(struct capture *capture, struct graph_object **ret_objects)
{
	struct capture **at = &captures;
	uint32_t used = stream_slots_used();

	for (uint32_t slot = 0; slot < used; ++slot) {
		if (streams[slot].capture != capture)
			continue;
		streams[slot].capture = NULL;
		word_set(&stream_slot(slot)->capturing, OFF);
	}
	while (*at != capture)
		at = &(*at)->next;
	*at = capture->next;
	if (capture->graph)
		release(capture->graph);
	if (capture->owns_graph) {
		orphan(capture->graph);
		graph_free(capture->graph, ret_objects);
	}
	free(capture);
	publish();
}

/* The capture that a command of the stream goes into. */
static CUresult enter(struct client_stream *stream, struct capture **ret_capture)
{
	struct capture *capture = of(stream)->capture;

	if (is_legacy(stream)) {
		invalidate_blocking(stream->session);
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	if (!capture)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	*ret_capture = capture;
	return CUDA_SUCCESS;
}

/* A lost command or dependency would be missing in the graph. Return: r */
static CUresult confirm(struct capture *capture, CUresult r)
{
	if (r != CUDA_SUCCESS)
		invalidate(capture);
	return r;
}

/* Makes the stream's next node wait for these nodes explicitly, not only by stream order. */
static CUresult depend(
	struct capture_stream *s, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count)
{
	for (size_t i = 0; i < count; ++i)
		if (nodes[i] == s->latest)
			s->latest = NULL;
	return confirm(s->capture, frontier_add_all(&s->frontier, nodes, data, count));
}

/* A kernel that may begin before the preceding kernel of the stream has ended says so in that edge.
 * Other edges stay as they are: nodes that the program waited for by an event must end before the
 * kernel begins. */
static void take_programmatic(struct capture_stream *s, struct graph_params *params)
{
	const struct graph_node *latest = graph_find_node(s->latest);

	if (params->type != CU_GRAPH_NODE_TYPE_KERNEL ||
		!params_attribute_take(params, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION))
		return;
	if (!latest || latest->params.type != CU_GRAPH_NODE_TYPE_KERNEL)
		return;
	for (size_t i = 0; i < s->frontier.count; ++i) {
		if (s->frontier.nodes[i] != s->latest)
			continue;
		s->frontier.data[i].from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
		s->frontier.data[i].type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
	}
}

/* A kernel keeps what the stream that captures says of its kernels, unless its launch says it. */
static CUresult take_attributes(const struct client_stream *stream, struct graph_params *params)
{
	static const CUlaunchAttributeID taken[] = {CU_LAUNCH_ATTRIBUTE_PRIORITY,
		CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
		CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP};
	CUresult r = CUDA_SUCCESS;

	if (params->type != CU_GRAPH_NODE_TYPE_KERNEL)
		return CUDA_SUCCESS;
	for (size_t i = 0; r == CUDA_SUCCESS && i < sizeof(taken) / sizeof(taken[0]); ++i) {
		CUlaunchAttributeValue value = {{0}};

		if (stream_attribute_differs(stream, taken[i]) &&
			stream_attribute_get(stream, taken[i], &value))
			r = params_attribute_default(params, taken[i], &value);
	}
	return r;
}

static CUresult add(struct client_stream *stream, struct graph_params *params)
{
	struct capture_stream *s = of(stream);
	struct capture *capture;
	struct graph_node *node;
	CUresult r = enter(stream, &capture);

	if (r == CUDA_SUCCESS)
		r = confirm(capture, take_attributes(stream, params));
	if (r != CUDA_SUCCESS) {
		graph_drop_params(params);
		return r;
	}
	take_programmatic(s, params);
	r = graph_add(capture->graph, params, s->frontier.nodes, s->frontier.data, s->frontier.count, &node);
	if (r == CUDA_SUCCESS) {
		node->unjoined = true;
		s->frontier.count = 0;
		s->latest = graph_node_handle(node);
		r = frontier_add(&s->frontier, s->latest, NULL);
	}
	return confirm(capture, r);
}

CUresult capture_add(struct client_stream *stream, struct graph_params *params)
{
	CUresult r;

	graph_enter();
	r = add(stream, params);
	graph_leave();
	return r;
}

CUresult capture_refuse(struct client_stream *stream)
{
	struct capture *capture;
	CUresult r;

	graph_enter();
	r = enter(stream, &capture);
	if (r == CUDA_SUCCESS) {
		invalidate(capture);
		r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	graph_leave();
	return r;
}

CUresult capture_check_legacy(struct client_stream *stream)
{
	struct capture *capture;
	CUresult r = CUDA_SUCCESS;

	graph_enter();
	if (is_legacy(stream) && capture_is_on(stream))
		r = enter(stream, &capture);
	graph_leave();
	return r;
}

CUresult capture_fail(struct client_stream *stream, CUresult code)
{
	struct capture *capture;

	graph_enter();
	if (enter(stream, &capture) == CUDA_SUCCESS)
		invalidate(capture);
	graph_leave();
	return code;
}

/* ---- events ---- */

static CUresult record(
	const struct client_stream *stream, const struct capture *capture, struct captured **captured)
{
	const struct frontier *frontier = &of(stream)->frontier;
	struct captured *c = *captured ? *captured : calloc(1, sizeof(*c));

	if (!c)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*captured = c;
	c->id = capture->id;
	c->frontier.count = 0;
	return frontier_add_all(&c->frontier, frontier->nodes, frontier->data, frontier->count);
}

CUresult capture_record(struct client_stream *stream, struct captured **captured)
{
	struct capture *capture;
	CUresult r;

	graph_enter();
	r = enter(stream, &capture);
	if (r == CUDA_SUCCESS)
		r = confirm(capture, record(stream, capture, captured));
	graph_leave();
	return r;
}

/* Waits for an event that was recorded in a capture. */
static CUresult wait_captured(struct client_stream *stream, const struct captured *captured)
{
	struct capture *theirs = find(captured->id), *mine = of(stream)->capture;

	if (is_legacy(stream) && theirs) {
		invalidate(theirs);
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	if (mine && mine->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (!theirs) {
		if (mine)
			invalidate(mine);
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (theirs->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	/* A graph is of one device. */
	if (stream->session != theirs->origin->session) {
		invalidate(theirs);
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	if (mine && mine != theirs) {
		invalidate(mine);
		invalidate(theirs);
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	if (!mine)
		join(stream, theirs);
	return depend(
		of(stream), captured->frontier.nodes, captured->frontier.data, captured->frontier.count);
}

/* A stream that captures waits for an event from outside. */
static CUresult wait_outside(struct client_stream *stream, bool recorded)
{
	struct capture *capture;
	CUresult r = enter(stream, &capture);

	if (r != CUDA_SUCCESS || !recorded)
		return r;
	invalidate(capture);
	return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}

CUresult capture_wait(struct client_stream *stream, struct captured **captured, bool recorded)
{
	CUresult r;

	graph_enter();
	r = captured && *captured ? wait_captured(stream, *captured) : wait_outside(stream, recorded);
	graph_leave();
	return r;
}

void capture_forget(struct captured **captured)
{
	graph_enter();
	if (*captured) {
		frontier_deinit(&(*captured)->frontier);
		free(*captured);
		*captured = NULL;
	}
	graph_leave();
}

CUresult capture_refuse_event(struct captured **captured)
{
	struct capture *capture;

	graph_enter();
	capture = *captured ? find((*captured)->id) : NULL;
	if (capture)
		invalidate(capture);
	graph_leave();
	return capture ? CUDA_ERROR_CAPTURED_EVENT : CUDA_ERROR_INVALID_VALUE;
}

/* ---- permissions of other calls ---- */

/* See cuThreadExchangeStreamCaptureMode. */
static bool forbids(const struct capture *capture, const struct thread *thread)
{
	if (capture->invalid || capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED ||
		thread->capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return false;
	if (capture->thread == thread)
		return true;
	return capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
	       thread->capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult capture_check_unsafe(void)
{
	const struct thread *thread = thread_self();
	CUresult r = CUDA_SUCCESS;

	graph_enter();
	for (struct capture *c = captures; c; c = c->next) {
		if (!forbids(c, thread))
			continue;
		c->invalid = true;
		r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	publish();
	graph_leave();
	return r;
}

CUresult capture_check_all(void)
{
	CUresult r = CUDA_SUCCESS;

	graph_enter();
	for (struct capture *c = captures; c; c = c->next) {
		if (!c->invalid)
			r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		c->invalid = true;
	}
	publish();
	graph_leave();
	return r;
}

/* ---- begin and end ---- */

static CUresult start(struct client_stream *stream, CUstreamCaptureMode mode, struct client_graph *graph,
	struct capture **ret_capture)
{
	struct capture *capture = calloc(1, sizeof(*capture));
	CUresult r = capture ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	if (r == CUDA_SUCCESS && !graph)
		r = graph_new(&capture->graph);
	if (r != CUDA_SUCCESS) {
		free(capture);
		return r;
	}
	capture->owns_graph = !graph;
	if (graph)
		capture->graph = graph;
	capture->graph->capturing = true;
	capture->id = ++latest_id;
	capture->mode = mode;
	capture->thread = thread_self();
	capture->origin = stream;
	capture->next = captures;
	captures = capture;
	join(stream, capture);
	*ret_capture = capture;
	return CUDA_SUCCESS;
}

static bool are_nodes_of(const struct client_graph *graph, const CUgraphNode *nodes, size_t count)
{
	for (size_t i = 0; i < count; ++i) {
		const struct graph_node *node = graph_find_node(nodes[i]);

		if (!node || node->graph != graph)
			return false;
	}
	return true;
}

static CUresult begin(struct client_stream *stream, CUstreamCaptureMode mode, CUgraph handle,
	const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count)
{
	struct client_graph *graph = handle ? graph_find(handle) : NULL;
	struct capture *capture;
	CUresult r;

	if (of(stream)->capture || (graph && graph->capturing))
		return CUDA_ERROR_ILLEGAL_STATE;
	if ((handle && !graph) || (count && (!nodes || !graph || !are_nodes_of(graph, nodes, count))))
		return CUDA_ERROR_INVALID_VALUE;
	r = start(stream, mode, graph, &capture);
	if (r != CUDA_SUCCESS || !count)
		return r;
	r = depend(of(stream), nodes, data, count);
	/* The graph belongs to the program. */
	if (r != CUDA_SUCCESS)
		finish(capture, NULL);
	return r;
}

CUresult capture_begin(struct client_stream *stream, CUstreamCaptureMode mode, CUgraph graph,
	const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count)
{
	CUresult r;

	if ((unsigned int)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	if (is_legacy(stream))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	graph_enter();
	r = begin(stream, mode, graph, nodes, data, count);
	graph_leave();
	return r;
}

/* CUDA_ERROR_STREAM_CAPTURE_UNJOINED unless each node that a stream captured comes before the end
 * of the origin or before another node, or was taken out of the nodes that a stream's next one
 * depends on, as NCCL does. */
static CUresult check_joined(const struct capture *capture)
{
	const struct frontier *ends = &of(capture->origin)->frontier;
	const struct client_graph *graph = capture->graph;

	if (!graph_mark_before(graph, ends->nodes, ends->count))
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (uint32_t i = 0; i < graph->count; ++i)
		if (graph->nodes[i]->unjoined && !graph->nodes[i]->mark && !graph->nodes[i]->behind.count)
			return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	return CUDA_SUCCESS;
}

/* @ret_objects: of a graph that the program does not get */
static CUresult end(struct client_stream *stream, CUgraph *ret_graph, struct graph_object **ret_objects)
{
	struct capture *capture = of(stream)->capture;
	CUresult r;

	if (!capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (capture->origin != stream) {
		invalidate(capture);
		return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	}
	if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != thread_self())
		r = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	else if (capture->invalid)
		r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else
		r = check_joined(capture);
	*ret_graph = r == CUDA_SUCCESS ? graph_handle(capture->graph) : NULL;
	if (r == CUDA_SUCCESS)
		capture->owns_graph = false;
	finish(capture, ret_objects);
	return r;
}

CUresult capture_end(struct client_stream *stream, CUgraph *ret_graph)
{
	struct graph_object *objects = NULL;
	CUresult r;

	if (is_legacy(stream))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	graph_enter();
	r = end(stream, ret_graph, &objects);
	graph_leave();
	graph_objects_drop(objects, false);
	graph_memory_reap();
	return r;
}

/* Nodes that the stream captured stay in the graph. */
static void leave(struct client_stream *stream)
{
	of(stream)->capture = NULL;
	word_set(&stream->capturing, OFF);
	publish();
}

void capture_leave(struct client_stream *stream)
{
	struct graph_object *objects = NULL;
	struct capture *capture;

	graph_enter();
	capture = of(stream)->capture;
	if (capture && capture->origin == stream)
		finish(capture, &objects);
	else if (capture)
		leave(stream);
	graph_leave();
	/* The next graph_memory_reap() frees the memory of the nodes: this call must not wait for
	 * the device. */
	graph_objects_drop(objects, false);
}

/* ---- questions ---- */

CUresult capture_query(struct client_stream *stream, struct capture_info *ret_info)
{
	const struct capture_stream *s = of(stream);

	*ret_info = (struct capture_info){.status = CU_STREAM_CAPTURE_STATUS_NONE};
	if (!capture_is_on(stream))
		return CUDA_SUCCESS;
	if (is_legacy(stream))
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	graph_enter();
	if (s->capture && s->capture->invalid)
		ret_info->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
	else if (s->capture)
		*ret_info = (struct capture_info){CU_STREAM_CAPTURE_STATUS_ACTIVE, s->capture->id,
			graph_handle(s->capture->graph), s->frontier.nodes, s->frontier.data,
			s->frontier.count};
	graph_leave();
	return CUDA_SUCCESS;
}

static CUresult update(struct client_stream *stream, const CUgraphNode *nodes, const CUgraphEdgeData *data,
	size_t count, bool replaces)
{
	struct capture_stream *s = of(stream);

	if (!s->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (s->capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (!are_nodes_of(s->capture->graph, nodes, count))
		return CUDA_ERROR_INVALID_VALUE;
	if (replaces) {
		for (size_t i = 0; i < s->frontier.count; ++i)
			graph_find_node(s->frontier.nodes[i])->unjoined = false;
		s->frontier.count = 0;
		s->latest = NULL;
	}
	return depend(s, nodes, data, count);
}

CUresult capture_update(struct client_stream *stream, const CUgraphNode *nodes, const CUgraphEdgeData *data,
	size_t count, bool replaces)
{
	CUresult r;

	if (count && !nodes)
		return CUDA_ERROR_INVALID_VALUE;
	graph_enter();
	r = update(stream, nodes, data, count, replaces);
	graph_leave();
	return r;
}
