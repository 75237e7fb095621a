// Graphs: node by node into the driver's, instantiated, and the template thrown away, unless nodes
// may be changed later: the driver wants those of the template named.
//
// Executor threads; several at once for different graphs.

#include <stdlib.h>
#include <string.h>

#include "server/backend/cuda/condition.h"
#include "server/backend/cuda/cuda.h"
#include "server/backend/cuda/loader.h"
#include "server/log.h"

/* The driver's nodes for a node. */
struct place {
	CUgraphNode node, onward; /* onward: NULL: none */
	const void *function;	  /* of a kernel: a name, may be dangling, */
	bool is_plain;		  /* and true without attributes of its own, which cannot be changed */
	bool disabled;
};

struct backend_graph {
	CUgraphExec exec;
	CUgraph from;	   /* NULL: cannot be changed */
	CUcontext context; /* context of its kernels */
	struct place *places;
};

static CUresult set_attributes(CUgraphNode node, const struct backend_launch *launch)
{
	CUlaunchAttribute attributes[CUDA_ATTRIBUTES_MAX];
	unsigned count = 0;
	CUresult code = cuda_launch_attributes(launch, attributes, &count);

	for (unsigned i = 0; !code && i < count; i++) {
		code = driver.graph_set_attribute(node, attributes[i].id, &attributes[i].value);
		if (code)
			log_info("the driver refuses attribute %u of a node of a graph, code %d",
				(unsigned)attributes[i].id, (int)code);
	}
	return code;
}

static bool is_plain(struct backend_function *function)
{
	const struct loader_kernel *own = cuda_kernel(function)->own;

	return !own || own->is_plain;
}

static void note_function(struct place *place, struct backend_function *function)
{
	place->function = function;
	place->is_plain = is_plain(function);
}

/* A node runs in the context of its creation, whatever stream its graph is launched in. With a
 * CUfunction the driver ignores `ctx`, so a group's node gets a CUkernel.
 * @arguments: the target of the form's pointers */
static CUresult kernel_form(const struct backend_launch *launch, CUcontext context,
	struct cuda_arguments *arguments, CUDA_KERNEL_NODE_PARAMS *ret_form)
{
	CUresult code = context ? cuda_launch_check(launch) : CUDA_ERROR_INVALID_VALUE;

