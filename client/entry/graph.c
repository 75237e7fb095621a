// Entry points: graphs as a whole, their edges, questions about graphs, and the memory of graphs.

#include "client/entry/entry.h"

#include <string.h>

#include "client/graph/build.h"
#include "client/graph/dot.h"
#include "client/graph/graph.h"
#include "client/graph/memory.h"
#include "client/state/device.h"
#include "client/state/start.h"

/* First lines: the graph behind a handle, with the lock held on success. */
static CUresult begin(CUgraph handle, const void *must_be, struct client_graph **ret_graph)
{
	CUresult r = process_enter();

	if (r != CUDA_SUCCESS)
		return r;
	graph_enter();
	*ret_graph = graph_find(handle);
	if (*ret_graph && must_be)
		return CUDA_SUCCESS;
	graph_leave();
	return CUDA_ERROR_INVALID_VALUE;
}

static CUresult begin_node(CUgraphNode handle, const void *must_be, struct graph_node **ret_node)
{
	CUresult r = process_enter();

	if (r != CUDA_SUCCESS)
		return r;
	graph_enter();
	*ret_node = graph_find_node(handle);
	if (*ret_node && must_be)
		return CUDA_SUCCESS;
	graph_leave();
	return CUDA_ERROR_INVALID_VALUE;
}

CUDA_EXPORT CUresult cuGraphCreate(CUgraph *handle, unsigned int flags)
{
	struct client_graph *graph;
	CUresult r = process_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (!handle || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	graph_enter();
	r = graph_new(&graph);
	graph_leave();
	if (r == CUDA_SUCCESS)
		*handle = graph_handle(graph);
	return r;
}

CUDA_EXPORT CUresult cuGraphDestroy(CUgraph handle)
{
	struct graph_object *objects = NULL;
	struct client_graph *graph;
	CUresult r = begin(handle, handle, &graph);

	if (r != CUDA_SUCCESS)
		return r;
	/* A child graph belongs to its node. */
	if (graph->parent || graph_is_captured(graph))
		r = CUDA_ERROR_INVALID_VALUE;
	else
		graph_free(graph, &objects);
	graph_leave();
	graph_objects_drop(objects, true);
	graph_memory_reap();
	return r;
}

CUDA_EXPORT CUresult cuGraphClone(CUgraph *clone, CUgraph handle)
{
	struct client_graph *graph, *made;
	CUresult r = begin(handle, clone, &graph);

	if (r != CUDA_SUCCESS)
		return r;
	if (graph_is_unique(graph))
		r = CUDA_ERROR_NOT_SUPPORTED;
	if (r == CUDA_SUCCESS)
		r = graph_clone(graph, &made);
	if (r == CUDA_SUCCESS)
		*clone = graph_handle(made);
	graph_leave();
	return r;
}

CUDA_EXPORT CUresult cuGraphNodeFindInClone(CUgraphNode *found, CUgraphNode original, CUgraph clone)
{
	struct client_graph *graph;
	const struct graph_node *node, *copy;
	CUresult r = begin(clone, found, &graph);

	if (r != CUDA_SUCCESS)
		return r;
	node = graph_find_node(original);
	copy = node ? graph_find_origin(graph, node->serial) : NULL;
	if (copy)
		*found = graph_node_handle(copy);
	graph_leave();
	return copy ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* From a graph with memory nodes neither nodes nor edges can be removed. */
static CUresult check_removal(const struct client_graph *graph)
{
	CUresult r = CUDA_SUCCESS;

	for (uint32_t i = 0; r == CUDA_SUCCESS && i < graph->count; ++i)
		if (graph_is_memory(graph->nodes[i]->params.type))
			r = CUDA_ERROR_NOT_SUPPORTED;
	return r;
}

/* A node that a capture still needs cannot be removed. */
static bool is_captured(const struct graph_node *node)
{
	struct client_graph *const *inside;
	uint32_t count = graph_inside(&node->params, &inside);
	bool is = node->graph->capturing;

	for (uint32_t i = 0; !is && i < count; ++i)
		is = graph_is_captured(inside[i]);
	return is;
}

CUDA_EXPORT CUresult cuGraphDestroyNode(CUgraphNode handle)
{
	struct graph_node *node;
	CUresult r = begin_node(handle, handle, &node);

	if (r != CUDA_SUCCESS)
		return r;
	r = is_captured(node) ? CUDA_ERROR_INVALID_VALUE : check_removal(node->graph);
	if (r == CUDA_SUCCESS)
		graph_remove(node);
	graph_leave();
	return r;
}

CUDA_EXPORT CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *type)
{
	struct graph_node *node;
	CUresult r = begin_node(handle, type, &node);

	if (r != CUDA_SUCCESS)
		return r;
	*type = node->params.type;
	graph_leave();
	return CUDA_SUCCESS;
}

/* ---- lists ---- */

/* An array of the program's with room for some, of which fewer or more are there. Without an array
 * the call only returns the number; unused room is filled with zeros. */
struct list {
	CUgraphNode *nodes, *others;
	CUgraphEdgeData *data;
	size_t room, found;
	bool can_tell, lossy; /* of edges that are not ordinary */
};

static void list_add(struct list *list, const struct graph_node *node, const struct graph_node *other,
	const CUgraphEdgeData *data)
{
	size_t at = list->found++;

	if (at >= list->room)
		return;
	if (data && (data->from_port || data->type) && !list->can_tell && (list->nodes || list->others))
		list->lossy = true;
	if (list->nodes)
		list->nodes[at] = graph_node_handle(node);
	if (list->others)
		list->others[at] = graph_node_handle(other);
	if (list->data && data)
		list->data[at] = *data;
}

static CUresult list_end(struct list *list, size_t *count)
{
	bool wanted = list->nodes || list->others || list->data;

	for (size_t at = list->found; wanted && at < list->room; ++at) {
		if (list->nodes)
			list->nodes[at] = NULL;
		if (list->others)
			list->others[at] = NULL;
	}
	*count = list->found < list->room || !wanted ? list->found : list->room;
	return list->lossy ? CUDA_ERROR_LOSSY_QUERY : CUDA_SUCCESS;
}

static CUresult get_nodes(CUgraph handle, CUgraphNode *nodes, size_t *count, bool roots)
{
	struct list list = {.nodes = nodes, .room = nodes && count ? *count : 0};
	struct client_graph *graph;
	CUresult r = begin(handle, count, &graph);

	if (r != CUDA_SUCCESS)
		return r;
	for (uint32_t i = 0; i < graph->count; ++i)
		if (!roots || graph->nodes[i]->before.count == 0)
			list_add(&list, graph->nodes[i], NULL, NULL);
	graph_leave();
	return list_end(&list, count);
}

CUDA_EXPORT CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	return get_nodes(graph, nodes, count, false);
}

