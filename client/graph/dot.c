// See dot.h. No state.

#include "client/graph/dot.h"

#include <pthread.h>
#include <stdio.h>

#include "client/graph/graph.h"
#include "client/state/function.h"

static const char *const types[] = {
	[CU_GRAPH_NODE_TYPE_KERNEL] = "KERNEL",
	[CU_GRAPH_NODE_TYPE_MEMCPY] = "MEMCPY",
	[CU_GRAPH_NODE_TYPE_MEMSET] = "MEMSET",
	[CU_GRAPH_NODE_TYPE_HOST] = "HOST",
	[CU_GRAPH_NODE_TYPE_GRAPH] = "GRAPH",
	[CU_GRAPH_NODE_TYPE_EMPTY] = "EMPTY",
	[CU_GRAPH_NODE_TYPE_WAIT_EVENT] = "EVENT_WAIT",
	[CU_GRAPH_NODE_TYPE_EVENT_RECORD] = "EVENT_RECORD",
	[CU_GRAPH_NODE_TYPE_MEM_ALLOC] = "MEM_ALLOC",
	[CU_GRAPH_NODE_TYPE_MEM_FREE] = "MEM_FREE",
	[CU_GRAPH_NODE_TYPE_BATCH_MEM_OP] = "BATCH_MEM_OP",
	[CU_GRAPH_NODE_TYPE_CONDITIONAL] = "CONDITIONAL",
};

static void write_label(FILE *file, const struct graph_node *node)
{
	const struct graph_params *params = &node->params;
	const struct client_function *function = NULL;

	if (params->type == CU_GRAPH_NODE_TYPE_KERNEL)
		function = function_find(params->kernel.function);
	fprintf(file, "%s", types[params->type] ? types[params->type] : "NODE");
	if (function && function->serial == params->kernel.function_serial)
		fprintf(file, "\\n%s\\n%u %u %u, %u %u %u", function->name, params->kernel.body->grid_x,
			params->kernel.body->grid_y, params->kernel.body->grid_z,
			params->kernel.body->block_x, params->kernel.body->block_y,
			params->kernel.body->block_z);
	if (params->type == CU_GRAPH_NODE_TYPE_MEMCPY)
		fprintf(file, "\\n%llu x %llu x %llu", (unsigned long long)params->copy.box.width,
			(unsigned long long)params->copy.box.height,
			(unsigned long long)params->copy.box.depth);
}

static void write_graph(FILE *file, const struct client_graph *graph)
{
	unsigned long long id = graph->serial;

	fprintf(file, "subgraph cluster_%llu {\nlabel=\"graph_%llu\"\n", id, id);
	for (uint32_t i = 0; i < graph->count; ++i) {
		fprintf(file, "\"graph_%llu_node_%u\" [shape=\"record\" label=\"{%u\\n", id, i, i);
		write_label(file, graph->nodes[i]);
		fprintf(file, "}\"];\n");
	}
	for (uint32_t i = 0; i < graph->count; ++i)
		graph->nodes[i]->mark = i;
	for (uint32_t i = 0; i < graph->count; ++i)
		for (uint32_t j = 0; j < graph->nodes[i]->behind.count; ++j)
			fprintf(file, "\"graph_%llu_node_%u\" -> \"graph_%llu_node_%u\";\n", id, i, id,
				graph->nodes[i]->behind.at[j].node->mark);
	fprintf(file, "}\n");
	for (uint32_t i = 0; i < graph->count; ++i) {
		struct client_graph *const *inside;
		uint32_t count = graph_inside(&graph->nodes[i]->params, &inside);

		for (uint32_t j = 0; j < count; ++j)
			write_graph(file, inside[j]);
	}
}

static CUresult write_file(const struct client_graph *graph, const char *path)
{
	FILE *file = fopen(path, "we");
	bool failed;

	if (!file)
		return CUDA_ERROR_OPERATING_SYSTEM;
	fprintf(file, "digraph dot {\n");
	write_graph(file, graph);
	fprintf(file, "}\n");
	failed = ferror(file);
	return fclose(file) != 0 || failed ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

/* With the lock of all graphs held. */
CUresult dot_write(const struct client_graph *graph, const char *path)
{
	int cancelable;
	CUresult r;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelable);
	r = write_file(graph, path);
	pthread_setcancelstate(cancelable, NULL);
	return r;
}