	*ret_form = (CUDA_KERNEL_NODE_PARAMS){
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
	if (code)
		return code;
	cuda_arguments_init(arguments, launch);
	ret_form->kernelParams = arguments->params;
	ret_form->extra = arguments->packed;
	return CUDA_SUCCESS;
}

static CUresult add_kernel(
	CUgraph graph, const struct backend_launch *launch, CUcontext context, CUgraphNode *ret_node)
{
	struct cuda_arguments arguments;
	CUDA_KERNEL_NODE_PARAMS form;
	CUresult code = kernel_form(launch, context, &arguments, &form);

	if (!code)
		code = driver.graph_add_kernel(ret_node, graph, NULL, 0, &form);
	return code ? code : set_attributes(*ret_node, launch);
}

static CUresult copy_form(const struct backend_copy *copy, CUDA_MEMCPY3D *ret_form)
{
	return copy->dst_is_host && copy->src_is_host ? CUDA_ERROR_INVALID_VALUE
						      : cuda_copy_form(copy, ret_form);
}

static CUresult add_copy(CUgraph graph, const struct backend_copy *copy, CUgraphNode *ret_node)
{
	CUDA_MEMCPY3D form;
	CUresult code = copy_form(copy, &form);

	return code ? code : driver.graph_add_copy(ret_node, graph, NULL, 0, &form, cuda.context);
}

static CUDA_MEMSET_NODE_PARAMS set_form(const struct frmps_set *set)
{
	return (CUDA_MEMSET_NODE_PARAMS){
		.dst = set->dst,
		.pitch = set->pitch,
		.value = set->value,
		.elementSize = set->element_bytes,
		.width = set->width,
		.height = set->height,
	};
}

static CUresult add_set(CUgraph graph, const struct frmps_set *set, CUgraphNode *ret_node)
{
	CUDA_MEMSET_NODE_PARAMS form = set_form(set);

	return driver.graph_add_set(ret_node, graph, NULL, 0, &form, cuda.context);
}

/* Where a kernel runs. @context: of the graph. Return: NULL: its group was not made */
static CUcontext context_of(const struct backend_node *node, CUcontext context)
{
	return node->sms ? cuda_sms_context(node->sms) : context;
}

static CUresult add_node(
	CUgraph graph, const struct backend_node *node, CUcontext context, CUgraphNode *ret_node)
{
	switch (node->op) {
	case FRMPS_OP_LAUNCH:
		return add_kernel(graph, &node->launch, context_of(node, context), ret_node);
	case FRMPS_OP_COPY:
		return add_copy(graph, &node->copy, ret_node);
	case FRMPS_OP_SET:
		return add_set(graph, node->set, ret_node);
	default:
		return driver.graph_add_empty(ret_node, graph, NULL, 0);
	}
}

/* Adds the copy of the node's output; dependents of the node depend on the copy. */
static CUresult add_onward(CUgraph graph, const struct backend_node *node, struct place *place)
{
	struct backend_copy copy = backend_node_on(node);
	CUgraphEdgeData data = {.from_port = 0};
	CUresult code = add_copy(graph, &copy, &place->onward);

	return code ? code : driver.graph_add_edges(graph, &place->node, &place->onward, &data, 1);
}

/* The edges of a node, to nodes that were added before. */
static CUresult add_edges(
	CUgraph graph, const struct backend_node *node, struct place *places, CUgraphNode to)
{
	CUresult code = CUDA_SUCCESS;

	for (uint32_t i = 0; !code && i < node->edge_count; i++) {
		const struct frmps_graph_edge *edge = &node->edges[i];
		struct place *from = &places[edge->node];
		CUgraphEdgeData data = {.from_port = edge->from_port, .type = edge->type};

		code = driver.graph_add_edges(
			graph, from->onward ? &from->onward : &from->node, &to, &data, 1);
	}
	return code;
}

/* ---- conditions ---- */

static CUresult add_range(struct backend_graph *graph, CUgraph into, const struct backend_node *nodes,
	uint32_t from, uint32_t end);

static const uint32_t *counts_of(const struct backend_node *node)
{
	return (const uint32_t *)(const void *)(node->condition + 1);
}

/* The number of the node after a node and its contents. */
static uint32_t behind(const struct backend_node *nodes, uint32_t index)
{
	uint32_t next = index + 1;

	if (nodes[index].op == FRMPS_OP_CONDITION)
		for (uint32_t i = 0; i < nodes[index].condition->bodies; i++)
			next += counts_of(&nodes[index])[i];
	return next;
}

/* At the end of a loop's body the condition is set once more. */
static CUresult add_last(struct backend_graph *graph, CUgraph body, const struct backend_node *nodes,
	uint32_t condition, CUgraphConditionalHandle handle)
{
	const CUgraphEdgeData data = {.from_port = 0};
	CUgraphNode last;
	CUresult code = cuda_condition_add(
		body, &nodes[condition], handle, graph->context, graph->context != cuda.context, &last);

	for (uint32_t i = condition + 1; !code && i < behind(nodes, condition); i = behind(nodes, i)) {
		const struct place *place = &graph->places[i];

		code = driver.graph_add_edges(
			body, place->onward ? &place->onward : &place->node, &last, &data, 1);
	}
	return code;
}

/* A kernel sets the driver's condition to the word, and the driver's node follows: dependents of
 * the condition depend on that node. */
static CUresult add_condition(
	struct backend_graph *graph, CUgraph into, const struct backend_node *nodes, uint32_t index)
{
	const struct backend_node *node = &nodes[index];
	const struct frmps_condition *condition = node->condition;
	struct place *place = &graph->places[index];
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
	uint32_t next = index + 1;
	CUresult code;

	if (!driver.graph_condition || !driver.graph_add_node)
		return CUDA_ERROR_NOT_SUPPORTED;
	code = driver.graph_condition(&params.conditional.handle, graph->from, graph->context, 0, 0);
	if (!code)
		code = cuda_condition_add(into, node, params.conditional.handle, graph->context,
			graph->context != cuda.context, &place->node);
	params.conditional.type = (CUgraphConditionalNodeType)condition->kind;
	params.conditional.size = condition->bodies;
	params.conditional.ctx = graph->context;
	if (!code)
		code = driver.graph_add_node(&place->onward, into, &place->node, NULL, 1, &params);
	for (uint32_t i = 0; !code && i < condition->bodies; next += counts_of(node)[i++])
		code = add_range(
			graph, params.conditional.phGraph_out[i], nodes, next, next + counts_of(node)[i]);
	if (!code && condition->kind == CU_GRAPH_COND_TYPE_WHILE)
		code = add_last(
			graph, params.conditional.phGraph_out[0], nodes, index, params.conditional.handle);
	return code;
}

static CUresult add_range(struct backend_graph *graph, CUgraph into, const struct backend_node *nodes,
	uint32_t from, uint32_t end)
{
	struct place *places = graph->places;
	CUresult code = CUDA_SUCCESS;

	for (uint32_t i = from; !code && i < end; i = behind(nodes, i)) {
		code = nodes[i].op == FRMPS_OP_CONDITION
			       ? add_condition(graph, into, nodes, i)
			       : add_node(into, &nodes[i], graph->context, &places[i].node);
		if (nodes[i].op == FRMPS_OP_LAUNCH)
			note_function(&places[i], nodes[i].launch.function);
		if (!code)
			code = add_edges(into, &nodes[i], places, places[i].node);
		if (!code && nodes[i].onto)
			code = add_onward(into, &nodes[i], &places[i]);
		if (code)
			log_info("node %u of a graph cannot be made, code %d", i, (int)code);
	}
	return code;
}

/* ---- changes ---- */

static CUresult enable(struct backend_graph *graph, struct place *place, bool disabled)
{
	CUresult code = CUDA_SUCCESS;

	if (place->disabled == disabled)
		return code;
	code = driver.graph_enable(graph->exec, place->node, !disabled);
	if (!code && place->onward)
		code = driver.graph_enable(graph->exec, place->onward, !disabled);
	if (!code)
		place->disabled = disabled;
	return code;
}

static CUresult change_copy(CUgraphExec exec, CUgraphNode node, const struct backend_copy *copy)
{
	CUDA_MEMCPY3D form;
	CUresult code = copy_form(copy, &form);

	return code ? code : driver.graph_change_copy(exec, node, &form, cuda.context);
}

static CUresult change_kernel(
	const struct backend_graph *graph, struct place *place, const struct backend_node *node)
{
	const struct backend_launch *launch = &node->launch;
	struct cuda_arguments arguments;
	CUDA_KERNEL_NODE_PARAMS form;
	CUresult code = kernel_form(launch, context_of(node, graph->context), &arguments, &form);

	if (!code && place->function != launch->function && (!place->is_plain || !is_plain(launch->function)))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!code)
		code = driver.graph_change_kernel(graph->exec, place->node, &form);
	if (!code)
		note_function(place, launch->function);
	return code;
}

