// Entry points: nodes of graphs, by type. Parameters become a checked copy (graph/params.h) before
// the lock is taken.

#include "client/entry/entry.h"

#include <string.h>

#include "client/entry/graph_params.h"
#include "client/entry/mempool.h"
#include "client/graph/graph.h"
#include "client/graph/memory.h"
#include "client/state/context.h"
#include "client/state/device.h"
#include "client/state/log.h"

/* Where a new node goes. */
struct where {
	CUgraphNode *ret;
	CUgraph graph;
	const CUgraphNode *nodes;
	const CUgraphEdgeData *data;
	size_t count;
};

static CUresult check(const struct where *where)
{
	CUresult r = process_enter_context();

	if (r != CUDA_SUCCESS)
		return r;
	return where->ret && (where->nodes || where->count == 0) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Takes the parameters over. */
static CUresult add(const struct where *where, struct graph_params *params)
{
	struct client_graph *graph;
	struct graph_node *node;
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	graph_enter();
	graph = graph_find(where->graph);
	if (graph)
		r = graph_add(graph, params, where->nodes, where->data, where->count, &node);
	else
		graph_drop_params(params);
	if (r == CUDA_SUCCESS)
		*where->ret = graph_node_handle(node);
	graph_leave();
	return r;
}

/* A node of parameters that have to be made first. */
#define ADD(where, maker)                                                                                    \
	do {                                                                                                 \
		struct graph_params params;                                                                  \
		CUresult r = check(where);                                                                   \
		if (r == CUDA_SUCCESS)                                                                       \
			r = maker;                                                                           \
		return r == CUDA_SUCCESS ? add(where, &params) : r;                                          \
	} while (0)

/* Replaces the parameters of a node of this type. Takes the new parameters over. */
static CUresult set(CUgraphNode handle, struct graph_params *params)
{
	struct graph_node *node;
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	graph_enter();
	node = graph_find_node(handle);
	if (node && node->params.type == params->type) {
		struct graph_params former = node->params;

		node->params = *params;
		*params = former;
		r = CUDA_SUCCESS;
	}
	graph_leave();
	params_deinit(params);
	return r;
}

#define SET(node, maker)                                                                                     \
	do {                                                                                                 \
		struct graph_params params;                                                                  \
		CUresult r = process_enter_context();                                                        \
		if (r == CUDA_SUCCESS)                                                                       \
			r = maker;                                                                           \
		return r == CUDA_SUCCESS ? set(node, &params) : r;                                           \
	} while (0)

/* The parameters of a node of this type, with the lock held on success. */
static CUresult look(
	CUgraphNode handle, CUgraphNodeType type, const void *output, const struct graph_params **ret_params)
{
	const struct graph_node *node;
	CUresult r = process_enter();

	if (r != CUDA_SUCCESS)
		return r;
	graph_enter();
	node = graph_find_node(handle);
	if (node && output && node->params.type == type) {
		*ret_params = &node->params;
		return CUDA_SUCCESS;
	}
	graph_leave();
	return CUDA_ERROR_INVALID_VALUE;
}

/* Reads those of `params` that a node of this type has. */
#define GET(node, type, output, fill)                                                                        \
	do {                                                                                                 \
		const struct graph_params *params;                                                           \
		CUresult r = look(node, type, output, &params);                                              \
		if (r == CUDA_SUCCESS) {                                                                     \
			fill;                                                                                \
			graph_leave();                                                                       \
		}                                                                                            \
		return r;                                                                                    \
	} while (0)

/* ---- kernels ---- */

CUDA_EXPORT CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *nodes,
	size_t count, const CUDA_KERNEL_NODE_PARAMS_v1 *given)
{
	CUDA_KERNEL_NODE_PARAMS wide;

	return cuGraphAddKernelNode_v2(node, graph, nodes, count, graph_params_widen(given, &wide));
}

CUDA_EXPORT CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *nodes,
	size_t count, const CUDA_KERNEL_NODE_PARAMS *given)
{
	const struct where where = {node, graph, nodes, NULL, count};

	ADD(&where, given ? params_kernel(given, NULL, &params) : CUDA_ERROR_INVALID_VALUE);
}