CUDA_EXPORT CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	return get_nodes(graph, nodes, count, true);
}

static CUresult get_edges(CUgraph handle, struct list list, size_t *count)
{
	struct client_graph *graph;
	CUresult r = begin(handle, count, &graph);

	if (r != CUDA_SUCCESS)
		return r;
	list.room = list.nodes || list.others ? *count : 0;
	for (uint32_t i = 0; i < graph->count; ++i) {
		const struct graph_node *from = graph->nodes[i];

		for (uint32_t j = 0; j < from->behind.count; ++j)
			list_add(&list, from, from->behind.at[j].node, &from->behind.at[j].data);
	}
	graph_leave();
	return list_end(&list, count);
}

CUDA_EXPORT CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
	return get_edges(graph, (struct list){.nodes = from, .others = to}, count);
}

CUDA_EXPORT CUresult cuGraphGetEdges_v2(
	CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *count)
{
	return get_edges(
		graph, (struct list){.nodes = from, .others = to, .data = data, .can_tell = data}, count);
}

static CUresult get_neighbours(CUgraphNode handle, struct list list, size_t *count, bool behind)
{
	struct graph_node *node;
	const struct graph_edges *edges;
	CUresult r = begin_node(handle, count, &node);

	if (r != CUDA_SUCCESS)
		return r;
	list.room = list.nodes ? *count : 0;
	edges = behind ? &node->behind : &node->before;
	for (uint32_t i = 0; i < edges->count; ++i)
		list_add(&list, edges->at[i].node, NULL, &edges->at[i].data);
	graph_leave();
	return list_end(&list, count);
}

CUDA_EXPORT CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
	return get_neighbours(node, (struct list){.nodes = nodes}, count, false);
}

CUDA_EXPORT CUresult cuGraphNodeGetDependencies_v2(
	CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *data, size_t *count)
{
	return get_neighbours(
		node, (struct list){.nodes = nodes, .data = data, .can_tell = data}, count, false);
}

CUDA_EXPORT CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
	return get_neighbours(node, (struct list){.nodes = nodes}, count, true);
}

CUDA_EXPORT CUresult cuGraphNodeGetDependentNodes_v2(
	CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *data, size_t *count)
{
	return get_neighbours(
		node, (struct list){.nodes = nodes, .data = data, .can_tell = data}, count, true);
}

