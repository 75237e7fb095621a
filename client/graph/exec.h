// Executable graphs: a private copy of a graph, its form (form.h), and the service's graphs made
// from the form's descriptions. A launch is one command for each of those, one alone for most
// graphs.
//
// A change of a node is made in the copy, and sent with the next launch, as a command in front of
// it: launches that are on their way keep what they had. What cannot be changed so makes the form
// anew, and the service gets new graphs; so does the first change of all, because most graphs are
// never changed, and a service's graph that may be takes more memory. Former ones are given back
// once their last launch is done, when the next graph is made or destroyed.
//
// Any thread, the graph lock is not held. One lock per executable graph; inside it the service is
// asked and commands are submitted.

#ifndef FRMPS_CLIENT_GRAPH_EXEC_H
#define FRMPS_CLIENT_GRAPH_EXEC_H

#include <stdbool.h>
#include <stdint.h>

#include "client/graph/graph.h"
#include "protocol/cuda_abi.h"

struct client_exec;
struct client_stream;

/** What is behind a handle, NULL if nothing is. */
struct client_exec *exec_find(CUgraphExec handle);

/**
 * Makes an executable graph. @ret_bad: the node to blame, or NULL; written on failure.
 * Return: as form_make(), or what the service said; CUDA_ERROR_NOT_SUPPORTED for a graph with
 * memory or conditions of which there is one already.
 */
CUresult exec_new(CUgraph graph, uint64_t flags, CUgraphExec *ret_exec, CUgraphNode *ret_bad);
/** Ends it; launches that are on their way go on. */
CUresult exec_destroy(CUgraphExec exec);
uint64_t exec_flags(const struct client_exec *exec);

/** CUDA_ERROR_INVALID_VALUE for memory that is allocated already, or to be freed without being
 * that; CUDA_ERROR_INVALID_HANDLE, the sticky error, or what making the changed form returned. */
CUresult exec_launch(struct client_exec *exec, struct client_stream *stream);
/** Makes sure that the next launch has nothing to make. */
CUresult exec_upload(struct client_exec *exec);

/**
 * Sets what a node does.
 * @node: of the graph that it was made from
 * @params: taken over, also on failure
 * Return: CUDA_ERROR_INVALID_VALUE for another type, or a node that is not in it.
 */
CUresult exec_set(struct client_exec *exec, CUgraphNode node, struct graph_params *params);
/** The same for a kernel, whose attributes stay. */
CUresult exec_set_kernel(struct client_exec *exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *given);
/** Sets what the nodes of a child do: those of another graph of the same form. */
CUresult exec_set_child(struct client_exec *exec, CUgraphNode node, CUgraph child);
CUresult exec_enable(struct client_exec *exec, CUgraphNode node, bool enabled);
CUresult exec_is_enabled(struct client_exec *exec, CUgraphNode node, bool *ret_enabled);
/** Sets what all nodes do. CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE: the info says why, and nothing was
 * changed.
 */
CUresult exec_update(struct client_exec *exec, CUgraph graph, CUgraphExecUpdateResultInfo *ret_info);

#endif
