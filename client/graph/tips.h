// The nodes that the next node of a stream in a capture waits for, and how. The graph lock is held.

#ifndef FRMPS_CLIENT_GRAPH_TIPS_H
#define FRMPS_CLIENT_GRAPH_TIPS_H

#include <stddef.h>

#include "protocol/cuda_abi.h"

/* All zero at first. The frontier of an event may outlive its nodes, so these are handles. */
struct tips {
	CUgraphNode *nodes;
	CUgraphEdgeData *data;
	size_t count, room;
};

void tips_deinit(struct tips *tips);
/**
 * Adds a node. Of two different edges to the same node the frontier keeps an ordinary one.
 * @data: NULL: an ordinary edge. CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult tips_add(struct tips *tips, CUgraphNode node, const CUgraphEdgeData *data);
CUresult tips_add_all(struct tips *tips, const CUgraphNode *nodes, const CUgraphEdgeData *data, size_t count);

#endif
