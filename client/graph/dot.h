// A graph as text for Graphviz.

#ifndef FRMPS_CLIENT_GRAPH_DOT_H
#define FRMPS_CLIENT_GRAPH_DOT_H

#include "protocol/cuda_abi.h"

struct client_graph;

/** Writes a file. CUDA_ERROR_OPERATING_SYSTEM if that fails. The graph lock is held. */
CUresult dot_write(const struct client_graph *graph, const char *path);

#endif
