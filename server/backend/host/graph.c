// Graphs: a list of nodes, which a launch queues on its stream one behind the other. Every edge
// leads to an earlier node, so that is one of the orders that the edges allow; two launches on
// different streams are kept apart by a record behind each.

#include <stdlib.h>
#include <string.h>

#include "server/backend/host/host.h"

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
		return host_launch_on(stream, &node->launch, sms);
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

CUresult host_graph_launch(struct backend_stream *stream, struct backend_graph *graph)
{
	CUresult code = host_stream_wait(stream, graph->latest);

	for (uint32_t i = 0; !code && i < graph->count; i++) {
		if (graph->nodes[i].disabled)
			continue;
		code = queue_node(stream, &graph->nodes[i], graph->sms);
		if (!code && graph->nodes[i].onto)
			code = queue_onward(stream, &graph->nodes[i]);
	}
	return code ? code : host_event_record(graph->latest, stream);
}
