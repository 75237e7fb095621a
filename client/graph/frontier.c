// See frontier.h.

#include "client/graph/frontier.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void frontier_deinit(struct frontier *frontier)
{
	free(frontier->nodes);
	free(frontier->data);
	*frontier = (struct frontier){0};
}

static bool make_room(struct frontier *frontier, size_t count)
{
	CUgraphNode *nodes;
	CUgraphEdgeData *data;

	if (count <= frontier->room)
		return true;
	nodes = realloc(frontier->nodes, count * sizeof(CUgraphNode));
	if (nodes)
		frontier->nodes = nodes;
	data = nodes ? realloc(frontier->data, count * sizeof(*data)) : NULL;
	if (!data)
		return false;
	frontier->data = data;
	frontier->room = count;
	return true;
}

CUresult frontier_add(struct frontier *frontier, CUgraphNode node, const CUgraphEdgeData *data)
{
	static const CUgraphEdgeData ordinary;

	data = data ? data : &ordinary;
	for (size_t i = 0; i < frontier->count; ++i) {
		if (frontier->nodes[i] != node)
			continue;
		if (memcmp(&frontier->data[i], data, sizeof(*data)) != 0)
			frontier->data[i] = ordinary;
		return CUDA_SUCCESS;
	}
	if (!make_room(frontier, frontier->count + 1))
		return CUDA_ERROR_OUT_OF_MEMORY;
	frontier->nodes[frontier->count] = node;
	frontier->data[frontier->count++] = *data;
	return CUDA_SUCCESS;
}

CUresult frontier_add_all(
	struct frontier *frontier, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count)
{
	CUresult r = CUDA_SUCCESS;

	for (size_t i = 0; r == CUDA_SUCCESS && i < count; ++i)
		r = frontier_add(frontier, nodes[i], data ? &data[i] : NULL);
	return r;
}