static CUresult change_node(
	const struct backend_graph *graph, struct place *place, const struct backend_node *node)
{
	CUDA_MEMSET_NODE_PARAMS set;

	switch (node->op) {
	case FRMPS_OP_LAUNCH:
		return change_kernel(graph, place, node);
	case FRMPS_OP_COPY:
		return change_copy(graph->exec, place->node, &node->copy);
	case FRMPS_OP_SET:
		set = set_form(node->set);
		return driver.graph_change_set(graph->exec, place->node, &set, cuda.context);
	default:
		return CUDA_SUCCESS;
	}
}

CUresult cuda_graph_change(struct backend_graph *graph, uint32_t index, const struct backend_node *node)
{
	struct place *place = &graph->places[index];
	struct backend_copy onward;
	CUresult code = CUDA_SUCCESS;

	if (!node->disabled)
		code = change_node(graph, place, node);
	if (!code && !node->disabled && place->onward) {
		onward = backend_node_on(node);
		code = change_copy(graph->exec, place->onward, &onward);
	}
	return code ? code : enable(graph, place, node->disabled);
}

/* ---- the graph ---- */

static CUresult disable_all(struct backend_graph *graph, const struct backend_node *nodes, uint32_t count)
{
	CUresult code = CUDA_SUCCESS;

	for (uint32_t i = 0; !code && i < count; i++)
		code = enable(graph, &graph->places[i], nodes[i].disabled);
	return code;
}

/* Into a graph with existing places. */
static CUresult make(
	struct backend_graph *graph, const struct backend_node *nodes, uint32_t count, uint32_t flags)
{
	bool priorities = flags & FRMPS_GRAPH_PRIORITIES;
	CUresult code = driver.graph_create(&graph->from, 0);

	if (code)
		return code;
	code = add_range(graph, graph->from, nodes, 0, count);
	if (!code)
		code = driver.graph_instantiate(&graph->exec, graph->from,
			priorities ? CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY : 0);
	return code ? code : disable_all(graph, nodes, count);
}

static void drop_template(struct backend_graph *graph)
{
	if (graph->from)
		driver.graph_destroy(graph->from);
	graph->from = NULL;
	free(graph->places);
	graph->places = NULL;
}

CUresult cuda_graph_free(struct backend_graph *graph)
{
	CUresult code = graph->exec ? driver.graph_exec_destroy(graph->exec) : CUDA_SUCCESS;

	drop_template(graph);
	free(graph);
	return code;
}

CUresult cuda_graph_make(const struct backend_node *nodes, uint32_t count, uint32_t flags, uint64_t sms,
	struct backend_graph **ret_graph)
{
	struct backend_graph *graph = calloc(1, sizeof(*graph));
	CUresult code = CUDA_ERROR_OUT_OF_MEMORY;

	if (!graph)
		return code;
	graph->context = sms ? cuda_sms_context(sms) : cuda.context;
	graph->places = calloc(count, sizeof(*graph->places));
	if (graph->places)
		code = graph->context ? make(graph, nodes, count, flags) : CUDA_ERROR_INVALID_VALUE;
	if (code) {
		cuda_graph_free(graph);
		return code;
	}
	if (!(flags & FRMPS_GRAPH_CHANGES))
		drop_template(graph);
	*ret_graph = graph;
	return CUDA_SUCCESS;
}

CUresult cuda_graph_launch(struct backend_stream *stream, struct backend_graph *graph)
{
	return driver.graph_launch(graph->exec, cuda_stream(stream));
}
