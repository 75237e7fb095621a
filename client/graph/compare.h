// Compares graphs: may an executable graph be updated to another graph?

#ifndef FRMPS_CLIENT_GRAPH_COMPARE_H
#define FRMPS_CLIENT_GRAPH_COMPARE_H

#include "client/graph/graph.h"

/**
 * Compares the forms of two graphs.
 * @theirs: a private copy: its nodes get the order of the nodes of mine
 * @ret_info: written if the forms differ; names nodes of theirs
 * Return: CU_GRAPH_EXEC_UPDATE_SUCCESS, or the kind of difference.
 */
CUgraphExecUpdateResult graph_compare(const struct client_graph *mine, const struct client_graph *theirs,
	CUgraphExecUpdateResultInfo *ret_info);

#endif