/* ---- edges ---- */

struct ends {
	struct graph_node *from, *to;
};

/* Return: whether both are nodes of the graph */
static bool find_ends(
	const struct client_graph *graph, CUgraphNode from, CUgraphNode to, struct ends *ret_ends)
{
	struct graph_node *a = graph_find_node(from), *b = graph_find_node(to);

	*ret_ends = (struct ends){a, b};
	return a && b && a->graph == graph && b->graph == graph;
}

/* Checks the arguments and begins. */
static CUresult begin_edges(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to, size_t count,
	struct client_graph **ret_graph)
{
	CUresult r = begin(handle, handle, ret_graph);

	if (r == CUDA_SUCCESS && count && (!from || !to)) {
		graph_leave();
		r = CUDA_ERROR_INVALID_VALUE;
	}
	return r;
}

/* All or none. */
static CUresult add_edges(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to,
	const CUgraphEdgeData *data, size_t count)
{
	struct client_graph *graph;
	CUresult r = begin_edges(handle, from, to, count, &graph);
	struct ends ends;
	size_t done = 0;

	if (r != CUDA_SUCCESS)
		return r;
	for (; r == CUDA_SUCCESS && done < count; done += r == CUDA_SUCCESS)
		r = find_ends(graph, from[done], to[done], &ends)
			    ? graph_connect(ends.from, ends.to, data ? &data[done] : NULL)
			    : CUDA_ERROR_INVALID_VALUE;
	while (r != CUDA_SUCCESS && done > 0) {
		--done;
		find_ends(graph, from[done], to[done], &ends);
		graph_disconnect(ends.from, ends.to);
	}
	graph_leave();
	return r;
}

/* Matches the driver: the edge's data is ignored, and the edges before a failing edge are
 * removed. */
static CUresult remove_edges(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
	struct client_graph *graph;
	CUresult r = begin_edges(handle, from, to, count, &graph);
	struct ends ends;

	if (r != CUDA_SUCCESS)
		return r;
	if (count)
		r = check_removal(graph);
	for (size_t i = 0; r == CUDA_SUCCESS && i < count; i++)
		r = find_ends(graph, from[i], to[i], &ends) ? graph_disconnect(ends.from, ends.to)
							    : CUDA_ERROR_INVALID_VALUE;
	graph_leave();
	return r;
}

CUDA_EXPORT CUresult cuGraphAddDependencies(
	CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
	return add_edges(graph, from, to, NULL, count);
}

CUDA_EXPORT CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
	const CUgraphEdgeData *data, size_t count)
{
	return add_edges(graph, from, to, data, count);
}

CUDA_EXPORT CUresult cuGraphRemoveDependencies(
	CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count)
{
	return remove_edges(graph, from, to, count);
}

CUDA_EXPORT CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from,
	const CUgraphNode *to, const CUgraphEdgeData *data, size_t count)
{
	(void)data;
	return remove_edges(graph, from, to, count);
}

CUDA_EXPORT CUresult cuGraphDebugDotPrint(CUgraph handle, const char *path, unsigned int flags)
{
	struct client_graph *graph;
	CUresult r = begin(handle, path, &graph);

	(void)flags; /* the level of detail */
	if (r != CUDA_SUCCESS)
		return r;
	r = dot_write(graph, path);
	graph_leave();
	return r;
}

/* ---- memory ---- */

static CUresult check_device(CUdevice device)
{
	CUresult r = start_enter(device);

	return r == CUDA_SUCCESS ? device_check(device) : r;
}

CUDA_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device)
{
	CUresult r = check_device(device);

	if (r != CUDA_SUCCESS)
		return r;
	/* Builds that ran when their graphs were destroyed have memory, too. */
	build_reap();
	graph_memory_trim();
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuDeviceGetGraphMemAttribute(
	CUdevice device, CUgraphMem_attribute attribute, void *value)
{
	CUresult r = check_device(device);

	if (r != CUDA_SUCCESS)
		return r;
	return value ? graph_memory_get(attribute, value) : CUDA_ERROR_INVALID_VALUE;
}

CUDA_EXPORT CUresult cuDeviceSetGraphMemAttribute(
	CUdevice device, CUgraphMem_attribute attribute, void *value)
{
	CUresult r = check_device(device);
	uint64_t bytes;

	if (r != CUDA_SUCCESS)
		return r;
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&bytes, value, sizeof(bytes));
	return graph_memory_set(attribute, bytes);
}
