// See graph.h. Graphs and nodes lie in slabs, so that the handle of a destroyed object is refused,
// not followed. Both ends of an edge have a record of it.

#include "client/graph/graph.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/graph/memory.h"

#define GRAPHS (1u << 16)
#define NODES  (1u << 21)

_Static_assert(sizeof(struct client_graph) <= 1u << GRAPH_SHIFT, "a graph fits its place");
_Static_assert(sizeof(struct graph_node) <= 1u << GRAPH_NODE_SHIFT, "a node fits its place");

static struct slab graph_slab = SLAB_INIT(GRAPH_SHIFT, GRAPHS);
static struct slab node_slab = SLAB_INIT(GRAPH_NODE_SHIFT, NODES);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t serials; /* guarded by lock */

void graph_enter(void)
{
	pthread_mutex_lock(&lock);
}

void graph_leave(void)
{
	pthread_mutex_unlock(&lock);
}

struct client_graph *graph_find(CUgraph handle)
{
	return slab_find(&graph_slab, handle, GRAPH_MAGIC);
}

struct graph_node *graph_find_node(CUgraphNode handle)
{
	return slab_find(&node_slab, handle, GRAPH_NODE_MAGIC);
}

CUresult graph_new(struct client_graph **ret_graph)
{
	struct client_graph *graph = slab_take(&graph_slab);

	if (!graph)
		return CUDA_ERROR_OUT_OF_MEMORY;
	graph->serial = ++serials;
	atomic_store_explicit(&graph->object.live, GRAPH_MAGIC, memory_order_release);
	*ret_graph = graph;
	return CUDA_SUCCESS;
}

/* ---- edges ---- */

static struct graph_edge *find_edge(const struct graph_edges *edges, const struct graph_node *node)
{
	for (uint32_t i = 0; i < edges->count; ++i)
		if (edges->at[i].node == node)
			return &edges->at[i];
	return NULL;
}

static bool make_room(struct graph_edges *edges)
{
	uint32_t room = edges->room ? 2 * edges->room : 2;
	struct graph_edge *at;

	if (edges->count < edges->room)
		return true;
	at = realloc(edges->at, room * sizeof(*at));
	if (!at)
		return false;
	edges->at = at;
	edges->room = room;
	return true;
}

static void drop_edge(struct graph_edges *edges, const struct graph_node *node)
{
	struct graph_edge *edge = find_edge(edges, node);

	if (edge) {
		size_t behind = (size_t)(&edges->at[--edges->count] - edge);

		memmove(edge, edge + 1, behind * sizeof(*edge));
	}
}

static bool is_known(const struct graph_node *from, const struct graph_node *to, const CUgraphEdgeData *data)
{
	static const unsigned char zero[sizeof(data->reserved)];
	bool kernels = from->params.type == CU_GRAPH_NODE_TYPE_KERNEL &&
		       to->params.type == CU_GRAPH_NODE_TYPE_KERNEL;

	if (data->to_port || memcmp(data->reserved, zero, sizeof(zero)) != 0)
		return false;
	if (data->from_port == 0 && data->type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT)
		return true;
	return kernels && data->from_port <= CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER &&
	       data->type <= CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
}

static const CUgraphEdgeData ordinary;

CUresult graph_connect(struct graph_node *from, struct graph_node *to, const CUgraphEdgeData *data)
{
	data = data ? data : &ordinary;
	if (from == to || from->graph != to->graph || !is_known(from, to, data) ||
		find_edge(&to->before, from))
		return CUDA_ERROR_INVALID_VALUE;
	if (!make_room(&from->behind) || !make_room(&to->before))
		return CUDA_ERROR_OUT_OF_MEMORY;
	from->behind.at[from->behind.count++] = (struct graph_edge){to, *data};
	to->before.at[to->before.count++] = (struct graph_edge){from, *data};
	return CUDA_SUCCESS;
}

CUresult graph_disconnect(struct graph_node *from, struct graph_node *to)
{
	if (!find_edge(&to->before, from))
		return CUDA_ERROR_INVALID_VALUE;
	drop_edge(&to->before, from);
	drop_edge(&from->behind, to);
	return CUDA_SUCCESS;
}

/* ---- nodes ---- */

uint32_t graph_inside(const struct graph_params *params, struct client_graph *const **ret_graphs)
{
	if (params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
		*ret_graphs = params->branch.bodies;
		return params->branch.count;
	}
	*ret_graphs = &params->child;
	return params->type == CU_GRAPH_NODE_TYPE_GRAPH;
}

