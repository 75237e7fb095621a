// Executable graphs: a private copy of a graph, its form (form.h), and the service's graphs made
// from the form's descriptions. A launch is a command for each of these; most graphs have only one.
//
// A change of a node is made in the copy, and sent with the next launch, as a command in front of
// it: launches in flight keep the former parameters. A change that cannot be sent so needs a new
// form and new graphs of the service. So does the very first change, because most graphs are never
// changed, and a changeable graph takes more memory in the service. The library frees former graphs
// once their last launch is done, when it makes or destroys the next graph.
//
// Any thread, the graph lock is not held. Each executable graph has a lock; requests to the service
// and submissions happen under that lock.

#ifndef FRMPS_CLIENT_GRAPH_EXEC_H
#define FRMPS_CLIENT_GRAPH_EXEC_H

#include <stdbool.h>
#include <stdint.h>

#include "client/graph/graph.h"
#include "protocol/cuda_abi.h"

struct client_exec;
struct client_stream;

/** The executable graph of a handle; NULL for an invalid handle. */
struct client_exec *exec_find(CUgraphExec handle);

/**
 * Makes an executable graph. @ret_bad: the node that caused the error, or NULL; written on failure.
 * Return: as form_make(), or the service's error; CUDA_ERROR_NOT_SUPPORTED for a second executable
 * graph of a graph with memory or conditions.
 */
CUresult exec_new(CUgraph graph, uint64_t flags, CUgraphExec *ret_exec, CUgraphNode *ret_bad);
/** Destroys an executable graph; launches in flight continue. */
CUresult exec_destroy(CUgraphExec exec);
uint64_t exec_flags(const struct client_exec *exec);

/**
 * CUDA_ERROR_INVALID_VALUE for a second allocation of the same memory, or a free of memory that is
 * not allocated; CUDA_ERROR_INVALID_HANDLE, the sticky error, or the errors of making the changed
 * form.
 */
CUresult exec_launch(struct client_exec *exec, struct client_stream *stream);
/** Makes the build now, so that the next launch need not. */
CUresult exec_upload(struct client_exec *exec);

/**
 * Sets the parameters of a node.
 * @node: of the graph that was instantiated
 * @params: taken over, also on failure
 * Return: CUDA_ERROR_INVALID_VALUE for another type, or a node of another graph.
 */
CUresult exec_set(struct client_exec *exec, CUgraphNode node, struct graph_params *params);
/** As exec_set(), for a kernel, whose attributes stay. */
CUresult exec_set_kernel(struct client_exec *exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *given);
/** Sets the parameters of the nodes of a child from another graph of the same form. */
CUresult exec_set_child(struct client_exec *exec, CUgraphNode node, CUgraph child);
CUresult exec_enable(struct client_exec *exec, CUgraphNode node, bool enabled);
CUresult exec_is_enabled(struct client_exec *exec, CUgraphNode node, bool *ret_enabled);
/**
 * Sets the parameters of all nodes; the memory of memory nodes is that of the other graph from then
 * on. CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE: the info has the reason, and nothing was changed.
 * CUDA_ERROR_NOT_SUPPORTED: another executable graph has the memory.
 */
CUresult exec_update(struct client_exec *exec, CUgraph graph, CUgraphExecUpdateResultInfo *ret_info);

#endif
