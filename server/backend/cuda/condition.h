// Conditions of clients' graphs: a word of the program's memory decides, and the driver's condition
// follows it.

#ifndef FRMPS_SERVER_BACKEND_CUDA_CONDITION_H
#define FRMPS_SERVER_BACKEND_CUDA_CONDITION_H

#include "server/backend/backend.h"
#include "server/backend/fatbin.h"

/** Prepares conditions of graphs, before anything is loaded, and frees the preparations. Without
 * them graphs have no conditions. */
void cuda_condition_open(void);
void cuda_condition_close(void);
/**
 * Gives kernels that set conditions a function that writes a word.
 * @ret: left unchanged if the cubin has none, else its replacement, on the heap
 * Return: CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY
 */
CUresult cuda_condition_direct(const uint8_t *cubin, size_t bytes, struct fatbin_bytes *ret);
/** Adds a node that sets a condition of the driver to our word. CUDA_ERROR_NOT_SUPPORTED. Executor
 * threads. @group: the context is that of a group of multiprocessors (graph.c) */
CUresult cuda_condition_add(CUgraph graph, const struct backend_node *node, CUgraphConditionalHandle handle,
	CUcontext context, bool group, CUgraphNode *ret_node);

#endif