static void free_inside(const struct graph_params *params, struct graph_object **objects)
{
	struct client_graph *const *graphs;
	uint32_t count = graph_inside(params, &graphs);

	for (uint32_t i = 0; i < count; ++i)
		if (graphs[i])
			graph_free(graphs[i], objects);
}

/* Sets the owner of the graphs in a new node, as far as these are made. */
static void own_inside(struct graph_node *node)
{
	struct client_graph *const *graphs;
	uint32_t count = graph_inside(&node->params, &graphs);

	for (uint32_t i = 0; i < count; ++i)
		if (graphs[i])
			graphs[i]->parent = node;
}

static struct graph_node *free_node(struct graph_node *node, struct graph_object **objects)
{
	free_inside(&node->params, objects);
	params_deinit(&node->params);
	free(node->before.at);
	free(node->behind.at);
	atomic_store_explicit(&node->object.live, 0, memory_order_release);
	slab_give(&node_slab, node);
	return NULL;
}

void graph_drop_params(struct graph_params *params)
{
	struct graph_object *objects = NULL;

	free_inside(params, &objects);
	params_deinit(params);
	/* Copies of a graph that is there: no destructor runs. */
	graph_objects_drop(objects, false);
}

/* A node without edges at the end of a graph. Takes the parameters over, also on failure. */
static CUresult append(struct client_graph *graph, struct graph_params *params, struct graph_node **ret_node)
{
	uint32_t room = graph->room ? 2 * graph->room : 8;
	struct graph_node *node = NULL, **nodes;

	if (graph->count == graph->room) {
		nodes = realloc(graph->nodes, room * sizeof(*nodes));
		if (!nodes)
			goto out;
		graph->nodes = nodes;
		graph->room = room;
	}
	node = slab_take(&node_slab);
	if (!node)
		goto out;
	node->graph = graph;
	node->serial = ++serials;
	node->params = *params;
	own_inside(node);
	graph->nodes[graph->count++] = node;
	atomic_store_explicit(&node->object.live, GRAPH_NODE_MAGIC, memory_order_release);
	*ret_node = node;
	return CUDA_SUCCESS;
out:
	graph_drop_params(params);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

bool graph_is_memory(CUgraphNodeType type)
{
	return type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE;
}

/* True if a node of the graph frees the memory that the new node is to free. */
static bool frees(const struct client_graph *graph, const struct graph_params *params)
{
	bool is = false;

	for (uint32_t i = 0; !is && i < graph->count; ++i)
		is = graph->nodes[i]->params.type == CU_GRAPH_NODE_TYPE_MEM_FREE &&
		     graph->nodes[i]->params.address == params->address;
	return is;
}

/* ---- conditions ---- */

/* The graph around a graph that a node owns, else the graph itself. Not followed through children:
 * these are copies. */
static struct client_graph *outermost(struct client_graph *graph)
{
	while (graph->parent)
		graph = graph->parent->graph;
	return graph;
}

CUresult graph_add_condition(
	struct client_graph *graph, struct graph_memory *memory, unsigned int value, bool assigns)
{
	struct graph_condition *condition = malloc(sizeof(*condition));

	if (!condition) {
		graph_memory_unref(memory);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	graph = outermost(graph);
	*condition = (struct graph_condition){graph->conditions, memory, value, assigns};
	graph->conditions = condition;
	return CUDA_SUCCESS;
}

static CUresult clone_conditions(const struct client_graph *graph, struct client_graph *clone)
{
	CUresult r = CUDA_SUCCESS;

	for (const struct graph_condition *at = graph->conditions; r == CUDA_SUCCESS && at; at = at->next) {
		graph_memory_ref(at->memory);
		r = graph_add_condition(clone, at->memory, at->value, at->assigns);
	}
	return r;
}

static void free_conditions(struct client_graph *graph)
{
	struct graph_condition *condition;

	while ((condition = graph->conditions)) {
		graph->conditions = condition->next;
		graph_memory_unref(condition->memory);
		free(condition);
	}
}

/* True if a node of the graph, or of a graph inside it, uses a condition's handle. */
static bool is_used(const struct client_graph *graph, CUgraphConditionalHandle handle)
{
	bool is = false;

	for (uint32_t i = 0; !is && i < graph->count; ++i) {
		const struct graph_params *params = &graph->nodes[i]->params;
		struct client_graph *const *inside;
		uint32_t count = graph_inside(params, &inside);

		is = params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL && params->branch.handle == handle;
		for (uint32_t j = 0; !is && j < count; ++j)
			is = is_used(inside[j], handle);
	}
	return is;
}

/* Makes the bodies of a node that is to be added. */
static CUresult make_bodies(struct client_graph *graph, struct graph_params *params)
{
	const struct graph_condition *condition = outermost(graph)->conditions;
	struct graph_branch *branch = &params->branch;
	CUresult r = CUDA_SUCCESS;

	while (condition && graph_memory_address(condition->memory) != branch->handle)
		condition = condition->next;
	if (!condition || is_used(outermost(graph), branch->handle))
		return CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; r == CUDA_SUCCESS && i < branch->count; ++i)
		r = graph_new(&branch->bodies[i]);
	return r;
}

/* Refuses nodes that may not be added, and makes the bodies of a condition. */
static CUresult prepare(struct client_graph *graph, struct graph_params *params)
{
	if (graph->parent && graph_is_memory(params->type))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (params->type == CU_GRAPH_NODE_TYPE_MEM_FREE && frees(graph, params))
		return CUDA_ERROR_INVALID_VALUE;
	if (params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
		return make_bodies(graph, params);
	return CUDA_SUCCESS;
}

CUresult graph_add(struct client_graph *graph, struct graph_params *params, const CUgraphNode *nodes,
	const CUgraphEdgeData *data, size_t count, struct graph_node **ret_node)
{
	struct graph_node *node, *from;
	CUresult r = prepare(graph, params);

	if (r != CUDA_SUCCESS) {
		graph_drop_params(params);
		return r;
	}
	r = append(graph, params, &node);
	if (r != CUDA_SUCCESS)
		return r;
	for (size_t i = 0; r == CUDA_SUCCESS && i < count; ++i) {
		from = graph_find_node(nodes[i]);
		r = from ? graph_connect(from, node, data ? &data[i] : NULL) : CUDA_ERROR_INVALID_VALUE;
	}
	if (r == CUDA_SUCCESS)
		*ret_node = node;
	else
		graph_remove(node);
	return r;
}

static uint32_t position(const struct graph_node *node)
{
	uint32_t at = 0;

	while (node->graph->nodes[at] != node)
		++at;
	return at;
}

/* The user objects of a freed child stay in the graph. */
static void keep_objects(struct client_graph *graph, struct graph_object *objects)
{
	struct graph_object *held = graph->objects;

	if (!objects)
		return;
	graph->objects = objects;
	graph_objects_join(objects, held);
}

void graph_remove(struct graph_node *node)
{
	struct client_graph *graph = node->graph;
	struct graph_object *objects = NULL;
	uint32_t at = position(node);

	for (uint32_t i = 0; i < node->before.count; ++i)
		drop_edge(&node->before.at[i].node->behind, node);
	for (uint32_t i = 0; i < node->behind.count; ++i)
		drop_edge(&node->behind.at[i].node->before, node);
	memmove(&graph->nodes[at], &graph->nodes[at + 1], (--graph->count - at) * sizeof(graph->nodes[0]));
	free_node(node, &objects);
	keep_objects(graph, objects);
}

void graph_free(struct client_graph *graph, struct graph_object **objects)
{
	for (uint32_t i = 0; i < graph->count; ++i)
		free_node(graph->nodes[i], objects);
	free(graph->nodes);
	free_conditions(graph);
	if (graph->objects)
		graph_objects_join(graph->objects, *objects);
	if (graph->objects)
		*objects = graph->objects;
	atomic_store_explicit(&graph->object.live, 0, memory_order_release);
	slab_give(&graph_slab, graph);
}

void graph_set_child(struct graph_node *node, struct client_graph *child)
{
	struct graph_object *objects = NULL;

	graph_free(node->params.child, &objects);
	keep_objects(node->graph, objects);
	node->params.child = child;
	child->parent = node;
}

/* ---- copies ---- */

static CUresult clone_node(const struct graph_node *node, struct client_graph *clone)
{
	struct client_graph *const *graphs, *const *clones;
	uint32_t count = graph_inside(&node->params, &graphs);
	struct graph_params params;
	struct graph_node *made;
	CUresult r = params_clone(&node->params, &params);

	if (r != CUDA_SUCCESS)
		return r;
	r = append(clone, &params, &made);
	if (r != CUDA_SUCCESS)
		return r;
	made->origin = node->serial;
	made->disabled = node->disabled;
	graph_inside(&made->params, &clones);
	for (uint32_t i = 0; r == CUDA_SUCCESS && i < count; ++i)
		r = graph_clone(graphs[i], (struct client_graph **)(uintptr_t)&clones[i]);
	own_inside(made);
	return r;
}

static CUresult clone_edges(const struct client_graph *graph, struct client_graph *clone)
{
	CUresult r = CUDA_SUCCESS;

	for (uint32_t i = 0; i < graph->count; ++i)
		graph->nodes[i]->mark = i;
	for (uint32_t i = 0; i < graph->count; ++i) {
		const struct graph_edges *before = &graph->nodes[i]->before;

		for (uint32_t j = 0; r == CUDA_SUCCESS && j < before->count; ++j)
			r = graph_connect(
				clone->nodes[before->at[j].node->mark], clone->nodes[i], &before->at[j].data);
	}
	return r;
}

CUresult graph_clone(const struct client_graph *graph, struct client_graph **ret_clone)
{
	struct graph_object *objects = NULL;
	struct client_graph *clone;
	CUresult r = graph_new(&clone);

	if (r != CUDA_SUCCESS)
		return r;
	clone->origin = graph->serial;
	for (uint32_t i = 0; r == CUDA_SUCCESS && i < graph->count; ++i)
		r = clone_node(graph->nodes[i], clone);
	if (r == CUDA_SUCCESS)
		r = clone_edges(graph, clone);
	if (r == CUDA_SUCCESS)
		r = clone_conditions(graph, clone);
	if (r == CUDA_SUCCESS)
		r = graph_objects_clone(graph, clone);
	if (r == CUDA_SUCCESS) {
		*ret_clone = clone;
		return CUDA_SUCCESS;
	}
	graph_free(clone, &objects);
	/* The original still holds every object: no destructor runs. */
	graph_objects_drop(objects, false);
	return r;
}

/* Serials of origins grow along the list, as the serials of the nodes did. Behind these come nodes
 * that were added to the clone itself, without an origin. */
static struct graph_node *search(const struct client_graph *clone, uint64_t serial)
{
	uint32_t first = 0, end = clone->count;

	while (first < end) {
		uint32_t middle = first + (end - first) / 2;
		uint64_t origin = clone->nodes[middle]->origin;

		if (origin == serial)
			return clone->nodes[middle];
		if (origin && origin < serial)
			first = middle + 1;
		else
			end = middle;
	}
	return NULL;
}

struct graph_node *graph_find_origin(const struct client_graph *clone, uint64_t serial)
{
	struct graph_node *found = search(clone, serial);

	for (uint32_t i = 0; !found && i < clone->count; ++i) {
		struct client_graph *const *inside;
		uint32_t count = graph_inside(&clone->nodes[i]->params, &inside);

		for (uint32_t j = 0; !found && j < count; ++j)
			found = graph_find_origin(inside[j], serial);
	}
	return found;
}

/* ---- graphs in graphs ---- */

bool graph_is_inside(const struct client_graph *graph, const struct client_graph *whole)
{
	while (graph && graph != whole)
		graph = graph->parent ? graph->parent->graph : NULL;
	return graph != NULL;
}

bool graph_is_captured(const struct client_graph *graph)
{
	bool is = graph->capturing;

	for (uint32_t i = 0; !is && i < graph->count; ++i) {
		struct client_graph *const *inside;
		uint32_t count = graph_inside(&graph->nodes[i]->params, &inside);

		for (uint32_t j = 0; !is && j < count; ++j)
			is = graph_is_captured(inside[j]);
	}
	return is;
}

bool graph_is_unique(const struct client_graph *graph)
{
	bool is = graph->conditions != NULL;

	for (uint32_t i = 0; !is && i < graph->count; ++i)
		is = graph_is_memory(graph->nodes[i]->params.type);
	return is;
}

/* ---- order ---- */

bool graph_mark_before(const struct client_graph *graph, const CUgraphNode *ends, size_t count)
{
	struct graph_node **stack = malloc((graph->count + 1) * sizeof(struct graph_node *));
	uint32_t depth = 0;

	if (!stack)
		return false;
	for (uint32_t i = 0; i < graph->count; ++i)
		graph->nodes[i]->mark = 0;
	for (size_t i = 0; i < count; ++i) {
		stack[depth] = graph_find_node(ends[i]);
		stack[depth++]->mark = 1;
	}
	while (depth) {
		const struct graph_node *node = stack[--depth];

		for (uint32_t i = 0; i < node->before.count; ++i) {
			struct graph_node *next = node->before.at[i].node;

			if (!next->mark)
				stack[depth++] = next;
			next->mark = 1;
		}
	}
	free(stack);
	return true;
}
