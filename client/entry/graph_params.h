// Parameters of graph nodes as the entry points get them. These functions refuse NULL and unknown
// types; graph/params.h does the rest.

#ifndef FRMPS_CLIENT_ENTRY_GRAPH_PARAMS_H
#define FRMPS_CLIENT_ENTRY_GRAPH_PARAMS_H

#include "client/graph/params.h"

/** Converts the earlier form into the later form, in `wide`; NULL for NULL. */
const CUDA_KERNEL_NODE_PARAMS *graph_params_widen(
	const CUDA_KERNEL_NODE_PARAMS_v1 *given, CUDA_KERNEL_NODE_PARAMS *wide);
CUresult graph_params_copy(const CUDA_MEMCPY3D *given, struct graph_params *ret_params);
CUresult graph_params_set(const CUDA_MEMSET_NODE_PARAMS *given, struct graph_params *ret_params);
CUresult graph_params_host(const CUDA_HOST_NODE_PARAMS *given, struct graph_params *ret_params);
CUresult graph_params_batch(const CUDA_BATCH_MEM_OP_NODE_PARAMS *given, struct graph_params *ret_params);
/** Every type but those that own or name graphs and memory. @keep: where attributes are taken from,
 * or NULL
 */
CUresult graph_params_any(
	const CUgraphNodeParams *given, const struct graph_params *keep, struct graph_params *ret_params);

#endif