CUDA_EXPORT CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *given)
{
	const struct graph_params *params;
	CUresult r = look(node, CU_GRAPH_NODE_TYPE_KERNEL, given, &params);

	if (r != CUDA_SUCCESS)
		return r;
	params_kernel_get(&params->kernel, given);
	graph_leave();
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *given)
{
	CUDA_KERNEL_NODE_PARAMS wide;
	CUresult r = cuGraphKernelNodeGetParams_v2(node, given ? &wide : NULL);

	if (r == CUDA_SUCCESS)
		memcpy(given, &wide, sizeof(*given)); /* the later form only has more */
	return r;
}

static CUresult clone_of(CUgraphNode handle, const void *given, struct graph_params *ret_clone)
{
	const struct graph_params *now;
	CUresult r = look(handle, CU_GRAPH_NODE_TYPE_KERNEL, given, &now);

	if (r != CUDA_SUCCESS)
		return r;
	r = params_clone(now, ret_clone);
	graph_leave();
	return r;
}

/* Attributes stay; the driver sets these apart from the parameters. */
static CUresult set_kernel(CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS *given)
{
	struct graph_params keep, params;
	CUresult r = clone_of(handle, given, &keep);

	if (r != CUDA_SUCCESS)
		return r;
	r = params_kernel(given, &keep, &params);
	params_deinit(&keep);
	return r == CUDA_SUCCESS ? set(handle, &params) : r;
}

CUDA_EXPORT CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *given)
{
	CUresult r = process_enter_context();

	return r == CUDA_SUCCESS ? set_kernel(node, given) : r;
}

CUDA_EXPORT CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *given)
{
	CUDA_KERNEL_NODE_PARAMS wide;

	return cuGraphKernelNodeSetParams_v2(node, graph_params_widen(given, &wide));
}

CUDA_EXPORT CUresult cuGraphKernelNodeGetAttribute(
	CUgraphNode node, CUlaunchAttributeID id, CUlaunchAttributeValue *value)
{
	const struct graph_params *params;
	CUresult r = look(node, CU_GRAPH_NODE_TYPE_KERNEL, value, &params);

	if (r != CUDA_SUCCESS)
		return r;
	r = params_attribute_get(params, id, value);
	graph_leave();
	return r;
}

/* The driver checks the node as a launch. */
CUDA_EXPORT CUresult cuGraphKernelNodeSetAttribute(
	CUgraphNode node, CUlaunchAttributeID id, const CUlaunchAttributeValue *value)
{
	struct graph_params changed;
	CUresult r = clone_of(node, value, &changed);

	if (r != CUDA_SUCCESS)
		return r;
	r = params_attribute_set(&changed, id, value);
	if (r == CUDA_SUCCESS)
		r = params_check_kernel(&changed);
	if (r == CUDA_SUCCESS)
		return set(node, &changed);
	params_deinit(&changed);
	return r;
}

CUDA_EXPORT CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from)
{
	const struct graph_params *params;
	struct graph_node *other;
	CUresult r = look(from, CU_GRAPH_NODE_TYPE_KERNEL, from, &params);

	if (r != CUDA_SUCCESS)
		return r;
	other = graph_find_node(to);
	r = CUDA_ERROR_INVALID_VALUE;
	if (other && &other->params == params)
		r = CUDA_SUCCESS;
	else if (other && other->params.type == CU_GRAPH_NODE_TYPE_KERNEL)
		r = params_attributes_copy(&other->params, params);
	graph_leave();
	return r;
}

/* ---- copies, fills, host functions ---- */

CUDA_EXPORT CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *nodes,
	size_t count, const CUDA_MEMCPY3D *given, __attribute__((unused)) CUcontext context)
{
	const struct where where = {node, graph, nodes, NULL, count};

	ADD(&where, graph_params_copy(given, &params));
}

CUDA_EXPORT CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *given)
{
	GET(node, CU_GRAPH_NODE_TYPE_MEMCPY, given, *given = params->copy.given);
}

CUDA_EXPORT CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *given)
{
	SET(node, graph_params_copy(given, &params));
}

CUDA_EXPORT CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *nodes,
	size_t count, const CUDA_MEMSET_NODE_PARAMS *given, __attribute__((unused)) CUcontext context)
{
	const struct where where = {node, graph, nodes, NULL, count};

	ADD(&where, graph_params_set(given, &params));
}

CUDA_EXPORT CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *given)
{
	GET(node, CU_GRAPH_NODE_TYPE_MEMSET, given, *given = params->set);
}

CUDA_EXPORT CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *given)
{
	SET(node, graph_params_set(given, &params));
}

