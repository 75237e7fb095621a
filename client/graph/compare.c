// See compare.h. Marks of both graphs are used.

#include "client/graph/compare.h"

#include <stdlib.h>
#include <string.h>

static CUgraphExecUpdateResult blame(struct graph_node *node, const struct graph_node *from,
	CUgraphExecUpdateResult result, CUgraphExecUpdateResultInfo *info)
{
	info->result = result;
	info->errorNode = node ? graph_node_handle(node) : NULL;
	info->errorFromNode = from ? graph_node_handle(from) : NULL;
	return result;
}

/* Pairs of nodes of two graphs, by the index of my node, which is its mark. A node of theirs has
 * the same mark once it is paired. */
struct pairs {
	struct graph_node **theirs;
	struct graph_node **stack; /* nodes of mine whose edges are still to be followed */
	uint32_t depth, count;
};

#define UNPAIRED UINT32_MAX

static bool pair(struct pairs *pairs, struct graph_node *mine, struct graph_node *theirs)
{
	struct graph_node **partner = &pairs->theirs[mine->mark];

	if (*partner || theirs->mark != UNPAIRED)
		return *partner == theirs;
	*partner = theirs;
	theirs->mark = mine->mark;
	pairs->stack[pairs->depth++] = mine;
	pairs->count++;
	return true;
}

static struct graph_node *next_end(const struct client_graph *graph, uint32_t *at)
{
	while (*at < graph->count && graph->nodes[*at]->behind.count)
		++*at;
	return *at < graph->count ? graph->nodes[(*at)++] : NULL;
}

/* From the last nodes along the edges. Return: true if all nodes have partners. */
static bool pair_all(struct pairs *pairs, const struct client_graph *mine, const struct client_graph *theirs)
{
	uint32_t i = 0, j = 0;
	struct graph_node *a, *b;
	bool fits = true;

	while (fits && (a = next_end(mine, &i)))
		fits = (b = next_end(theirs, &j)) && pair(pairs, a, b);
	while (fits && pairs->depth) {
		a = pairs->stack[--pairs->depth];
		b = pairs->theirs[a->mark];
		fits = a->before.count == b->before.count;
		for (uint32_t k = 0; fits && k < a->before.count; ++k)
			fits = pair(pairs, a->before.at[k].node, b->before.at[k].node);
	}
	return fits && pairs->count == mine->count;
}

/* The driver demands the same order of the last nodes and of each node's edges. The order of
 * creation may differ if streams capture side by side. Theirs is a copy with as many nodes, and
 * gets the order of mine if the graphs have the same form. */
static void arrange(const struct client_graph *mine, const struct client_graph *theirs)
{
	struct graph_node **room = calloc(2 * (size_t)mine->count + 1, sizeof(struct graph_node *));
	struct pairs pairs = {.theirs = room, .stack = room + mine->count};

	if (!room)
		return;
	for (uint32_t i = 0; i < mine->count; ++i) {
		mine->nodes[i]->mark = i;
		theirs->nodes[i]->mark = UNPAIRED;
	}
	if (pair_all(&pairs, mine, theirs) && mine->count)
		memcpy(theirs->nodes, pairs.theirs, mine->count * sizeof(struct graph_node *));
	free(room);
}

static bool same_edges(struct graph_node *mine, struct graph_node *theirs, CUgraphExecUpdateResultInfo *info)
{
	bool same = mine->before.count == theirs->before.count;

	for (uint32_t i = 0; same && i < mine->before.count; ++i) {
		const struct graph_edge *a = &mine->before.at[i], *b = &theirs->before.at[i];

		same = a->node->mark == b->node->mark && memcmp(&a->data, &b->data, sizeof(a->data)) == 0;
		if (!same)
			blame(theirs, b->node, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, info);
	}
	if (!same && !info->errorNode)
		blame(theirs, NULL, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, info);
	return same;
}

static CUgraphExecUpdateResult compare_bodies(
	struct graph_node *mine, struct graph_node *theirs, CUgraphExecUpdateResultInfo *info)
{
	const struct graph_branch *a = &mine->params.branch, *b = &theirs->params.branch;
	CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;

	if (a->kind != b->kind || a->count != b->count)
		return blame(theirs, NULL, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, info);
	for (uint32_t i = 0; !result && i < a->count; ++i)
		result = graph_compare(a->bodies[i], b->bodies[i], info);
	return result;
}

static CUgraphExecUpdateResult compare_node(
	struct graph_node *mine, struct graph_node *theirs, CUgraphExecUpdateResultInfo *info)
{
	CUgraphNodeType type = mine->params.type;

	if (type != theirs->params.type)
		return blame(theirs, NULL, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, info);
	if (!same_edges(mine, theirs, info))
		return info->result;
	if (type == CU_GRAPH_NODE_TYPE_GRAPH)
		return graph_compare(mine->params.child, theirs->params.child, info);
	if (type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
		return compare_bodies(mine, theirs, info);
	return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

CUgraphExecUpdateResult graph_compare(
	const struct client_graph *mine, const struct client_graph *theirs, CUgraphExecUpdateResultInfo *info)
{
	CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;

	if (mine->count != theirs->count)
		return blame(NULL, NULL, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, info);
	arrange(mine, theirs);
	for (uint32_t i = 0; i < mine->count; ++i)
		mine->nodes[i]->mark = theirs->nodes[i]->mark = i;
	for (uint32_t i = 0; !result && i < mine->count; ++i)
		result = compare_node(mine->nodes[i], theirs->nodes[i], info);
	return result;
}
