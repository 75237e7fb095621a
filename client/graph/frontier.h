// The nodes that the next node of a stream in a capture waits for, and how. The graph lock is held.

#ifndef FRMPS_CLIENT_GRAPH_FRONTIER_H
#define FRMPS_CLIENT_GRAPH_FRONTIER_H

#include <stddef.h>

#include "protocol/cuda_abi.h"

/* All zero at first. The frontier of an event may outlive its nodes, so these are handles. */
struct frontier {
	CUgraphNode *nodes;
	CUgraphEdgeData *data;
	size_t count, room;
};

void frontier_deinit(struct frontier *frontier);
/**
 * Adds a node. Of two different edges to the same node the frontier keeps an ordinary one.
 * @data: NULL: an ordinary edge. CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult frontier_add(struct frontier *frontier, CUgraphNode node, const CUgraphEdgeData *data);
CUresult frontier_add_all(
	struct frontier *frontier, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count);

#endif
