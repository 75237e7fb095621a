// Entry points: peers. A context that has access to another device's has it for the device's whole
// memory, pools included, also for what is allocated later. The end of the access is one of the
// program's word alone: the memory stays mapped until it is freed.

#include "client/entry/entry.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "client/state/context.h"
#include "client/state/device.h"
#include "client/state/peer.h"
#include "client/state/session.h"

/* A context with access to another one, by their numbers, which no later context has. */
struct access {
	SLIST_ENTRY(access) link;
	uint64_t context, peer;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static SLIST_HEAD(, access) accesses = SLIST_HEAD_INITIALIZER(accesses); /* guarded by lock */

static CUresult enter(CUcontext peer)
{
	CUresult r = process_enter_context();

	if (r != CUDA_SUCCESS)
		return r;
	return context_is_live(peer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

/* Under the lock. */
static struct access *find(uint64_t context, uint64_t peer)
{
	struct access *access;

	SLIST_FOREACH (access, &accesses, link)
		if (access->context == context && access->peer == peer)
			break;
	return access;
}

/* Return: CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, CUDA_ERROR_OUT_OF_MEMORY */
static CUresult note(uint64_t context, uint64_t peer)
{
	struct access *access = malloc(sizeof(*access)), *former;

	if (!access)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*access = (struct access){.context = context, .peer = peer};
	pthread_mutex_lock(&lock);
	former = find(context, peer);
	if (!former)
		SLIST_INSERT_HEAD(&accesses, access, link);
	pthread_mutex_unlock(&lock);
	if (former)
		free(access);
	return former ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
}

static CUresult forget(uint64_t context, uint64_t peer)
{
	struct access *access;

	pthread_mutex_lock(&lock);
	access = find(context, peer);
	if (access)
		SLIST_REMOVE(&accesses, access, access, link);
	pthread_mutex_unlock(&lock);
	if (!access)
		return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
	free(access);
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	TRACE_CALL();
	CUresult r = enter(peer);
	int of;

	if (r != CUDA_SUCCESS)
		return r;
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	of = context_device(peer);
	if (!peer_can(device_own(), of))
		return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	r = note(context_id(context_current()), context_id(context_owner(peer)));
	if (r != CUDA_SUCCESS)
		return r;
	r = peer_open(&sessions[of], session_self());
	if (r != CUDA_SUCCESS)
		forget(context_id(context_current()), context_id(context_owner(peer)));
	return r;
}

CUDA_EXPORT CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
	CUresult r = enter(peer);

	return r == CUDA_SUCCESS ? forget(context_id(context_current()), context_id(context_owner(peer))) : r;
}

/* The context of a memory side must be live, or NULL for the current context; arrays have their
 * own. */
static bool are_contexts(const CUDA_MEMCPY3D_PEER *copy)
{
	return (copy->srcMemoryType != CU_MEMORYTYPE_DEVICE || !copy->srcContext ||
		       context_is_live(copy->srcContext)) &&
	       (copy->dstMemoryType != CU_MEMORYTYPE_DEVICE || !copy->dstContext ||
		       context_is_live(copy->dstContext));
}

static CUDA_MEMCPY3D general_of(const CUDA_MEMCPY3D_PEER *copy)
{
	return (CUDA_MEMCPY3D){
		.srcXInBytes = copy->srcXInBytes,
		.srcY = copy->srcY,
		.srcZ = copy->srcZ,
		.srcLOD = copy->srcLOD,
		.srcMemoryType = copy->srcMemoryType,
		.srcHost = copy->srcHost,
		.srcDevice = copy->srcDevice,
		.srcArray = copy->srcArray,
		.srcPitch = copy->srcPitch,
		.srcHeight = copy->srcHeight,
		.dstXInBytes = copy->dstXInBytes,
		.dstY = copy->dstY,
		.dstZ = copy->dstZ,
		.dstLOD = copy->dstLOD,
		.dstMemoryType = copy->dstMemoryType,
		.dstHost = copy->dstHost,
		.dstDevice = copy->dstDevice,
		.dstArray = copy->dstArray,
		.dstPitch = copy->dstPitch,
		.dstHeight = copy->dstHeight,
		.WidthInBytes = copy->WidthInBytes,
		.Height = copy->Height,
		.Depth = copy->Depth,
	};
}

static CUresult read_copy(const CUDA_MEMCPY3D_PEER *copy, CUDA_MEMCPY3D *ret_copy)
{
	CUresult r = process_enter_context();

	if (r != CUDA_SUCCESS)
		return r;
	if (!copy)
		return CUDA_ERROR_INVALID_VALUE;
	if (!are_contexts(copy))
		return CUDA_ERROR_INVALID_CONTEXT;
	*ret_copy = general_of(copy);
	return CUDA_SUCCESS;
}

static CUresult copy_now(const CUDA_MEMCPY3D_PEER *given, bool per_thread)
{
	CUDA_MEMCPY3D copy;
	CUresult r = read_copy(given, &copy);

	if (r != CUDA_SUCCESS)
		return r;
	return per_thread ? cuMemcpy3D_v2_ptds(&copy) : cuMemcpy3D_v2(&copy);
}

static CUresult copy_later(const CUDA_MEMCPY3D_PEER *given, CUstream stream, bool per_thread)
{
	CUDA_MEMCPY3D copy;
	CUresult r = read_copy(given, &copy);

	if (r != CUDA_SUCCESS)
		return r;
	return per_thread ? cuMemcpy3DAsync_v2_ptsz(&copy, stream) : cuMemcpy3DAsync_v2(&copy, stream);
}

ENTRY_PAIR(cuMemcpy3DPeer, _ptds, copy_now, (const CUDA_MEMCPY3D_PEER *copy), copy)
ENTRY_PAIR(cuMemcpy3DPeerAsync, _ptsz, copy_later, (const CUDA_MEMCPY3D_PEER *copy, CUstream stream), copy,
	stream)

/* No operation is promised, native or not: the service knows that of no single one. */
CUDA_EXPORT CUresult cuDeviceGetP2PAtomicCapabilities(unsigned int *capabilities,
	const CUatomicOperation *operations, unsigned int count, CUdevice from, CUdevice to)
{
	CUresult r = process_enter_early();

	if (r != CUDA_SUCCESS)
		return r;
	if (!capabilities || !operations || !count)
		return CUDA_ERROR_INVALID_VALUE;
	/* The question is about two different devices. */
	if (from == to || !device_get(from) || !device_get(to))
		return CUDA_ERROR_INVALID_DEVICE;
	for (unsigned int i = 0; i < count; ++i) {
		if ((int)operations[i] < 0 || operations[i] > CU_ATOMIC_OPERATION_FLOAT_MAX)
			return CUDA_ERROR_INVALID_VALUE;
		capabilities[i] = 0;
	}
	return CUDA_SUCCESS;
}

/* None: pinned host memory, and so managed memory, may lose updates where program and device change
 * a word at once. */
CUDA_EXPORT CUresult cuDeviceGetHostAtomicCapabilities(
	unsigned int *capabilities, const CUatomicOperation *operations, unsigned int count, CUdevice device)
{
	CUresult r = process_enter_early();

	if (r != CUDA_SUCCESS)
		return r;
	if (!device_get(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!capabilities || !operations || count == 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < count; ++i) {
		if ((int)operations[i] < 0 || operations[i] > CU_ATOMIC_OPERATION_FLOAT_MAX)
			return CUDA_ERROR_INVALID_VALUE;
		capabilities[i] = 0;
	}
	return CUDA_SUCCESS;
}
