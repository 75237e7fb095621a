// See tips.h.

#include "client/graph/tips.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void tips_deinit(struct tips *tips)
{
	free(tips->nodes);
	free(tips->data);
	*tips = (struct tips){0};
}

static bool make_room(struct tips *tips, size_t count)
{
	CUgraphNode *nodes;
	CUgraphEdgeData *data;

	if (count <= tips->room)
		return true;
	nodes = realloc(tips->nodes, count * sizeof(CUgraphNode));
	if (nodes)
		tips->nodes = nodes;
	data = nodes ? realloc(tips->data, count * sizeof(*data)) : NULL;
	if (!data)
		return false;
	tips->data = data;
	tips->room = count;
	return true;
}

CUresult tips_add(struct tips *tips, CUgraphNode node, const CUgraphEdgeData *data)
{
	static const CUgraphEdgeData ordinary;

	data = data ? data : &ordinary;
	for (size_t i = 0; i < tips->count; ++i) {
		if (tips->nodes[i] != node)
			continue;
		if (memcmp(&tips->data[i], data, sizeof(*data)) != 0)
			tips->data[i] = ordinary;
		return CUDA_SUCCESS;
	}
	if (!make_room(tips, tips->count + 1))
		return CUDA_ERROR_OUT_OF_MEMORY;
	tips->nodes[tips->count] = node;
	tips->data[tips->count++] = *data;
	return CUDA_SUCCESS;
}

CUresult tips_add_all(struct tips *tips, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count)
{
	CUresult r = CUDA_SUCCESS;

	for (size_t i = 0; r == CUDA_SUCCESS && i < count; ++i)
		r = tips_add(tips, nodes[i], data ? &data[i] : NULL);
	return r;
}
