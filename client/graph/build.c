// See build.h. This file gives out the ids of the service's graphs.

#include "client/graph/build.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/graph/form.h"
#include "client/graph/memory.h"
#include "client/link/control.h"
#include "client/stage/copy.h"
#include "client/state/event.h"
#include "client/state/reclaim.h"
#include "client/state/ids.h"
#include "client/state/log.h"
#include "client/state/image.h"
#include "client/state/process.h"
#include "client/state/session.h"
#include "client/state/stream.h"
#include "client/state/uncancelled.h"
#include "client/submit/callback.h"
#include "client/submit/crossing.h"
#include "client/submit/operation.h"
#include "client/submit/submit.h"
#include "client/submit/wait.h"
#include "client/trace/trace.h"

/* Most commands of changes ahead of a launch: these use the stream's credit. */
#define AHEAD_COMMANDS 32u

struct graph_build {
	struct reclaim reclaim;
	struct session *session; /* that has its graphs */
	struct graph_form form;
	struct client_graph *graph;   /* freed with the build on the reclaim list; may be NULL */
	struct client_stream *stream; /* of the latest launch; NULL: none */
	uint64_t seq;		      /* of the launch, or of a later change sent ahead */
	uint32_t ahead;		      /* commands of such changes */
};

static uint64_t id_words[FRMPS_GRAPH_IDS / 64];
static struct ids ids = IDS_INIT(id_words);

/* ---- the service's graphs ---- */

static CUresult send_description(struct graph_step *step, uint32_t id)
{
	struct wire_message request = {.type = WIRE_MAKE_GRAPH};
	struct control_answer *answer = control_answer_new();
	struct image image = {.fd = -1};
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

	request.graph = (struct wire_graph){.graph = id, .bytes = step->device.bytes};
	if (answer)
		r = image_copy(step->device.description, step->device.bytes, false, &image);
	if (r == CUDA_SUCCESS)
		r = image_send(&image, &request, &request.graph.file, answer);
	image_close(&image);
	control_answer_free(answer);
	return r;
}

/* A graph with a place that executors share may be changed. */
static void let_change(struct graph_step *step, uint32_t id)
{
	static _Atomic uint32_t serials;
	struct frmps_graph_head *head = (struct frmps_graph_head *)(void *)step->device.description;
	uint32_t serial;

	if (!shm_graph_place(&session_self()->connection.view.shape, id, step->device.bytes))
		return;
	do
		serial = ++serials;
	while (!serial);
	head->flags |= FRMPS_GRAPH_CHANGES;
	head->serial = serial;
	step->device.changes = true;
}

static CUresult send_graph(struct graph_step *step, bool changes)
{
	uint32_t id = ids_take(&ids);
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

	if (id && changes)
		let_change(step, id);
	if (id)
		r = send_description(step, id);

	if (r == CUDA_SUCCESS)
		step->device.graph = id;
	else if (id)
		ids_give(&ids, id);
	return r;
}

static void drop_graph(uint32_t id)
{
	struct wire_message request = {.type = WIRE_DROP_GRAPH};
	struct control_answer *answer = control_answer_new();

	request.graph.graph = id;
	if (answer && control_call(&request, answer) == CUDA_SUCCESS)
		ids_give(&ids, id);
	control_answer_free(answer);
}

/* ---- builds ---- */

static void build_free(struct graph_build *build)
{
	SESSION_SCOPE(build->session);
	struct graph_object *objects = NULL;

	for (uint32_t i = 0; i < build->form.count; ++i)
		if (build->form.steps[i].kind == STEP_DEVICE && build->form.steps[i].device.graph)
			drop_graph(build->form.steps[i].device.graph);
	form_deinit(&build->form);
	if (build->graph) {
		graph_enter();
		graph_free(build->graph, &objects);
		graph_leave();
		graph_objects_drop(objects, false);
	}
	free(build);
}

static bool is_over(const struct reclaim *reclaim)
{
	const struct graph_build *build = (const struct graph_build *)reclaim;

	if (!build->stream || wait_is_done(build->stream, build->seq))
		return true;
	/* After a fault no completion is known any more, but a host function or copy of the build
	 * may still run in this process. */
	return process_session_error(build->session) != CUDA_SUCCESS && callback_is_idle(build->session);
}

static struct reclaim_list pending = RECLAIM_LIST_INIT(is_over);

void build_reap(void)
{
	struct reclaim *reclaim;

	while ((reclaim = reclaim_take(&pending)))
		build_free((struct graph_build *)reclaim);
	graph_memory_reap();
}

