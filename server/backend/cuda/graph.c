// Graphs: node by node into the driver's, instantiated, and the template thrown away. A backend
// graph is the driver's executable one, cast.
//
// Executor threads; several at once for different graphs.

#include <stdlib.h>
#include <string.h>

#include "server/backend/cuda/cuda.h"

static CUgraphExec cuda_exec(struct backend_graph *graph)
{
	return (CUgraphExec)(void *)graph;
}

static CUresult set_attributes(CUgraphNode node, const struct backend_launch *launch)
{
	CUlaunchAttribute attributes[CUDA_ATTRIBUTES_MAX];
	unsigned count = 0;
	CUresult code = cuda_launch_attributes(launch, attributes, &count);

	for (unsigned i = 0; !code && i < count; i++)
		code = driver.graph_set_attribute(node, attributes[i].id, &attributes[i].value);
	return code;
}

/* A node runs where it was made for, whatever stream its graph is launched in. Where the driver is
 * given a CUfunction it does not look at `ctx`, so a group's node gets a CUkernel. */
static CUresult add_kernel(
	CUgraph graph, const struct backend_launch *launch, CUcontext context, CUgraphNode *ret_node)
{
	CUDA_KERNEL_NODE_PARAMS kernel = {
		.func = context == cuda.context ? cuda_function(launch->function) : NULL,
		.kern = cuda_kernel(launch->function)->kernel,
		.gridDimX = launch->grid[0],
		.gridDimY = launch->grid[1],
		.gridDimZ = launch->grid[2],
		.blockDimX = launch->block[0],
		.blockDimY = launch->block[1],
		.blockDimZ = launch->block[2],
		.sharedMemBytes = cuda_shared(launch->function, launch->shared_bytes),
		.ctx = context,
	};
	struct cuda_arguments arguments;
	CUresult code = cuda_launch_check(launch);

	if (code)
		return code;
	cuda_arguments_init(&arguments, launch);
	kernel.kernelParams = arguments.params;
	kernel.extra = arguments.packed;
	code = driver.graph_add_kernel(ret_node, graph, NULL, 0, &kernel);
	return code ? code : set_attributes(*ret_node, launch);
}

static CUresult add_copy(CUgraph graph, const struct backend_copy *copy, CUgraphNode *ret_node)
{
	CUDA_MEMCPY3D form;
	CUresult code;

	if (copy->dst_is_host && copy->src_is_host)
		return CUDA_ERROR_INVALID_VALUE;
	code = cuda_copy_form(copy, &form);
	return code ? code : driver.graph_add_copy(ret_node, graph, NULL, 0, &form, cuda.context);
}

static CUresult add_set(CUgraph graph, const struct frmps_set *set, CUgraphNode *ret_node)
{
	CUDA_MEMSET_NODE_PARAMS form = {
		.dst = set->dst,
		.pitch = set->pitch,
		.value = set->value,
		.elementSize = set->element_bytes,
		.width = set->width,
		.height = set->height,
	};

	return driver.graph_add_set(ret_node, graph, NULL, 0, &form, cuda.context);
}

static CUresult add_node(
	CUgraph graph, const struct backend_node *node, CUcontext context, CUgraphNode *ret_node)
{
	switch (node->op) {
	case FRMPS_OP_LAUNCH:
		return add_kernel(graph, &node->launch, context, ret_node);
	case FRMPS_OP_COPY:
		return add_copy(graph, &node->copy, ret_node);
	case FRMPS_OP_SET:
		return add_set(graph, node->set, ret_node);
	default:
		return driver.graph_add_empty(ret_node, graph, NULL, 0);
	}
}

/* What copies on what the node has written; who depends on the node depends on that. */
static CUresult add_onward(CUgraph graph, const struct backend_node *node, CUgraphNode *tail)
{
	struct backend_copy copy = backend_node_on(node);
	CUgraphEdgeData data = {.from_port = 0};
	CUgraphNode onward;
	CUresult code = add_copy(graph, &copy, &onward);

	if (!code)
		code = driver.graph_add_edges(graph, tail, &onward, &data, 1);
	if (!code)
		*tail = onward;
	return code;
}

/* The edges of one node; what they lead to was added before. */
static CUresult add_edges(CUgraph graph, const struct backend_node *node, CUgraphNode *nodes, CUgraphNode to)
{
	CUresult code = CUDA_SUCCESS;

	for (uint32_t i = 0; !code && i < node->edge_count; i++) {
		const struct frmps_graph_edge *edge = &node->edges[i];
		CUgraphEdgeData data = {.from_port = edge->from_port, .type = edge->type};

		code = driver.graph_add_edges(graph, &nodes[edge->node], &to, &data, 1);
	}
	return code;
}

static CUresult add_all(CUgraph graph, const struct backend_node *nodes, uint32_t count, CUcontext context)
{
	CUgraphNode *added = calloc(count, sizeof(CUgraphNode));
	CUresult code = added ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	for (uint32_t i = 0; !code && i < count; i++) {
		code = add_node(graph, &nodes[i], context, &added[i]);
		if (!code)
			code = add_edges(graph, &nodes[i], added, added[i]);
		if (!code && nodes[i].onto)
			code = add_onward(graph, &nodes[i], &added[i]);
	}
	free(added);
	return code;
}

CUresult cuda_graph_make(const struct backend_node *nodes, uint32_t count, uint32_t flags, uint64_t sms,
	struct backend_graph **ret_graph)
{
	CUcontext context = sms ? cuda_sms_context(sms) : cuda.context;
	bool priorities = flags & FRMPS_GRAPH_PRIORITIES;
	CUgraphExec exec = NULL;
	CUgraph graph;
	CUresult code = context ? driver.graph_create(&graph, 0) : CUDA_ERROR_INVALID_VALUE;

	if (code)
		return code;
	code = add_all(graph, nodes, count, context);
	if (!code)
		code = driver.graph_instantiate(
			&exec, graph, priorities ? CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY : 0);
	driver.graph_destroy(graph);
	if (!code)
		*ret_graph = (struct backend_graph *)(void *)exec;
	return code;
}

CUresult cuda_graph_free(struct backend_graph *graph)
{
	return driver.graph_exec_destroy(cuda_exec(graph));
}

CUresult cuda_graph_launch(struct backend_stream *stream, struct backend_graph *graph)
{
	return driver.graph_launch(cuda_exec(graph), cuda_stream(stream));
}
