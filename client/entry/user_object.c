// Entry points: user objects.

#include "client/entry/entry.h"

#include "client/graph/graph.h"
#include "client/graph/objects.h"

CUDA_EXPORT CUresult cuUserObjectCreate(
	CUuserObject *object, void *user, CUhostFn destroy, unsigned int references, unsigned int flags)
{
	CUresult r = process_enter_early();

	if (r != CUDA_SUCCESS)
		return r;
	/* The flag is required: no call waits for the destructor. */
	if (!object || !destroy || references == 0 || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
		return CUDA_ERROR_INVALID_VALUE;
	return object_new(user, destroy, references, object);
}

CUDA_EXPORT CUresult cuUserObjectRetain(CUuserObject object, unsigned int count)
{
	CUresult r = process_enter_early();

	return r == CUDA_SUCCESS ? object_retain(object, count) : r;
}

CUDA_EXPORT CUresult cuUserObjectRelease(CUuserObject object, unsigned int count)
{
	CUresult r = process_enter_early();

	return r == CUDA_SUCCESS ? object_release(object, count) : r;
}

CUDA_EXPORT CUresult cuGraphRetainUserObject(
	CUgraph handle, CUuserObject object, unsigned int count, unsigned int flags)
{
	struct client_graph *graph;
	CUresult r = process_enter_early();

	if (r != CUDA_SUCCESS)
		return r;
	if (flags & ~(unsigned int)CU_GRAPH_USER_OBJECT_MOVE)
		return CUDA_ERROR_INVALID_VALUE;
	graph_enter();
	graph = graph_find(handle);
	r = graph ? graph_retain_object(graph, object, count, flags & CU_GRAPH_USER_OBJECT_MOVE)
		  : CUDA_ERROR_INVALID_VALUE;
	graph_leave();
	return r;
}

CUDA_EXPORT CUresult cuGraphReleaseUserObject(CUgraph handle, CUuserObject object, unsigned int count)
{
	struct graph_object *dropped = NULL;
	struct client_graph *graph;
	CUresult r = process_enter_early();

	if (r != CUDA_SUCCESS)
		return r;
	graph_enter();
	graph = graph_find(handle);
	r = graph ? graph_release_object(graph, object, count, &dropped) : CUDA_ERROR_INVALID_VALUE;
	graph_leave();
	graph_objects_drop(dropped, true);
	return r;
}
