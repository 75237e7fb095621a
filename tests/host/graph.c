// Graphs: a list of nodes, which a launch queues on its stream one after the other. Every edge
// leads to an earlier node, so that order is allowed by the edges. Bodies of conditions are queues
// of their own, which a command of the stream processes. Two launches on different streams are
// separated by a record after each.

#include <stdlib.h>
#include <string.h>

#include "tests/host/host.h"

struct backend_graph {
	struct backend_event *latest; /* behind the latest launch */
	uint32_t count;
	uint64_t sms;
	struct backend_node nodes[];
};

static CUresult check_node(const struct backend_node *node)
{
	if (node->op == FRMPS_OP_LAUNCH)
		return host_launch_check(&node->launch);
	return node->op == FRMPS_OP_COPY && node->copy.dst_is_host && node->copy.src_is_host
		       ? CUDA_ERROR_INVALID_VALUE
		       : CUDA_SUCCESS;
}

static CUresult check(const struct backend_node *nodes, uint32_t count)
{
	CUresult code = CUDA_SUCCESS;

	for (uint32_t i = 0; !code && i < count; i++)
		code = check_node(&nodes[i]);
	return code;
}

CUresult host_graph_make(const struct backend_node *nodes, uint32_t count, uint32_t flags, uint64_t sms,
	struct backend_graph **ret_graph)
{
	struct backend_graph *graph;
	CUresult code = host_sms_mask(sms) ? check(nodes, count) : CUDA_ERROR_INVALID_VALUE;

	(void)flags; /* streams have no priorities here */
	if (code)
		return code;
	graph = calloc(1, sizeof(*graph) + count * sizeof(*nodes));
	if (!graph)
		return CUDA_ERROR_OUT_OF_MEMORY;
	code = host_event_create(false, &graph->latest);
	if (code) {
		free(graph);
		return code;
	}
	memcpy(graph->nodes, nodes, count * sizeof(*nodes));
	graph->count = count;
	graph->sms = host_sms_mask(sms);
	*ret_graph = graph;
	return CUDA_SUCCESS;
}

CUresult host_graph_free(struct backend_graph *graph)
{
	host_event_destroy(graph->latest);
	free(graph);
	return CUDA_SUCCESS;
}

CUresult host_graph_change(struct backend_graph *graph, uint32_t index, const struct backend_node *node)
{
	CUresult code = node->disabled ? CUDA_SUCCESS : check_node(node);

	if (code)
		return code;
	if (node->disabled)
		graph->nodes[index].disabled = true;
	else
		graph->nodes[index] = *node;
	return CUDA_SUCCESS;
}

static CUresult queue_node(struct backend_stream *stream, const struct backend_node *node, uint64_t sms)
{
	switch (node->op) {
	case FRMPS_OP_LAUNCH:
		return host_launch_on(stream, &node->launch, node->sms ? host_sms_mask(node->sms) : sms);
	case FRMPS_OP_COPY:
		return host_copy(stream, &node->copy);
	case FRMPS_OP_SET:
		return host_set(stream, node->set);
	default:
		return CUDA_SUCCESS;
	}
}

static CUresult queue_onward(struct backend_stream *stream, const struct backend_node *node)
{
	struct backend_copy copy = backend_node_on(node);

	return host_copy(stream, &copy);
}

static CUresult queue_range(
	struct backend_stream *stream, const struct backend_graph *graph, uint32_t from, uint32_t end);

static const uint32_t *counts_of(const struct frmps_condition *condition)
{
	return (const uint32_t *)(const void *)(condition + 1);
}

/* Nodes that are in the bodies of a condition. */
static uint32_t count_inside(const struct frmps_condition *condition)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < condition->bodies; i++)
		sum += counts_of(condition)[i];
	return sum;
}

/* @first: of the first body's nodes */
static CUresult queue_condition(struct backend_stream *stream, const struct backend_graph *graph,
	const struct backend_node *node, uint32_t first)
{
	const struct frmps_condition *condition = node->condition;
	const uint32_t *counts = counts_of(condition);
	struct host_work *work = host_work_new(HOST_BRANCH, condition->bodies * sizeof(struct host_work *));
	CUresult code = work ? CUDA_SUCCESS : host_work_error();

	if (!work)
		return code;
	work->branch = (struct host_branch){.word = condition->word,
		.over = node->over,
		.kind = condition->kind,
		.bodies = condition->bodies,
		.body = (struct host_work **)(void *)work->bytes};
	for (uint32_t i = 0; !code && i < condition->bodies; first += counts[i++]) {
		struct backend_stream *body = host_stream_new_detached(graph->sms);

		code = body ? queue_range(body, graph, first, first + counts[i]) : CUDA_ERROR_OUT_OF_MEMORY;
		work->branch.body[i] = host_stream_take_all(body);
	}
	if (code)
		host_work_free(work);
	else
		host_stream_push(stream, work);
	return code;
}

static CUresult queue_range(
	struct backend_stream *stream, const struct backend_graph *graph, uint32_t from, uint32_t end)
{
	CUresult code = CUDA_SUCCESS;

	for (uint32_t i = from; !code && i < end; i++) {
		const struct backend_node *node = &graph->nodes[i];

		if (node->disabled)
			continue;
		if (node->op == FRMPS_OP_CONDITION) {
			code = queue_condition(stream, graph, node, i + 1);
			i += count_inside(node->condition);
			continue;
		}
		code = queue_node(stream, node, graph->sms);
		if (!code && node->onto)
			code = queue_onward(stream, node);
	}
	return code;
}

CUresult host_graph_launch(struct backend_stream *stream, struct backend_graph *graph)
{
	CUresult code = host_stream_wait(stream, graph->latest);

	if (!code)
		code = queue_range(stream, graph, 0, graph->count);
	return code ? code : host_event_record(graph->latest, stream);
}
