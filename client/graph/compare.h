// Whether an executable graph may do from now on what another graph does.

#ifndef FRMPS_CLIENT_GRAPH_COMPARE_H
#define FRMPS_CLIENT_GRAPH_COMPARE_H

#include "client/graph/graph.h"

/**
 * Compares the forms of two graphs.
 * @theirs: a copy, which nobody else has: its nodes get the order of those of mine
 * @ret_info: written if the forms are not the same; names nodes of theirs
 * Return: CU_GRAPH_EXEC_UPDATE_SUCCESS, or what differs.
 */
CUgraphExecUpdateResult graph_compare(const struct client_graph *mine, const struct client_graph *theirs,
	CUgraphExecUpdateResultInfo *ret_info);

#endif