/* Freed now or when its last launch is done. */
void build_retire(struct graph_build *build, struct client_graph *graph)
{
	build->graph = graph;
	/* A mark behind the launch makes its completion visible. */
	if (build->stream && !is_over(&build->reclaim))
		submit_mark(build->stream, build->seq);
	reclaim_add(&pending, &build->reclaim);
	build_reap();
}

CUresult build_new(const struct client_graph *graph, uint64_t flags, bool changes,
	struct graph_build **ret_build, struct graph_node **ret_bad)
{
	struct session *session = form_session(graph);
	SESSION_SCOPE(session ? session : session_self());
	uint32_t wire = flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY ? FRMPS_GRAPH_PRIORITIES : 0;
	struct graph_build *build = calloc(1, sizeof(*build));
	CUresult r;

	if (!build)
		return CUDA_ERROR_OUT_OF_MEMORY;
	build->session = session_self();
	r = form_make(graph, wire, &build->form, ret_bad);
	for (uint32_t i = 0; r == CUDA_SUCCESS && i < build->form.count; ++i)
		if (build->form.steps[i].kind == STEP_DEVICE)
			r = send_graph(&build->form.steps[i], changes);
	form_drop_descriptions(&build->form);
	if (r == CUDA_SUCCESS)
		*ret_build = build;
	else
		build_free(build);
	return r;
}

CUresult build_follows(struct graph_build *build, struct graph_node *node, bool *ret_follows)
{
	return form_follow(&build->form, node, ret_follows);
}

void build_follow(struct graph_build *build, const struct graph_build *former)
{
	build->stream = former->stream;
	build->seq = former->seq;
}

struct graph_build *build_rest(const struct graph_build *build)
{
	struct graph_build *rest = calloc(1, sizeof(*rest));

	if (rest)
		rest->session = build->session;
	if (rest)
		build_follow(rest, build);
	return rest;
}

/* ---- launching ---- */

static void run_copy(void *box)
{
	box_copy(box);
}

static CUresult launch_graph(struct client_stream *stream, uint32_t graph, uint32_t nodes)
{
	struct submit_timing *timing = trace_is_on() ? trace_graph(nodes, stream) : NULL;
	struct submit submit;
	CUresult r = submit_begin_timed(
		stream, FRMPS_OP_GRAPH_LAUNCH, sizeof(struct frmps_graph_launch), timing, &submit);

	if (r == CUDA_SUCCESS) {
		*(struct frmps_graph_launch *)submit.body = (struct frmps_graph_launch){.graph = graph};
		submit_commit_timed(&submit, timing, false);
	}
	return trace_submitted(timing, r);
}

/* Nodes that were changed since the latest launch. */
struct changes {
	struct graph_node *const *nodes;
	uint32_t count;
};

/* Changes of a step that fit a command. */
struct batch {
	uint32_t end; /* index behind the last change */
	uint32_t count, bytes;
};

static struct batch gather(const struct changes *changes, uint32_t step, uint32_t from)
{
	struct batch batch = {.end = from};

	for (; batch.end < changes->count; ++batch.end) {
		const struct graph_node *node = changes->nodes[batch.end];

		if (node->place.step != step)
			continue;
		if (batch.bytes + form_change_bytes(node) > FRMPS_CHANGES_MAX)
			break;
		batch.bytes += form_change_bytes(node);
		++batch.count;
	}
	return batch;
}

static uint32_t update_bytes(const struct batch *batch)
{
	return (uint32_t)sizeof(struct frmps_graph_update) + batch->bytes;
}

static void write_changes(struct frmps_graph_update *ret_update, uint32_t graph, uint32_t step,
	const struct changes *changes, uint32_t from, const struct batch *batch)
{
	struct frmps_graph_change *change = (struct frmps_graph_change *)(void *)(ret_update + 1);

	*ret_update = (struct frmps_graph_update){.graph = graph, .changes = batch->count};
	for (uint32_t i = from; i < batch->end; ++i) {
		const struct graph_node *node = changes->nodes[i];

		if (node->place.step != step)
			continue;
		form_write_change(node, change);
		change = (struct frmps_graph_change *)(void *)((uint8_t *)change + form_change_bytes(node));
	}
}

/* Sends as many changes of a step as fit a command, from *next on. */
static CUresult send_changes(struct client_stream *stream, uint32_t graph, uint32_t step,
	const struct changes *changes, uint32_t *next)
{
	struct batch batch = gather(changes, step, *next);
	struct submit submit;
	CUresult r = CUDA_SUCCESS;

	if (batch.count)
		r = submit_begin(stream, FRMPS_OP_GRAPH_UPDATE, update_bytes(&batch), &submit);
	if (r != CUDA_SUCCESS)
		return r;
	if (batch.count) {
		write_changes(submit.body, graph, step, changes, *next, &batch);
		submit_commit(&submit);
	}
	*next = batch.end;
	return CUDA_SUCCESS;
}