CUDA_EXPORT CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *nodes,
	size_t count, const CUDA_HOST_NODE_PARAMS *given)
{
	const struct where where = {node, graph, nodes, NULL, count};

	ADD(&where, graph_params_host(given, &params));
}

CUDA_EXPORT CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *given)
{
	GET(node, CU_GRAPH_NODE_TYPE_HOST, given, *given = params->host);
}

CUDA_EXPORT CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *given)
{
	SET(node, graph_params_host(given, &params));
}

CUDA_EXPORT CUresult cuGraphAddEmptyNode(
	CUgraphNode *node, CUgraph graph, const CUgraphNode *nodes, size_t count)
{
	const struct where where = {node, graph, nodes, NULL, count};

	ADD(&where, (params = (struct graph_params){.type = CU_GRAPH_NODE_TYPE_EMPTY}, CUDA_SUCCESS));
}

/* ---- child graphs ---- */

/* The node owns a copy of the child. */
static CUresult make_child(CUgraph child, struct graph_params *ret_params)
{
	const struct client_graph *graph;
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	*ret_params = (struct graph_params){.type = CU_GRAPH_NODE_TYPE_GRAPH};
	graph_enter();
	graph = graph_find(child);
	if (graph)
		r = graph_is_unique(graph) ? CUDA_ERROR_NOT_SUPPORTED
					   : graph_clone(graph, &ret_params->child);
	graph_leave();
	return r;
}

/* CUDA_SUCCESS if a graph of the program's may become the child of a node of another graph. */
static CUresult check_move(const struct client_graph *child, const struct client_graph *to)
{
	if (!child || !to || child->parent || graph_is_captured(child) || graph_is_inside(to, child))
		return CUDA_ERROR_INVALID_VALUE;
	if (!graph_is_unique(child))
		return CUDA_SUCCESS;
	client_log(CLIENT_LOG_ERROR, "child graphs with memory nodes are not supported");
	return CUDA_ERROR_NOT_SUPPORTED;
}

/* Moves the child itself into the node: the node is made with a placeholder first. Under the
 * lock. */
static CUresult move_child(
	const struct where *where, struct client_graph *child, struct graph_node **ret_node)
{
	struct graph_params params = {.type = CU_GRAPH_NODE_TYPE_GRAPH};
	struct client_graph *graph = graph_find(where->graph);
	CUresult r = check_move(child, graph);

	if (r == CUDA_SUCCESS)
		r = graph_new(&params.child);
	if (r == CUDA_SUCCESS)
		r = graph_add(graph, &params, where->nodes, where->data, where->count, ret_node);
	if (r == CUDA_SUCCESS)
		graph_set_child(*ret_node, child);
	return r;
}

static CUresult add_moved(const struct where *where, CUgraph child)
{
	struct graph_node *node;
	CUresult r;

	graph_enter();
	r = move_child(where, graph_find(child), &node);
	if (r == CUDA_SUCCESS)
		*where->ret = graph_node_handle(node);
	graph_leave();
	return r;
}

CUDA_EXPORT CUresult cuGraphAddChildGraphNode(
	CUgraphNode *node, CUgraph graph, const CUgraphNode *nodes, size_t count, CUgraph child)
{
	const struct where where = {node, graph, nodes, NULL, count};

	ADD(&where, make_child(child, &params));
}

/* Takes the parameters over. */
static CUresult replace_child(CUgraphNode handle, CUgraph child, struct graph_params *params)
{
	struct graph_node *node;
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	graph_enter();
	node = graph_find_node(handle);
	/* A child that is the graph itself, or that a capture writes into, is refused. */
	if (node && node->params.type == CU_GRAPH_NODE_TYPE_GRAPH &&
		node->params.child != graph_find(child) && !graph_is_captured(node->params.child)) {
		graph_set_child(node, params->child);
		r = CUDA_SUCCESS;
	} else {
		graph_drop_params(params);
	}
	graph_leave();
	return r;
}

static CUresult set_child(CUgraphNode node, const CUDA_CHILD_GRAPH_NODE_PARAMS *given)
{
	struct graph_params params;
	CUresult r = process_enter_context();

	if (r == CUDA_SUCCESS && given->ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE)
		r = CUDA_ERROR_NOT_SUPPORTED;
	if (r == CUDA_SUCCESS)
		r = make_child(given->graph, &params);
	return r == CUDA_SUCCESS ? replace_child(node, given->graph, &params) : r;
}

