// User objects by themselves; what graphs do with them is in graph.h. Any thread, no lock held: a
// destructor of the program may run inside.

#ifndef FRMPS_CLIENT_GRAPH_OBJECTS_H
#define FRMPS_CLIENT_GRAPH_OBJECTS_H

#include "protocol/cuda_abi.h"

/** @references: at least 1. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult object_new(void *user, CUhostFn destroy, unsigned int references, CUuserObject *ret_object);
/** CUDA_ERROR_INVALID_VALUE for what is no user object, for 0, and for more references than there
 * are. */
CUresult object_retain(CUuserObject object, unsigned int count);
CUresult object_release(CUuserObject object, unsigned int count);

#endif
