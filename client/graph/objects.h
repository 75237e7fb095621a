// User objects by themselves; graph.h has the references of graphs. Any thread, no lock held: a
// destructor of the program may run inside.

#ifndef FRMPS_CLIENT_GRAPH_OBJECTS_H
#define FRMPS_CLIENT_GRAPH_OBJECTS_H

#include "protocol/cuda_abi.h"

/** @references: at least 1. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult object_new(void *user, CUhostFn destroy, unsigned int references, CUuserObject *ret_object);
/**
 * CUDA_ERROR_INVALID_VALUE for an invalid user object, for 0, and for more references than there
 * are.
 */
CUresult object_retain(CUuserObject object, unsigned int count);
CUresult object_release(CUuserObject object, unsigned int count);

#endif