CUDA_EXPORT CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph)
{
	GET(node, CU_GRAPH_NODE_TYPE_GRAPH, graph, *graph = graph_handle(params->child));
}

/* ---- events ---- */

static CUresult get_event(CUgraphNode node, CUgraphNodeType type, CUevent *event)
{
	GET(node, type, event, *event = params->event);
}

#define EVENT_NODE(kind, type)                                                                               \
	CUDA_EXPORT CUresult cuGraphAdd##kind##Node(                                                         \
		CUgraphNode *node, CUgraph graph, const CUgraphNode *nodes, size_t count, CUevent event)     \
	{                                                                                                    \
		const struct where where = {node, graph, nodes, NULL, count};                                \
                                                                                                             \
		ADD(&where, params_event(type, event, &params));                                             \
	}                                                                                                    \
	CUDA_EXPORT CUresult cuGraph##kind##NodeGetEvent(CUgraphNode node, CUevent *event)                   \
	{                                                                                                    \
		return get_event(node, type, event);                                                         \
	}                                                                                                    \
	CUDA_EXPORT CUresult cuGraph##kind##NodeSetEvent(CUgraphNode node, CUevent event)                    \
	{                                                                                                    \
		SET(node, params_event(type, event, &params));                                               \
	}

EVENT_NODE(EventRecord, CU_GRAPH_NODE_TYPE_EVENT_RECORD)
EVENT_NODE(EventWait, CU_GRAPH_NODE_TYPE_WAIT_EVENT)

/* ---- memory ---- */

static CUresult make_alloc(const CUDA_MEM_ALLOC_NODE_PARAMS *given, struct graph_params *ret_params)
{
	enum mempool_place place;
	CUresult r;

	if (!given || given->bytesize == 0 || (given->accessDescCount && !given->accessDescs))
		return CUDA_ERROR_INVALID_VALUE;
	r = mempool_check_properties(&given->poolProps, &place);
	if (r == CUDA_SUCCESS && (place != MEMPOOL_DEVICE || given->poolProps.handleTypes))
		r = CUDA_ERROR_NOT_SUPPORTED;
	if (r != CUDA_SUCCESS)
		return r;
	*ret_params = (struct graph_params){.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
	return graph_memory_new(context_current(), given->bytesize, &ret_params->memory);
}

/* The address is an output. */
static CUresult add_alloc(const struct where *where, CUDA_MEM_ALLOC_NODE_PARAMS *given)
{
	struct graph_params params;
	CUdeviceptr address;
	CUresult r = check(where);

	if (r == CUDA_SUCCESS)
		r = make_alloc(given, &params);
	if (r != CUDA_SUCCESS)
		return r;
	address = graph_memory_address(params.memory);
	r = add(where, &params);
	if (r == CUDA_SUCCESS)
		given->dptr = address;
	else
		graph_memory_reap();
	return r;
}

CUDA_EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *nodes,
	size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *given)
{
	return add_alloc(&(struct where){node, graph, nodes, NULL, count}, given);
}

CUDA_EXPORT CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *given)
{
	const struct graph_params *params;
	CUresult r = look(node, CU_GRAPH_NODE_TYPE_MEM_ALLOC, given, &params);

	if (r != CUDA_SUCCESS)
		return r;
	*given = (CUDA_MEM_ALLOC_NODE_PARAMS){
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_own()}},
		.bytesize = graph_memory_bytes(params->memory),
		.dptr = graph_memory_address(params->memory),
	};
	graph_leave();
	return CUDA_SUCCESS;
}

static CUresult make_free(CUdeviceptr address, struct graph_params *ret_params)
{
	*ret_params = (struct graph_params){.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .address = address};
	return graph_memory_is(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUDA_EXPORT CUresult cuGraphAddMemFreeNode(
	CUgraphNode *node, CUgraph graph, const CUgraphNode *nodes, size_t count, CUdeviceptr address)
{
	const struct where where = {node, graph, nodes, NULL, count};

	ADD(&where, make_free(address, &params));
}

CUDA_EXPORT CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *address)
{
	GET(node, CU_GRAPH_NODE_TYPE_MEM_FREE, address, *address = params->address);
}

/* ---- words ---- */

CUDA_EXPORT CUresult cuGraphAddBatchMemOpNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *nodes,
	size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS *given)
{
	const struct where where = {node, graph, nodes, NULL, count};

	ADD(&where, graph_params_batch(given, &params));
}