bool build_change_ahead(struct graph_build *build, struct graph_node *const *changed, uint32_t count)
{
	const struct changes changes = {changed, count};
	const struct graph_step *step = build->form.steps;
	struct batch batch = gather(&changes, 0, 0);
	struct submit submit;

	if (!build->stream || build->form.count != 1 || step->kind != STEP_DEVICE || batch.count != count ||
		build->ahead == AHEAD_COMMANDS)
		return false;
	if (!submit_try_own(build->stream, FRMPS_OP_GRAPH_UPDATE, update_bytes(&batch), build->seq, &submit))
		return false;
	write_changes(submit.body, step->device.graph, 0, &changes, 0, &batch);
	/* The first change wakes the executor while the program continues; the launch wakes the
	 * executor at the latest. */
	if (build->ahead++)
		submit_commit_quietly(&submit);
	else
		submit_commit_own(&submit);
	build->seq = submit.seq;
	return true;
}

static CUresult send_all_changes(
	struct client_stream *stream, uint32_t graph, uint32_t step, const struct changes *changes)
{
	CUresult r = CUDA_SUCCESS;
	uint32_t next = 0;

	while (r == CUDA_SUCCESS && next < changes->count)
		r = send_changes(stream, graph, step, changes, &next);
	return r;
}

static CUresult launch_step(struct client_stream *stream, struct graph_step *step)
{
	switch (step->kind) {
	case STEP_DEVICE:
		return launch_graph(stream, step->device.graph, step->device.nodes);
	case STEP_HOST:
		return callback_host_function(stream, step->host.fn, step->host.userData);
	case STEP_COPY:
		return callback_own_function(stream, run_copy, &step->copy);
	case STEP_FERRY:
		return copy_box(step->copy, stream, COPY_ASYNC);
	case STEP_RECORD:
		return event_record(step->event, stream);
	case STEP_WAIT:
		return event_wait_launched(step->event, stream);
	case STEP_BATCH:
		return operation_batch(stream, step->batch.count, step->batch.operations);
	}
	return CUDA_ERROR_UNKNOWN;
}

static CUresult launch_steps(struct graph_build *build, struct client_stream *stream,
	const struct changes *changes, bool *ret_begun)
{
	CUresult r = CUDA_SUCCESS;
	uint64_t last;

	for (uint32_t i = 0; r == CUDA_SUCCESS && i < build->form.count; ++i) {
		struct graph_step *step = &build->form.steps[i];

		if (step->kind == STEP_DEVICE)
			r = send_all_changes(stream, step->device.graph, i, changes);
		if (r == CUDA_SUCCESS)
			r = launch_step(stream, step);
		*ret_begun |= r == CUDA_SUCCESS;
	}
	last = word_acquire(&stream->last);
	/* If no step was submitted, the changes sent ahead are the latest. */
	if (build->stream != stream || last > build->seq)
		build->seq = last;
	build->stream = stream;
	build->ahead = 0;
	return r;
}

/* If an event of the graph is destroyed, no part of the graph runs. */
static bool has_events(const struct graph_form *form)
{
	bool has = true;

	for (uint32_t i = 0; has && i < form->count; ++i)
		if (form->steps[i].kind == STEP_RECORD || form->steps[i].kind == STEP_WAIT)
			has = event_is_live(form->steps[i].event);
	return has;
}

CUresult build_launch(struct graph_build *build, struct client_stream *stream,
	struct graph_node *const *changed, uint32_t count, bool *ret_begun)
{
	const struct changes changes = {changed, count};
	bool claims = build->form.count > 1;
	/* The latest launch may have been on another stream. */
	CUresult r = has_events(&build->form) ? crossing_await(stream, build->stream, build->seq)
					      : CUDA_ERROR_INVALID_HANDLE;

	*ret_begun = false;
	if (r == CUDA_SUCCESS && stream->session != build->session) {
		client_log(
			CLIENT_LOG_ERROR, "a graph is launched in a stream of another device than its own");
		r = CUDA_ERROR_NOT_SUPPORTED;
	}
	/* A launch counts as a single command of the stream for the program. */
	if (r == CUDA_SUCCESS && claims)
		r = submit_claim(stream);
	/* On an error the former launch is still the latest. */
	if (r != CUDA_SUCCESS)
		return r;
	r = launch_steps(build, stream, &changes, ret_begun);
	if (claims)
		submit_release(stream);
	return r;
}