CUDA_EXPORT CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS *given)
{
	const struct graph_params *params;
	CUresult r = look(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, given, &params);

	if (r != CUDA_SUCCESS)
		return r;
	*given = (CUDA_BATCH_MEM_OP_NODE_PARAMS){
		.count = params->batch.count, .paramArray = params->batch.operations};
	graph_leave();
	given->ctx = context_current();
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuGraphBatchMemOpNodeSetParams(
	CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *given)
{
	SET(node, graph_params_batch(given, &params));
}

/* ---- conditions ---- */

CUDA_EXPORT CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *handle, CUgraph owner,
	CUcontext context, unsigned int value, unsigned int flags)
{
	struct graph_memory *memory;
	struct client_graph *graph;
	CUresult r = process_enter_context();

	if (r == CUDA_SUCCESS && (!handle || (flags & ~(unsigned int)CU_GRAPH_COND_ASSIGN_DEFAULT)))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = graph_memory_new(
			context ? context : context_current(), sizeof(CUgraphConditionalHandle), &memory);
	if (r != CUDA_SUCCESS)
		return r;
	*handle = graph_memory_address(memory);
	graph_enter();
	graph = graph_find(owner);
	if (graph) {
		r = graph_add_condition(graph, memory, value, flags & CU_GRAPH_COND_ASSIGN_DEFAULT);
	} else {
		graph_memory_unref(memory);
		r = CUDA_ERROR_INVALID_VALUE;
	}
	graph_leave();
	if (r != CUDA_SUCCESS)
		graph_memory_reap();
	return r;
}

/* The bodies are an output; the node owns them. */
static CUresult add_conditional(const struct where *where, CUDA_CONDITIONAL_NODE_PARAMS *given)
{
	const struct graph_params *made;
	struct graph_params params;
	CUresult r = params_branch(given, &params);

	if (r == CUDA_SUCCESS)
		r = add(where, &params);
	if (r == CUDA_SUCCESS)
		r = look(*where->ret, CU_GRAPH_NODE_TYPE_CONDITIONAL, given, &made);
	if (r != CUDA_SUCCESS)
		return r;
	given->phGraph_out = (CUgraph *)(void *)made->branch.bodies;
	graph_leave();
	return CUDA_SUCCESS;
}

/* ---- any type ---- */

static CUresult add_any(const struct where *where, CUgraphNodeParams *given)
{
	struct graph_params params;
	CUresult r = check(where);

	if (r == CUDA_SUCCESS && !given)
		r = CUDA_ERROR_INVALID_VALUE;
	if (r != CUDA_SUCCESS)
		return r;
	switch (given->type) {
	case CU_GRAPH_NODE_TYPE_EMPTY:
		params = (struct graph_params){.type = CU_GRAPH_NODE_TYPE_EMPTY};
		break;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		if (given->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)
			return add_moved(where, given->graph.graph);
		if (given->graph.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE)
			return CUDA_ERROR_INVALID_VALUE;
		r = make_child(given->graph.graph, &params);
		break;
	case CU_GRAPH_NODE_TYPE_CONDITIONAL:
		return add_conditional(where, &given->conditional);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		return add_alloc(where, &given->alloc);
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		r = make_free(given->free.dptr, &params);
		break;
	default:
		r = graph_params_any(given, NULL, &params);
		break;
	}
	return r == CUDA_SUCCESS ? add(where, &params) : r;
}

CUDA_EXPORT CUresult cuGraphAddNode(
	CUgraphNode *node, CUgraph graph, const CUgraphNode *nodes, size_t count, CUgraphNodeParams *given)
{
	return add_any(&(struct where){node, graph, nodes, NULL, count}, given);
}

CUDA_EXPORT CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *nodes,
	const CUgraphEdgeData *data, size_t count, CUgraphNodeParams *given)
{
	return add_any(&(struct where){node, graph, nodes, data, count}, given);
}

CUDA_EXPORT CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *given)
{
	if (given && given->type == CU_GRAPH_NODE_TYPE_KERNEL)
		return cuGraphKernelNodeSetParams_v2(node, &given->kernel);
	if (given && given->type == CU_GRAPH_NODE_TYPE_GRAPH)
		return set_child(node, &given->graph);
	SET(node, graph_params_any(given, NULL, &params));
}
